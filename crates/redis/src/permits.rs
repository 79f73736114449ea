//! The permits of routes in Redis: one call of `lua/permit.lua` a turn.

use std::collections::VecDeque;

use redis::Value;
use weir_core::{
    limit::route::permits::{MOST, PermitGrant, PermitTurn, RouteKey, RoutePermits, kept_rates},
    ports::StoreError,
};

use super::{
    keyspace::Keyspace,
    script::Script,
    share::{OnRedis, RedisShare, numbers},
};

/// The permits as one instance takes its turns at them.
pub type RedisPermits = RedisShare<RoutePermits>;

impl OnRedis for RoutePermits {
    const WHAT: &'static str = "a turn at the permits";
    const SCRIPT: Script = Script::Permit;
    type By = ();

    fn place(keyspace: &Keyspace, RouteKey { route, service }: &RouteKey, _: &PermitTurn) -> (u16, Vec<String>) {
        let service = service.as_deref();
        let service_key = service.map(|service| keyspace.service_key(service));
        let keys = [keyspace.route_key(route, service)].into_iter().chain(service_key).collect();
        (keyspace.slot(keyspace.route_shard(route, service)), keys)
    }

    fn args(_: &RedisPermits, _: &RouteKey, turn: &PermitTurn) -> Result<Vec<Vec<u8>>, StoreError> {
        let PermitTurn { lease, want, unused, recent, rate, took, delivery, .. } = *turn;
        let number = |number: u64| number.min(MOST).to_string();
        let [drain, measured] = turn.rate_parts();
        let args = [
            lease.as_millis().to_string(),
            turn.room_or_most().to_string(),
            number(want),
            number(unused),
            number(recent),
            rate.map(number).unwrap_or_default(),
            turn.slow.to_string(),
            number(took.0),
            number(took.1),
            format!("{delivery:x}"),
            drain.to_string(),
            measured.to_string(),
        ];
        Ok(args.map(String::into_bytes).to_vec())
    }

    fn reply(parts: VecDeque<Value>, _: usize) -> Option<PermitGrant> {
        let [granted, held_by_others, members, registered, timeout, processing, slow, _now, drain, best] =
            numbers(parts)?;
        let some = |number| u64::try_from(number).ok();
        Some(PermitGrant {
            permits: some(granted)?,
            held_by_others: some(held_by_others)?,
            members: some(members)?,
            registered_per_s: some(registered),
            timeout_ms: some(timeout),
            processing_ms: some(processing),
            slow: some(slow)?,
            rates: kept_rates([some(drain)?, some(best)?]),
        })
    }
}
