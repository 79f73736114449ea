//! The permits of routes in Redis: one call of `lua/permit.lua` a turn.

use std::{sync::Arc, time::Duration};

use redis::Value;
use weir_core::{
    limit::share::overtaken,
    permits::{FACTOR_PARTS, MOST, kept_rates},
    ports::{PermitGrant, PermitTurn, Permits, StoreError},
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions,
    request_error::RequestError, script::Script, stats::RedisStats,
};

/// The permits as one instance takes its turns at them, over connections of its own.
pub struct RedisPermits {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    instance: String,
    lease: Duration,
}

impl RedisPermits {
    /// Those of a keyspace that [`super::open`] has verified, for an instance: a name that no other has. It holds
    /// permits for so long without another turn. Connects at the first turn.
    #[must_use]
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        instance: impl Into<String>,
        lease: Duration,
    ) -> Self {
        Self {
            cluster: Cluster::new(Arc::clone(options), Arc::clone(stats)),
            keyspace: Arc::clone(&opened.keyspace),
            instance: instance.into(),
            lease,
        }
    }

    /// The slot, and what to ask there.
    fn request(&self, turn: &PermitTurn<'_>) -> (u16, Request) {
        let PermitTurn { route, service, want, unused, recent, rate, took, .. } = turn;
        let shard = self.keyspace.route_shard(route, *service);
        let route_key = self.keyspace.route_key(route, *service);
        let service_key = service.map(|service| self.keyspace.service_key(service));
        let number = |number: &u64| number.min(&MOST).to_string();
        let [drain, measured] = turn.rate_parts();
        let args = [
            self.instance.clone(),
            turn.number.run.to_string(),
            turn.number.number.to_string(),
            self.lease.as_millis().to_string(),
            turn.room_or_most().to_string(),
            number(want),
            number(unused),
            number(recent),
            rate.as_ref().map(number).unwrap_or_default(),
            turn.slow_parts().to_string(),
            number(&took.0),
            number(&took.1),
            format!("{:x}", turn.delivery),
            drain.to_string(),
            measured.to_string(),
        ];
        let keys = [route_key].into_iter().chain(service_key).collect();
        let args = args.map(String::into_bytes).to_vec();
        (self.keyspace.slot(shard), Request::Call { script: Script::Permit, keys, args, latest: None })
    }
}

impl Permits for RedisPermits {
    async fn turn(&mut self, turn: &PermitTurn<'_>) -> Result<PermitGrant, StoreError> {
        let (slot, request) = self.request(turn);
        let node = self.cluster.options().nodes[0].clone();
        let value = self.cluster.ask(slot, request).await.map_err(startup)?;
        let grant = parse(value).ok_or_else(|| startup(RequestError::torn(&node, "a turn at the permits")))?;
        grant.ok_or_else(overtaken)
    }
}

/// What is in a reply; `Some(None)`: a later turn was taken before.
#[expect(clippy::cast_precision_loss, reason = "at most 1,000")]
fn parse(value: Value) -> Option<Option<PermitGrant>> {
    let numbers: Vec<i64> = redis::from_redis_value(value).ok()?;
    if numbers.is_empty() {
        return Some(None);
    }
    let [granted, held_by_others, members, registered, timeout, processing, slow, _now, drain, best] = *numbers else {
        return None;
    };
    let some = |number| u64::try_from(number).ok();
    Some(Some(PermitGrant {
        permits: some(granted)?,
        held_by_others: some(held_by_others)?,
        members: some(members)?,
        registered_per_s: some(registered),
        timeout_ms: some(timeout),
        processing_ms: some(processing),
        slow: slow as f64 / FACTOR_PARTS,
        rates: kept_rates([some(drain)?, some(best)?]),
    }))
}
