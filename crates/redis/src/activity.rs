//! The log of activity in Redis: one call of `lua/sync.lua` a turn.

use std::collections::VecDeque;

use redis::Value;
use weir_core::{
    basis::time::Time,
    limit::pressure::{
        activity::{ActivityHash, Minute},
        activity_log::{ActiveIn, SharedPlaces, SyncReply, SyncRequest, USERS_AN_ENTRY},
    },
    ports::StoreError,
};

use super::{
    keyspace::Keyspace,
    script::Script,
    share::{OnRedis, RedisShare},
};

const HASH_BYTES: usize = 8;
/// What a call, and each entry in it, takes beside its users, about.
const OVERHEAD_BYTES: usize = 64;

/// The log as one instance takes its turns at it.
pub type RedisActivityLog = RedisShare<SharedPlaces>;

impl OnRedis for SharedPlaces {
    const WHAT: &'static str = "a turn at the log of activity";
    const SCRIPT: Script = Script::Sync;
    type By = ();

    fn place(keyspace: &Keyspace, _: &(), _: &SyncRequest) -> (u16, Vec<String>) {
        let keys = [keyspace.activity_key(), keyspace.activity_members_key()];
        (keyspace.meta_slot(), keys.map(str::to_owned).to_vec())
    }

    fn args(_: &RedisActivityLog, _: &(), turn: &SyncRequest) -> Result<Vec<Vec<u8>>, StoreError> {
        let SyncRequest { cursor, active, window_ms, member_for_ms, held, wanted, room } = turn;
        let cursor = cursor.as_deref().unwrap_or_default().to_owned();
        let room = room.map_or_else(String::new, |room| room.to_string());
        let numbers = [window_ms.to_string(), member_for_ms.to_string(), held.to_string(), wanted.to_string()];
        let texts = [cursor].into_iter().chain(numbers).chain([room]);
        let mut args: Vec<Vec<u8>> = texts.map(String::into_bytes).collect();
        for ActiveIn { minute, new, users } in active {
            let mut left = *new;
            for users in users.chunks(USERS_AN_ENTRY) {
                let new = left.min(bytes(users.len()));
                left -= new;
                let hashes = users.iter().flat_map(|user| user.0.to_be_bytes()).collect();
                args.extend([minute.0.to_string().into_bytes(), new.to_string().into_bytes(), hashes]);
            }
        }
        Ok(args)
    }

    fn reply(mut parts: VecDeque<Value>, sent: usize) -> Option<SyncReply> {
        let cursor: String = redis::from_redis_value(parts.pop_front()?).ok()?;
        let mut number = || redis::from_redis_value::<u64>(parts.pop_front()?).ok();
        let (more, lost, held, part, members) = (number()? != 0, number()? != 0, number()?, number()?, number()?);
        let now = Time::from_millis(i64::try_from(number()?).ok()?)?;
        let (mut active, mut exchanged) = (Vec::with_capacity(parts.len() / 3), sent + OVERHEAD_BYTES);
        while let Some(minute) = parts.pop_front() {
            let minute = Minute(redis::from_redis_value(minute).ok()?);
            let new = redis::from_redis_value(parts.pop_front()?).ok()?;
            let Value::BulkString(hashes) = parts.pop_front()? else { return None };
            let (users, rest) = hashes.as_chunks::<HASH_BYTES>();
            if !rest.is_empty() {
                return None;
            }
            let users = users.iter().map(|hash| ActivityHash(u64::from_be_bytes(*hash))).collect();
            exchanged += hashes.len() + OVERHEAD_BYTES;
            active.push(ActiveIn { minute, new, users });
        }
        let cursor = (!cursor.is_empty()).then(|| cursor.into());
        Some(SyncReply { active, cursor, more, lost, held, part, members, now, bytes: bytes(exchanged) })
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
