//! Limits that instances share, in Redis: one call of a script a turn.

use std::{collections::VecDeque, future::ready, sync::Arc};

use redis::Value;
use weir_core::{
    limit::{
        SharedLimit,
        share::{PlainLimit, TurnNumber, overtaken},
    },
    ports::{Share, StoreError},
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions,
    request_error::RequestError, script::Script, sequence::Repeat, stats::RedisStats,
};

/// A limit as its script takes it, whose arguments begin with the member, and the run and the number of the turn. Number 0 only looks, where
/// the script can.
pub trait OnRedis: SharedLimit + Sized {
    const WHAT: &'static str;
    const SCRIPT: Script;
    /// Which turns that have no answer are sent again from here.
    const REPEAT: Repeat = Repeat::Unanswered;
    /// What a call goes by beside the keyspace and the turn.
    type By: Send + Sync;

    /// The slot of the keys of a turn, and these.
    fn place(keyspace: &Keyspace, key: &Self::Key, turn: &Self::Turn) -> (u16, Vec<String>);

    /// The arguments of a turn behind its number.
    fn args(share: &RedisShare<Self>, key: &Self::Key, turn: &Self::Turn) -> Result<Vec<Vec<u8>>, StoreError>;

    /// What is in a reply that has something, to a call of so many bytes; `None` where it is none.
    fn reply(parts: VecDeque<Value>, sent: usize) -> Option<Self::Reply>;

    /// The reply to a turn that was refused, where it is made again once what is in its way is gone.
    fn mend(
        _share: &mut RedisShare<Self>,
        _turn: (&Self::Key, TurnNumber, &Self::Turn),
        error: RequestError,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send {
        ready(Err(startup(error)))
    }
}

/// Which script a limit has that says all else by itself: `scripts!` names it.
pub trait HasScript: PlainLimit {
    const SCRIPT: Script;
}

impl<L: HasScript> OnRedis for L {
    const WHAT: &'static str = <L as PlainLimit>::WHAT;
    const SCRIPT: Script = <L as HasScript>::SCRIPT;
    type By = ();

    fn place(keyspace: &Keyspace, key: &L::Key, _: &L::Turn) -> (u16, Vec<String>) {
        keyspace.place_of::<L>(key)
    }

    fn args(_: &RedisShare<L>, _: &L::Key, turn: &L::Turn) -> Result<Vec<Vec<u8>>, StoreError> {
        Ok(<L as PlainLimit>::args(turn).into_iter().map(String::into_bytes).collect())
    }

    fn reply(parts: VecDeque<Value>, _: usize) -> Option<L::Reply> {
        let numbers: Vec<i64> = redis::from_redis_value(Value::Array(parts.into())).ok()?;
        <L as PlainLimit>::reply(&numbers)
    }
}

/// A limit as one member takes its turns at it, over connections of its own.
pub struct RedisShare<L: OnRedis> {
    pub(super) cluster: Cluster,
    pub(super) keyspace: Arc<Keyspace>,
    member: String,
    pub(super) by: L::By,
}

impl<L: OnRedis<By = ()>> RedisShare<L> {
    /// The limit in a keyspace that [`super::open`] has verified, for a member: a name that no other has. Connects at the first turn.
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        member: impl Into<String>,
    ) -> Self {
        Self::with(options, stats, opened, member, ())
    }
}

impl<L: OnRedis> RedisShare<L> {
    /// [`RedisShare::new`] for one whose calls go by something.
    pub fn with(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        member: impl Into<String>,
        by: L::By,
    ) -> Self {
        Self {
            cluster: Cluster::new(options, stats),
            keyspace: Arc::clone(&opened.keyspace),
            member: member.into(),
            by,
        }
    }

    /// The call of a turn, and the slot that it goes to.
    pub(super) fn request(
        &self,
        (key, number, turn): (&L::Key, TurnNumber, &L::Turn),
    ) -> Result<(u16, Request), StoreError> {
        let (slot, keys) = L::place(&self.keyspace, key, turn);
        let head = [self.member.clone(), number.run.to_string(), number.number.to_string()];
        let args = head.map(String::into_bytes).into_iter().chain(L::args(self, key, turn)?);
        Ok((slot, Request::call(L::SCRIPT, keys, args)))
    }

    /// Takes a turn. `read` gives what is in the reply, unless it is empty: `None`, a later turn was taken before.
    pub(super) async fn take<T>(
        &mut self,
        turn: (&L::Key, TurnNumber, &L::Turn),
        read: impl Fn(VecDeque<Value>, usize) -> Option<T> + Send + Sync,
    ) -> Result<Option<T>, StoreError> {
        let (slot, request) = self.request(turn)?;
        let sent: usize = match &request {
            Request::Call { args, .. } => args.iter().map(Vec::len).sum(),
            Request::Plain(_) => 0,
        };
        let torn = self.torn();
        let read = |value: Value| {
            let Value::Array(parts) = value else { return Err(torn.clone()) };
            let found = if parts.is_empty() { Some(None) } else { read(parts.into(), sent).map(Some) };
            found.ok_or_else(|| torn.clone())
        };
        match self.cluster.ask_one(slot, request, L::REPEAT).await.and_then(&read) {
            Ok(found) => Ok(found),
            Err(error) => read(L::mend(self, turn, error).await?).map_err(startup),
        }
    }

    pub(super) fn torn(&self) -> RequestError {
        self.cluster.torn(L::WHAT)
    }
}

impl<L: OnRedis> Share<L> for RedisShare<L> {
    async fn turn(&mut self, key: &L::Key, number: TurnNumber, turn: &L::Turn) -> Result<L::Reply, StoreError> {
        self.take((key, number, turn), L::reply).await?.ok_or_else(overtaken)
    }
}
