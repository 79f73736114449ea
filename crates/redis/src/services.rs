//! Services in Redis: one call of `lua/register.lua` for a registration, and one of `lua/share.lua` for a turn.

use std::collections::VecDeque;

use redis::Value;
use weir_core::{basis::time::Time, limit::share::TurnNumber, ports::StoreError};
use weir_oracle::service::{
    INTERVALS, LEASE_MS, MAX_INSTANCES, Registered, RegisteredInstance, Registration, ServiceName, ServiceSeen,
    ServiceShares, Services, ShareReply, ShareTurn, Total,
};

use super::{
    keyspace::Keyspace,
    node::Request,
    open::startup,
    script::Script,
    share::{OnRedis, RedisShare},
};

/// Services as one process of weir asks for them, as a holder of shares: a name that no other process has or had.
pub type RedisServices = RedisShare<ServiceShares>;

impl OnRedis for ServiceShares {
    const WHAT: &'static str = "the numbers of a service";
    const SCRIPT: Script = Script::Share;
    type By = ();

    fn place(keyspace: &Keyspace, service: &ServiceName, _: &ShareTurn) -> (u16, Vec<String>) {
        let registry = keyspace.service_key(service.as_str());
        let keys = ["", ":members", ":ends"].map(|ending| format!("{registry}{ending}"));
        (keyspace.slot(keyspace.limit_shard(service.as_str())), keys.to_vec())
    }

    fn args(_: &RedisServices, _: &ServiceName, turn: &ShareTurn) -> Result<Vec<Vec<u8>>, StoreError> {
        let ShareTurn { rate, concurrency, took, taken_bytes, ends: _ } = turn;
        let uses = [rate.held, rate.wanted, concurrency.held, concurrency.wanted];
        let numbers = uses.into_iter().chain([took.0, took.1, *taken_bytes, LEASE_MS.unsigned_abs()]);
        let ends = turn.ends_by_holder().into_iter().flat_map(|(holder, ends)| [holder.to_string(), ends]);
        Ok(numbers.map(|number| number.to_string()).chain(ends).map(String::into_bytes).collect())
    }

    fn reply(parts: VecDeque<Value>, _: usize) -> Option<ShareReply> {
        let (reply, ..) = shared(parts)?;
        Some(reply)
    }
}

impl Services for RedisServices {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: Option<&Registration>,
    ) -> Result<Registered, StoreError> {
        let numbers = registration.map_or([0; 5], |registration| {
            let Registration { capacity_per_s, concurrency, timeout_ms, network_ms, interval_ms } = *registration;
            let lives_ms = interval_ms.saturating_mul(INTERVALS.unsigned_abs());
            [lives_ms, capacity_per_s, concurrency, timeout_ms, network_ms]
        });
        let slot = self.keyspace.slot(self.keyspace.limit_shard(service.as_str()));
        let keys = vec![self.keyspace.service_key(service.as_str())];
        let numbers = numbers.into_iter().chain([MAX_INSTANCES]).map(|number| number.to_string());
        let call = Request::call(Script::Register, keys, [instance.to_string()].into_iter().chain(numbers));
        let value = self.cluster.ask(slot, call).await.map_err(startup)?;
        registered(value).ok_or_else(|| startup(self.torn()))
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        let look = ShareTurn::default();
        let seen = self.take((service, TurnNumber::default(), &look), |parts, _| seen(parts)).await?;
        Ok(seen.filter(|seen| !seen.instances.is_empty()))
    }
}

fn registered(value: Value) -> Option<Registered> {
    let [taken, instances, per_s, concurrency, timeout_ms, _now] = redis::from_redis_value(value).ok()?;
    Some(Registered { taken: taken != 0, total: Total { instances, per_s, concurrency, timeout_ms } })
}

/// What each reply of `lua/share.lua` begins with, the server's clock, and its other parts.
fn shared(mut parts: VecDeque<Value>) -> Option<(ShareReply, Time, VecDeque<Value>)> {
    let mut number = || redis::from_redis_value::<u64>(parts.pop_front()?).ok();
    let (per_s, concurrency) = (number()?, number()?);
    let total = Total { instances: number()?, per_s: number()?, concurrency: number()?, timeout_ms: number()? };
    let (members, starts_in_ms, processing_us, now) = (number()?, number()?, number()?, time(number()?)?);
    let ends = redis::from_redis_value(parts.pop_front()?).ok()?;
    Some((ShareReply { per_s, concurrency, total, members, starts_in_ms, processing_us, ends }, now, parts))
}

/// The reply to one who looks: to a turn with the number 0.
fn seen(parts: VecDeque<Value>) -> Option<ServiceSeen> {
    let (reply, now, mut parts) = shared(parts)?;
    let mut instances = Vec::with_capacity(parts.len() / 2);
    while let Some(name) = parts.pop_front() {
        let name: String = redis::from_redis_value(name).ok()?;
        let text: String = redis::from_redis_value(parts.pop_front()?).ok()?;
        let fields: Vec<u64> = text.split(':').map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let [capacity_per_s, concurrency, timeout_ms, network_ms, ends] = *fields else { return None };
        let ends = time(ends)?;
        instances.push((name, RegisteredInstance { capacity_per_s, concurrency, timeout_ms, network_ms, ends }));
    }
    instances.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let ShareReply { per_s, concurrency, total, members, processing_us, .. } = reply;
    Some(ServiceSeen { instances, total, given: (per_s, concurrency), members, processing_us, now })
}

fn time(millis: u64) -> Option<Time> {
    Time::from_millis(i64::try_from(millis).ok()?)
}
