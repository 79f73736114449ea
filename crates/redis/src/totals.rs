//! The totals of campaigns that a shard keeps: one that has as many as it may have makes room for others (`lua/make_room.lua`).

use std::collections::HashMap;

use weir_core::basis::shard::filter_places;

use super::{cluster::Cluster, keyspace::Keyspace, node::Request, request_error::RequestError, script::Script};

/// What `lua/take.lua` answers where a shard has no room for another total.
const FULL: &str = "TOTALSFULL";
/// The bits that mark totals that are gone, as in `lua/make_room.lua`.
const MARK_BITS: u32 = 1 << 18;
/// One of so many goes at a time: the register is read once for all of them.
const PART: usize = 16;
/// The most that go in one call.
const MOST: usize = 250;

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
    error.message.starts_with(FULL)
}

/// Takes some totals out of a full shard; none where somebody else has done so meanwhile.
pub(super) async fn make_room(cluster: &mut Cluster, keyspace: &Keyspace, shard: u16) -> Result<(), RequestError> {
    let (slot, register) = (keyspace.slot(shard), keyspace.totals_key(shard));
    let most = most_per_shard(cluster.options().max_totals, keyspace.meta().layout.shards);
    let fields = cluster.ask(slot, Request::plain("HGETALL", &register)).await?;
    let fields: HashMap<String, String> = redis::from_redis_value(fields).unwrap_or_default();
    for call in taken_out(keyspace, (shard, keyspace.epoch()), &going(fields, most)) {
        cluster.ask(slot, call).await?;
    }
    Ok(())
}

/// The calls that take totals out of a shard that has this epoch. Each total is its key and its value in the register, empty if it has none.
pub(super) fn taken_out(keyspace: &Keyspace, (shard, epoch): (u16, &str), totals: &[(String, String)]) -> Vec<Request> {
    let call = |some: &[(String, String)]| {
        let mut keys = vec![keyspace.epoch_key(shard), keyspace.totals_key(shard), keyspace.gone_totals_key(shard)];
        let mut args = vec![epoch.to_owned()];
        for (key, state) in some {
            args.push(state.clone());
            args.extend(mark_places(key).map(|bit| bit.to_string()));
            keys.push(key.clone());
        }
        Request::call(Script::MakeRoom, keys, args)
    };
    totals.chunks(MOST).map(call).collect()
}

/// The totals of a register that have to go, each with its value there: as many as are beyond `most`, and a part of `most` more. Spent ones go
/// first; among equals, the one that was asked for longest ago.
fn going(register: HashMap<String, String>, most: u32) -> Vec<(String, String)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let Some(beyond) = register.len().checked_sub(most) else { return Vec::new() };
    let total = |(key, state): (String, String)| {
        let at: u64 = state.trim_start_matches('-').parse().unwrap_or(0);
        (!state.starts_with('-'), at, key, state)
    };
    let mut totals: Vec<(bool, u64, String, String)> = register.into_iter().map(total).collect();
    totals.sort_unstable();
    totals.truncate(beyond + (most / PART).max(1));
    totals.into_iter().map(|(_, _, key, state)| (key, state)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(register: &[(&str, &str)], most: u32) -> Vec<String> {
        let register = register.iter().map(|(key, state)| ((*key).to_owned(), (*state).to_owned())).collect();
        going(register, most).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn those_that_are_spent_go_first_and_then_the_oldest_and_none_where_there_is_room() {
        let register = [("a", "30"), ("b", "-40"), ("c", "20"), ("d", "-50")];
        assert_eq!(keys(&register, 4), ["b"]);
        assert_eq!(keys(&register, 2), ["b", "d", "c"]);
        assert!(keys(&register, 5).is_empty());
        let many: Vec<String> = (100..164).map(|at| at.to_string()).collect();
        let register: Vec<(&str, &str)> = many.iter().map(|at| (at.as_str(), at.as_str())).collect();
        assert_eq!(keys(&register, 64), ["100", "101", "102", "103"]);
    }

    #[test]
    fn a_shard_has_its_part_and_at_least_one() {
        let cases = [(100, 16), (1, 16), (0, 1), (32, 16)];
        assert_eq!(cases.map(|(most, shards)| most_per_shard(most, shards)), [7, 1, 1, 2]);
    }
}
