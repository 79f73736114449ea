//! Limits that instances share, in Redis: one call of a script a turn.

use std::{collections::VecDeque, marker::PhantomData, sync::Arc};

use redis::Value;
use weir_core::{
    limit::{
        SharedLimit,
        share::{TurnNumber, overtaken},
    },
    ports::{Share, StoreError},
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions,
    request_error::RequestError, script::Script, stats::RedisStats,
};

/// A limit as its script takes it, whose arguments begin with the member, and the run and the number of the turn.
pub trait OnRedis: SharedLimit {
    /// What a turn is called.
    const WHAT: &'static str;
    const SCRIPT: Script;

    /// The slot of its keys, and these.
    fn place(keyspace: &Keyspace, key: &Self::Key) -> (u16, Vec<String>);

    fn args(turn: &Self::Turn) -> Vec<Vec<u8>>;

    /// What is in a reply that has something, to a call of so many bytes; `None` where it is none.
    fn reply(parts: VecDeque<Value>, sent: usize) -> Option<Self::Reply>;
}

/// A limit as one member takes its turns at it, over connections of its own.
pub struct RedisShare<L> {
    cluster: Cluster,
    pub(super) keyspace: Arc<Keyspace>,
    member: String,
    limit: PhantomData<fn() -> L>,
}

impl<L: OnRedis> RedisShare<L> {
    /// The limit in a keyspace that [`super::open`] has verified, for a member: a name that no other has. Connects at the first turn.
    #[must_use]
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        member: impl Into<String>,
    ) -> Self {
        Self {
            cluster: Cluster::new(Arc::clone(options), Arc::clone(stats)),
            keyspace: Arc::clone(&opened.keyspace),
            member: member.into(),
            limit: PhantomData,
        }
    }

    /// The call of a turn, and the slot that it goes to.
    pub(super) fn request(&self, key: &L::Key, number: TurnNumber, turn: &L::Turn) -> (u16, Request) {
        let (slot, keys) = L::place(&self.keyspace, key);
        let head = [self.member.clone(), number.run.to_string(), number.number.to_string()];
        let args = head.map(String::into_bytes).into_iter().chain(L::args(turn)).collect();
        (slot, Request::Call { script: L::SCRIPT, keys, args, latest: None })
    }

    /// Makes a call in a slot. `read` gives what is in the reply; `None` where it is none.
    pub(super) async fn call<T>(
        &mut self,
        slot: u16,
        request: Request,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let value = self.cluster.ask(slot, request).await.map_err(startup)?;
        let torn = || startup(RequestError::torn(&self.cluster.options().nodes[0], L::WHAT));
        read(value).ok_or_else(torn)
    }
}

impl<L: OnRedis> Share<L> for RedisShare<L> {
    async fn turn(&mut self, key: &L::Key, number: TurnNumber, turn: &L::Turn) -> Result<L::Reply, StoreError> {
        let (slot, request) = self.request(key, number, turn);
        let sent: usize = match &request {
            Request::Call { args, .. } => args.iter().map(Vec::len).sum(),
            Request::Plain(_) => 0,
        };
        let read = |value| {
            let Value::Array(parts) = value else { return None };
            if parts.is_empty() { Some(None) } else { L::reply(parts.into(), sent).map(Some) }
        };
        self.call(slot, request, read).await?.ok_or_else(overtaken)
    }
}
