//! Services in Redis: one call of `lua/register.lua` for a registration, and one of `lua/share.lua` for a turn.

use std::{collections::VecDeque, sync::Arc};

use redis::Value;
use weir_core::{
    limit::share::overtaken,
    ports::{Services, StoreError},
    service::{
        Holder, INTERVALS, InstanceSeen, LEASE_MS, MAX_INSTANCES, Registered, Registration, ServiceName, ServiceSeen,
        ShareReply, ShareTurn, Total,
    },
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions,
    request_error::RequestError, script::Script, stats::RedisStats,
};

/// What the keys of each script have behind the name of the registry.
const REGISTRY: &[&str] = &[""];
const SHARES: &[&str] = &["", ":members", ":ends"];

/// Services as one process of weir asks for them, over connections of its own.
pub struct RedisServices {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    holder: Holder,
}

/// The numbers that each reply of `lua/share.lua` begins with.
struct Numbers {
    rate: u64,
    concurrency: u64,
    total: Total,
    members: u64,
    starts_in_ms: u64,
    processing_us: u64,
    now: u64,
}

/// A call of one of the scripts, in a service's slot.
struct ServiceCall {
    script: Script,
    /// What its keys have behind the name of the registry.
    keys: &'static [&'static str],
    args: Vec<String>,
}

impl RedisServices {
    /// The services of a keyspace that [`super::open`] has verified, for a holder of shares: a name that no other process has or had.
    /// Connects at the first call.
    #[must_use]
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &super::Opened,
        holder: impl Into<Holder>,
    ) -> Self {
        Self {
            cluster: Cluster::new(Arc::clone(options), Arc::clone(stats)),
            keyspace: Arc::clone(&opened.keyspace),
            holder: holder.into(),
        }
    }

    /// Makes a call in a service's slot. `read` gives what is in the reply.
    async fn call<T>(
        &mut self,
        service: &ServiceName,
        call: ServiceCall,
        read: impl Fn(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let ServiceCall { script, keys, args } = call;
        let registry = self.keyspace.service_key(service.as_str());
        let keys = keys.iter().map(|ending| format!("{registry}{ending}")).collect();
        let slot = self.keyspace.slot(self.keyspace.service_shard(service.as_str()));
        let args = args.into_iter().map(String::into_bytes).collect();
        let request = Request::Call { script, keys, args, latest: None };
        let value = self.cluster.ask(slot, request).await.map_err(startup)?;
        let torn = || startup(RequestError::torn(&self.cluster.options().nodes[0], "the numbers of a service"));
        read(value).ok_or_else(torn)
    }

    async fn change(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        numbers: [u64; 5],
    ) -> Result<Registered, StoreError> {
        let numbers = numbers.into_iter().chain([MAX_INSTANCES]).map(|number| number.to_string());
        let args = std::iter::once(instance.to_string()).chain(numbers).collect();
        let call = ServiceCall { script: Script::Register, keys: REGISTRY, args };
        self.call(service, call, registered).await
    }
}

impl Services for RedisServices {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: &Registration,
    ) -> Result<Registered, StoreError> {
        let Registration { capacity_per_s, concurrency, timeout_ms, network_ms, interval_ms } = *registration;
        let lives_ms = interval_ms.saturating_mul(INTERVALS.unsigned_abs());
        self.change(service, instance, [lives_ms, capacity_per_s, concurrency, timeout_ms, network_ms]).await
    }

    async fn deregister(&mut self, service: &ServiceName, instance: &ServiceName) -> Result<bool, StoreError> {
        Ok(self.change(service, instance, [0; 5]).await?.taken)
    }

    async fn share(&mut self, service: &ServiceName, turn: &ShareTurn) -> Result<ShareReply, StoreError> {
        let reply = self.call(service, share_call(&self.holder, turn), share_reply).await?;
        reply.ok_or_else(overtaken)
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        let look = share_call(&self.holder, &ShareTurn::default());
        let seen = self.call(service, look, seen).await?;
        Ok((!seen.instances.is_empty()).then_some(seen))
    }
}

/// A call of `lua/share.lua`; a turn with the number 0 only reads.
fn share_call(holder: &Holder, turn: &ShareTurn) -> ServiceCall {
    let ShareTurn { number, rate, concurrency, took, taken_bytes, ends: _ } = turn;
    let uses = [rate.held, rate.wanted, concurrency.held, concurrency.wanted];
    let numbers = [*number].into_iter().chain(uses).chain([took.0, took.1, *taken_bytes, LEASE_MS.unsigned_abs()]);
    let head = std::iter::once(holder.to_string()).chain(numbers.map(|number| number.to_string()));
    let ends = turn.ends_by_holder().into_iter().flat_map(|(holder, ends)| [holder.to_string(), ends]);
    ServiceCall { script: Script::Share, keys: SHARES, args: head.chain(ends).collect() }
}

/// A reply of `lua/register.lua`.
fn registered(value: Value) -> Option<Registered> {
    let [taken, instances, per_s, concurrency, timeout_ms, _now] = redis::from_redis_value(value).ok()?;
    Some(Registered { taken: taken != 0, total: Total { instances, per_s, concurrency, timeout_ms } })
}

/// The parts of a reply of `lua/share.lua`, and its first numbers; `Some(None)`: it is empty.
fn parts(value: Value) -> Option<Option<(Numbers, VecDeque<Value>)>> {
    let Value::Array(parts) = value else { return None };
    if parts.is_empty() {
        return Some(None);
    }
    let mut parts = VecDeque::from(parts);
    let mut number = || redis::from_redis_value::<u64>(parts.pop_front()?).ok();
    let (rate, concurrency) = (number()?, number()?);
    let total = Total { instances: number()?, per_s: number()?, concurrency: number()?, timeout_ms: number()? };
    let (members, starts_in_ms, processing_us, now) = (number()?, number()?, number()?, number()?);
    Some(Some((Numbers { rate, concurrency, total, members, starts_in_ms, processing_us, now }, parts)))
}

/// The reply to a turn; `Some(None)`: a later one was taken before.
fn share_reply(value: Value) -> Option<Option<ShareReply>> {
    let Some((numbers, mut parts)) = parts(value)? else { return Some(None) };
    let Numbers { rate, concurrency, total, members, starts_in_ms, processing_us, .. } = numbers;
    let ends = redis::from_redis_value(parts.pop_front()?).ok()?;
    Some(Some(ShareReply { per_s: rate, concurrency, total, members, starts_in_ms, processing_us, ends }))
}

/// The reply to one who looks.
fn seen(value: Value) -> Option<ServiceSeen> {
    let (numbers, mut parts) = parts(value)??;
    parts.pop_front()?;
    let mut instances = Vec::with_capacity(parts.len() / 2);
    while let Some(name) = parts.pop_front() {
        let name: String = redis::from_redis_value(name).ok()?;
        let text: String = redis::from_redis_value(parts.pop_front()?).ok()?;
        let fields: Vec<u64> = text.split(':').map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let [capacity_per_s, concurrency, timeout_ms, network_ms, ends] = *fields else { return None };
        let lives_for_ms = ends.saturating_sub(numbers.now);
        instances.push(InstanceSeen { name, capacity_per_s, concurrency, timeout_ms, network_ms, lives_for_ms });
    }
    instances.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let given = (numbers.rate, numbers.concurrency);
    let Numbers { total, members, processing_us, .. } = numbers;
    Some(ServiceSeen { instances, total, given, members, processing_us })
}
