//! The log of activity in Redis: one call of `lua/sync.lua` a turn.

use std::{collections::VecDeque, sync::Arc};

use redis::Value;
use weir_core::{
    activity::{ActivityHash, Minute},
    activity_log::{ActiveIn, SyncReply, SyncRequest, USERS_AN_ENTRY},
    limit::share::overtaken,
    ports::{ActivityLog, StoreError},
    time::Time,
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions,
    request_error::RequestError, script::Script, stats::RedisStats,
};

/// Bytes of a user's hash.
const HASH_BYTES: usize = 8;
/// What a call, and each entry in it, takes beside its users, about.
const OVERHEAD_BYTES: usize = 64;

/// The log as one instance takes its turns at it, over connections of its own.
pub struct RedisActivityLog {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    instance: String,
}

impl RedisActivityLog {
    /// The log of a keyspace that [`super::open`] has verified, for an instance: a name that no other has. Connects at the first
    /// turn.
    #[must_use]
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        instance: impl Into<String>,
    ) -> Self {
        Self {
            cluster: Cluster::new(Arc::clone(options), Arc::clone(stats)),
            keyspace: Arc::clone(&opened.keyspace),
            instance: instance.into(),
        }
    }
}

impl ActivityLog for RedisActivityLog {
    async fn sync(&mut self, request: &SyncRequest<'_>) -> Result<SyncReply, StoreError> {
        let args = args(&self.instance, request);
        let sent: usize = args.iter().map(Vec::len).sum();
        let keys = [self.keyspace.activity_key(), self.keyspace.activity_members_key()].map(str::to_owned).to_vec();
        let call = Request::Call { script: Script::Sync, keys, args, latest: None };
        let value = self.cluster.ask(self.keyspace.meta_slot(), call).await.map_err(startup)?;
        let torn = || RequestError::torn(&self.cluster.options().nodes[0], "a turn at the log of activity");
        let reply = parse(value).ok_or_else(|| startup(torn()))?;
        let mut reply = reply.ok_or_else(overtaken)?;
        reply.bytes += bytes(sent + OVERHEAD_BYTES);
        Ok(reply)
    }
}

/// The arguments of the script.
fn args(instance: &str, request: &SyncRequest<'_>) -> Vec<Vec<u8>> {
    let SyncRequest { turn, cursor, active, window_ms, member_for_ms, held, wanted, room } = request;
    let room = room.map_or_else(String::new, |room| room.to_string());
    let cursor = cursor.as_deref().unwrap_or_default().to_owned();
    let head = [instance.to_owned(), turn.run.to_string(), turn.number.to_string(), cursor];
    let numbers = [window_ms.to_string(), member_for_ms.to_string(), held.to_string(), wanted.to_string(), room];
    let texts = head.into_iter().chain(numbers);
    let mut args: Vec<Vec<u8>> = texts.map(String::into_bytes).collect();
    for ActiveIn { minute, new, users } in *active {
        let mut left = *new;
        for users in users.chunks(USERS_AN_ENTRY) {
            let new = left.min(bytes(users.len()));
            left -= new;
            let hashes = users.iter().flat_map(|user| user.0.to_be_bytes()).collect();
            args.extend([minute.0.to_string().into_bytes(), new.to_string().into_bytes(), hashes]);
        }
    }
    args
}

/// What is in a reply; `Some(None)`: a later turn was taken before.
fn parse(value: Value) -> Option<Option<SyncReply>> {
    let Value::Array(parts) = value else { return None };
    if parts.is_empty() {
        return Some(None);
    }
    let mut parts = VecDeque::from(parts);
    let cursor: String = redis::from_redis_value(parts.pop_front()?).ok()?;
    let mut number = || redis::from_redis_value::<u64>(parts.pop_front()?).ok();
    let (more, lost, held, part, members) = (number()? != 0, number()? != 0, number()?, number()?, number()?);
    let now = Time::from_millis(i64::try_from(number()?).ok()?)?;
    let (mut active, mut received) = (Vec::with_capacity(parts.len() / 3), 0);
    while let Some(minute) = parts.pop_front() {
        let minute = Minute(redis::from_redis_value(minute).ok()?);
        let new = redis::from_redis_value(parts.pop_front()?).ok()?;
        let Value::BulkString(hashes) = parts.pop_front()? else { return None };
        let (users, rest) = hashes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let users = users.iter().map(|hash| ActivityHash(u64::from_be_bytes(*hash))).collect();
        received += hashes.len() + OVERHEAD_BYTES;
        active.push(ActiveIn { minute, new, users });
    }
    let cursor = (!cursor.is_empty()).then(|| cursor.into());
    Some(Some(SyncReply { active, cursor, more, lost, held, part, members, now, bytes: bytes(received) }))
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
