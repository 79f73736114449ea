//! The totals of campaigns that a shard keeps: one that has as many as it may have makes room for others (`lua/make_room.lua`).

use std::collections::HashMap;

use redis::cmd;
use weir_core::shard::filter_places;

use super::{cluster::Cluster, keyspace::Keyspace, node::Request, request_error::RequestError, script::Script};

/// What `lua/take.lua` answers where a shard has no room for another total.
const FULL: &str = "TOTALSFULL";
/// The bits that mark totals that are gone, as in `lua/make_room.lua`.
const MARK_BITS: u32 = 1 << 18;
/// One of so many goes at a time.
const PART: usize = 16;
/// The most that go at a time.
const MOST: usize = 64;

/// How many totals of campaigns a shard may have, where the keyspace may have so many.
pub(super) fn most_per_shard(most: u32, shards: u16) -> u32 {
    most.div_ceil(u32::from(shards.max(1))).max(1)
}

/// The places of a total's bits among the marks, by its key.
pub(super) fn mark_places(key: &str) -> [u32; 4] {
    filter_places(key, MARK_BITS)
}

/// Whether a call of take was refused because the shard has no room.
pub(super) fn is_full(error: &RequestError) -> bool {
    matches!(error, RequestError::Refused { message, .. } if message.starts_with(FULL))
}

/// Takes some totals out of a full shard: those that are spent first, and of them those that were granted tokens least lately.
pub(super) async fn make_room(cluster: &mut Cluster, keyspace: &Keyspace, shard: u16) -> Result<(), RequestError> {
    let (slot, register) = (keyspace.slot(shard), keyspace.totals_key(shard));
    let mut all = cmd("HGETALL");
    all.arg(&register);
    let fields = cluster.ask(slot, Request::Plain(all)).await?;
    let fields: HashMap<String, String> = redis::from_redis_value(fields).unwrap_or_default();
    let mut totals: Vec<Total> = fields.into_iter().map(|(key, state)| total(key, state)).collect();
    totals.sort_unstable();
    totals.truncate((totals.len() / PART).clamp(1, MOST));
    if totals.is_empty() {
        return Ok(());
    }
    let mut keys = vec![keyspace.epoch_key(shard), register, keyspace.gone_totals_key(shard)];
    let mut args = vec![keyspace.epoch().to_owned()];
    for (_, _, key, state) in totals {
        args.push(state);
        args.extend(mark_places(&key).map(|bit| bit.to_string()));
        keys.push(key);
    }
    let args = args.into_iter().map(String::into_bytes).collect();
    cluster.ask(slot, Request::Call { script: Script::MakeRoom, keys, args, latest: None }).await?;
    Ok(())
}

/// A total of the register: whether it is not spent, when it was last granted tokens, its key, and what the register has of it.
type Total = (bool, u64, String, String);

fn total(key: String, state: String) -> Total {
    let (is_open, at) = match state.strip_prefix('-') {
        Some(at) => (false, at),
        None => (true, state.as_str()),
    };
    (is_open, at.parse().unwrap_or(0), key, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_spent_go_first_and_then_the_oldest() {
        let all = [("a", "30"), ("b", "-40"), ("c", "20"), ("d", "-50")];
        let mut totals: Vec<Total> = all.map(|(key, state)| total(key.to_owned(), state.to_owned())).into();
        totals.sort_unstable();
        let keys: Vec<&str> = totals.iter().map(|(_, _, key, _)| key.as_str()).collect();
        assert_eq!(keys, ["b", "d", "c", "a"]);
    }

    #[test]
    fn a_shard_has_its_part_and_at_least_one() {
        let cases = [(100, 16), (1, 16), (0, 1), (32, 16)];
        assert_eq!(cases.map(|(most, shards)| most_per_shard(most, shards)), [7, 1, 1, 2]);
    }
}
