//! The arithmetic: one line per result, with its formula. A formula names flags, other lines and measured constants.

use std::borrow::Cow;

use serde::Serialize;
use weir_core::{
    history::decide::Scope,
    limit::{
        budget::{Budget, BudgetSpan},
        route::Route,
    },
    policy::{Cap, CapWindow, Caps, Policy},
};

use super::{
    MOST_SENDS, Measured, PlanArgs,
    quantity::{Quantity, Unit},
};

/// The share of a Redis node's memory to fill: the rest is for buffers, and for copies while it saves.
const MEMORY_SHARE: f64 = 0.6;
/// The share of a Redis node's one core to use at the peak.
const REDIS_LOAD: f64 = 0.6;
/// The share of a lane's rate to use at the peak.
const LANE_LOAD: f64 = 0.7;
/// The fewest primaries of a Redis Cluster.
const FEWEST_PRIMARIES: f64 = 3.0;
/// The default of `worker.batch`.
const BATCH: f64 = 10_000.0;
/// Round trips to the brokers in one commit, by Kafka's protocol.
const COMMIT_ROUND_TRIPS: f64 = 5.0;
/// Partitions per lane of a new topic: adding some later moves users to others, and out of order.
const PARTITIONS_PER_LANE: f64 = 2.0;
/// Copies that Kafka keeps of a record.
const REPLICATION: f64 = 3.0;
/// Bytes of a total of a campaign in Redis, at most, with the lease of one instance (tests/redis/budgets/memory.rs).
const TOTAL_BYTES: f64 = 1_100.0;
/// The default of `redis.max_totals`.
const MAX_TOTALS: f64 = 100_000.0;
/// Cores that run `weir rebuild`.
const REBUILD_CORES: f64 = 4.0;

/// One result: `id` is its name for programs, `name` for people.
#[derive(Debug, Serialize)]
pub(super) struct PlanLine {
    pub(super) section: Cow<'static, str>,
    id: &'static str,
    pub(super) name: &'static str,
    value: f64,
    unit: Unit,
    pub(super) text: String,
    pub(super) formula: String,
}

/// All results, and what the reader should do besides.
#[derive(Debug)]
pub(super) struct Estimate {
    pub(super) lines: Vec<PlanLine>,
    pub(super) remarks: Vec<String>,
    section: Cow<'static, str>,
}

/// What the estimate takes from a policy.
#[derive(Debug)]
pub(super) struct PolicyFigures {
    /// The most caps of a segment.
    pub(super) caps: f64,
    /// The most sends of one user that it allows within a history, and by which cap. `None` if some segment has no cap
    /// on all sends.
    pub(super) most_sends: Option<(f64, String)>,
    /// The routes that have a rate.
    pub(super) routes: Vec<RouteFigures>,
    /// The budgets of which each campaign has a total.
    pub(super) totals: f64,
}

#[derive(Debug)]
pub(super) struct RouteFigures {
    pub(super) name: String,
    pub(super) rate: f64,
    pub(super) network_s: f64,
}

impl PolicyFigures {
    pub(super) fn of(policy: &Policy, history_ms: i64) -> Self {
        let segments = policy.segments.iter().map(|(name, caps)| (name.as_str(), caps));
        let all = segments.chain([("[default]", &policy.default)]);
        let caps = all.clone().map(|(_, caps)| caps.list().len()).max().unwrap_or(0) as f64;
        let bounds = all.map(|(name, caps)| most_of(name, caps, history_ms)).collect::<Option<Vec<_>>>();
        let most_sends = bounds.and_then(|bounds| bounds.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)));
        let route = |route: &Route| {
            let (name, network_s) = (route.name.to_string(), route.network_ms as f64 / 1000.0);
            route.rate.map(|rate| RouteFigures { name, rate: rate as f64, network_s })
        };
        let is_total = |budget: &&Budget| budget.is_of_each_campaign() && budget.span == BudgetSpan::Total;
        let totals = policy.budgets.iter().filter(is_total).count() as f64;
        Self { caps, most_sends, routes: policy.routes.iter().filter_map(route).collect(), totals }
    }
}

fn most_of(segment: &str, caps: &Caps, history_ms: i64) -> Option<(f64, String)> {
    let bounds = caps.list().iter().filter(|cap| cap.filter.is_everything() && cap.scope == Scope::Every).map(|cap| {
        let windows = windows_in(cap, history_ms);
        let Cap { name, limit, .. } = cap;
        (f64::from(*limit) * windows, format!("{segment}: {name} {limit} x {windows}"))
    });
    bounds.min_by(|one, other| one.0.total_cmp(&other.0))
}

/// In how many windows of a cap a history's sends may lie: each allows the limit again.
fn windows_in(cap: &Cap, history_ms: i64) -> f64 {
    let (length_ms, begun) = match &cap.window {
        CapWindow::Sliding { length_ms, .. } => (*length_ms, 0),
        // The history usually begins in the middle of a period. The shortest month has 28 days.
        CapWindow::Per(period) => (period.shortest_ms(), 1),
    };
    let (history_ms, length_ms) = (history_ms.max(1), length_ms.max(1));
    let windows = history_ms / length_ms + i64::from(history_ms % length_ms > 0);
    (windows + begun) as f64
}

/// What the sections take from one another.
struct Redis {
    sends: f64,
    decision_us: f64,
    primaries: f64,
}

impl Estimate {
    /// Estimates. An error reports inputs that contradict each other.
    pub(super) fn new(inputs: &PlanArgs, policy: Option<&PolicyFigures>, measured: &Measured) -> Result<Self, String> {
        if inputs.peak < inputs.rate {
            let PlanArgs { peak, rate, .. } = inputs;
            return Err(format!("--peak is {peak} and --rate {rate}: give a peak that is not below the average"));
        }
        let mut plan = Self { lines: Vec::new(), remarks: Vec::new(), section: Cow::Borrowed("Redis") };
        let redis = plan.redis(inputs, policy, measured)?;
        plan.section = Cow::Borrowed("Workers");
        let lanes = plan.workers(inputs, measured);
        plan.section = Cow::Borrowed("Kafka");
        plan.kafka(inputs, lanes, measured);
        plan.section = Cow::Borrowed("Time");
        plan.time(inputs, &redis, lanes, measured)?;
        for route in policy.iter().flat_map(|policy| &policy.routes) {
            plan.section = Cow::Owned(format!("Route {}", route.name));
            plan.route(inputs, route);
        }
        Ok(plan)
    }

    /// The value of a line; `None` if there is no such line.
    #[cfg(test)]
    pub(super) fn value(&self, id: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.id == id).map(|line| line.value)
    }

    fn line(
        &mut self,
        (id, name): (&'static str, &'static str),
        quantity: Quantity,
        formula: impl Into<String>,
    ) -> f64 {
        let Quantity { value, unit } = quantity;
        let (section, text, formula) = (self.section.clone(), unit.show(value), formula.into());
        self.lines.push(PlanLine { section, id, name, value, unit, text, formula });
        value
    }

    fn redis(
        &mut self,
        inputs: &PlanArgs,
        policy: Option<&PolicyFigures>,
        measured: &Measured,
    ) -> Result<Redis, String> {
        use Unit::{Bytes, Cores, Count, Micros};
        let PlanArgs { users, peak, node_memory, .. } = *inputs;
        let replicas = f64::from(inputs.replicas);
        let (sends, formula) = sends_per_user(inputs, policy)?;
        self.line(("sends_a_user", "sends per user"), Count.of(sends), formula);
        // Below one send: so many users have one.
        let user_bytes = measured.user_bytes.at(sends) * sends.min(1.0);
        self.line(("redis_user_bytes", "memory per user"), Bytes.of(user_bytes), "measured, for that many sends");
        // Below 1, a ratio says that the servers were swapped out.
        let resident = users * user_bytes * measured.resident_ratio.max(1.0);
        let formula = "--users x memory per user x fragmentation (measured)";
        self.line(("redis_resident", "histories"), Bytes.of(resident), formula);
        let caps = policy.map_or(2.0, |policy| policy.caps);
        let more_caps = (measured.redis_us_by_caps.at(caps) - measured.redis_us_by_caps.at(2.0)).max(0.0);
        let decision_us = measured.redis_us_by_sends.at(sends) + more_caps;
        let formula = format!("measured, for that many sends and {caps} caps");
        self.line(("redis_decision_us", "CPU per decision"), Micros.of(decision_us), formula);
        let cores = self.line(("redis_cores", "CPU"), Cores.of(peak * decision_us / 1e6), "--peak x CPU per decision");
        let by_cpu = (cores / REDIS_LOAD).ceil().max(1.0);
        self.line(("redis_primaries_by_cpu", "primaries for CPU"), Count.of(by_cpu), "CPU / 60% of one core per node");
        let resident = resident + self.totals(inputs, policy);
        let by_memory = (resident / (node_memory * MEMORY_SHARE - measured.empty_node_bytes)).ceil().max(1.0);
        let formula = "histories and totals / (60% of --node-memory - an empty server)";
        self.line(("redis_primaries_by_memory", "primaries for memory"), Count.of(by_memory), formula);
        let needed = by_memory.max(by_cpu);
        // A cluster has at least three; one server is no cluster.
        let primaries = if needed > 1.0 { needed.max(FEWEST_PRIMARIES) } else { needed };
        self.line(("redis_primaries", "primaries"), Count.of(primaries), "the larger one; a cluster has at least 3");
        self.line(("redis_nodes", "nodes"), Count.of(primaries * (1.0 + replicas)), "primaries x (1 + --replicas)");
        let all = (resident + primaries * measured.empty_node_bytes) * (1.0 + replicas);
        let formula = "(histories and totals + primaries x an empty server) x (1 + --replicas)";
        self.line(("redis_all_memory", "memory of all nodes"), Bytes.of(all), formula);
        Ok(Redis { sends: users * sends, decision_us, primaries })
    }

    /// The bytes of totals of campaigns; a line where there are any.
    fn totals(&mut self, inputs: &PlanArgs, policy: Option<&PolicyFigures>) -> f64 {
        let totals = inputs.campaigns * policy.map_or(0.0, |policy| policy.totals);
        if totals == 0.0 {
            return 0.0;
        }
        let formula =
            "--campaigns x totals with each (--policy), at most 100,000 (redis.max_totals), x 1.1 kB (one lease)";
        let bytes = totals.min(MAX_TOTALS) * TOTAL_BYTES;
        self.line(("redis_totals", "totals of campaigns"), Unit::Bytes.of(bytes), formula)
    }

    fn workers(&mut self, inputs: &PlanArgs, measured: &Measured) -> f64 {
        use Unit::{Cores, Count, PerSecond};
        let peak = inputs.peak;
        let lane_per_s = lane_rate(inputs, measured);
        let formula = "measured, at most 10,000 intents per 5 x --round-trip (a commit)";
        self.line(("lane_per_s", "rate of a lane"), PerSecond.of(lane_per_s), formula);
        let needed = (peak / (lane_per_s * LANE_LOAD)).ceil().max(1.0);
        self.line(("lanes_needed", "lanes needed"), Count.of(needed), "--peak / 70% of the rate of a lane");
        let lanes = needed.min(inputs.partitions.map_or(needed, f64::from));
        self.line(("lanes", "lanes"), Count.of(lanes), "lanes needed, at most --partitions");
        let instances = (lanes / f64::from(inputs.lanes)).ceil();
        self.line(("instances", "instances"), Count.of(instances), "lanes / --lanes");
        let cores = peak * measured.worker_us / 1e6;
        self.line(("worker_cores", "CPU"), Cores.of(cores), "--peak x CPU per intent (measured)");
        if lanes < needed {
            self.remarks.push(format!(
                "{lanes} partitions feed at most {lanes} lanes, and the peak needs {needed}: add partitions before there is \
                 traffic (users change partitions), or accept a queue at the peak."
            ));
        }
        lanes
    }

    fn kafka(&mut self, inputs: &PlanArgs, lanes: f64, measured: &Measured) {
        use Unit::{Bytes, BytesPerSecond, Count};
        let PlanArgs { rate, peak, approved, intent_size, .. } = *inputs;
        let partitions = inputs.partitions.map_or(lanes * PARTITIONS_PER_LANE, f64::from);
        let formula = "--partitions, else 2 x lanes: room to grow without moving users";
        self.line(("partitions", "partitions of intents"), Count.of(partitions), formula);
        self.line(("kafka_read", "Kafka to workers"), BytesPerSecond.of(peak * intent_size), "--peak x --intent-size");
        let extra = approved * measured.headers_bytes + (1.0 - approved) * measured.envelope_bytes;
        let formula = "--peak x (--intent-size + header or envelope (measured))";
        self.line(("kafka_write", "workers to Kafka"), BytesPerSecond.of(peak * (intent_size + extra)), formula);
        let disk = rate * approved * (intent_size + measured.headers_bytes) * inputs.history * REPLICATION;
        let formula = "--rate x --approved-share x record x --history x 3 copies, uncompressed; weir rebuild reads it";
        self.line(("approved_disk", "approved topic, on disk"), Bytes.of(disk), formula);
    }

    fn time(&mut self, inputs: &PlanArgs, redis: &Redis, lanes: f64, measured: &Measured) -> Result<(), String> {
        use Unit::{Count, PerSecond, Seconds};
        let PlanArgs { rate, blast, round_trip, delivery_timeout, processing, .. } = *inputs;
        let redis_per_s = redis.primaries * 1e6 / redis.decision_us;
        let drain = redis_per_s.min(lanes * lane_rate(inputs, measured));
        let formula = "all lanes busy, at most primaries / CPU per decision";
        self.line(("drain_per_s", "highest rate"), PerSecond.of(drain), formula);
        if drain > rate {
            let formula = "--blast / (highest rate - --rate)";
            self.line(("blast", "a blast takes"), Seconds.of(blast / (drain - rate)), formula);
        } else {
            self.remarks.push("The highest rate is not above --rate: the queue grows without end.".to_owned());
        }
        let rebuild_per_s = redis_per_s.min(REBUILD_CORES * 1e6 / measured.rebuild_us);
        let formula = "--users x sends per user / 4 cores (measured per send), at most primaries / CPU per decision";
        self.line(("rebuild", "weir rebuild takes"), Seconds.of(redis.sends / rebuild_per_s), formula);
        let wait = delivery_timeout - 2.0 * round_trip - processing;
        let formula = "--delivery-timeout - 2 x --round-trip - --processing";
        if wait <= 0.0 {
            return Err(format!("--delivery-timeout leaves no time to wait in a queue: {formula} must be above 0"));
        }
        self.line(("queue_wait", "longest wait in the queue"), Seconds.of(wait), formula);
        let queue = (wait * drain).floor();
        self.line(("queue_size", "longest queue"), Count.of(queue), "longest wait x highest rate; later ones are late");
        Ok(())
    }

    fn route(&mut self, inputs: &PlanArgs, route: &RouteFigures) {
        use Unit::{Count, PerSecond, Seconds};
        self.line(("route_rate", "rate"), PerSecond.of(route.rate), "the policy's");
        let wait = inputs.delivery_timeout - 2.0 * route.network_s - inputs.processing;
        let formula = "--delivery-timeout - 2 x the route's network - --processing";
        let wait = self.line(("route_wait", "longest wait"), Seconds.of(wait.max(0.0)), formula);
        let longest = (wait * route.rate).floor();
        self.line(("route_queue", "longest queue"), Count.of(longest), "longest wait x rate; later ones are late");
        self.line(("route_blast", "a blast takes"), Seconds.of(inputs.blast / route.rate), "--blast / rate");
        if wait == 0.0 {
            let name = &route.name;
            self.remarks.push(format!("Route {name}: --delivery-timeout leaves no time to wait: {formula}."));
        }
    }
}

/// A lane commits once per batch.
fn lane_rate(inputs: &PlanArgs, measured: &Measured) -> f64 {
    // Without a round trip this is infinite, and the measured rate holds.
    measured.lane_per_s.min(BATCH / (COMMIT_ROUND_TRIPS * inputs.round_trip))
}

fn sends_per_user(inputs: &PlanArgs, policy: Option<&PolicyFigures>) -> Result<(f64, String), String> {
    let by_rate = inputs.rate * inputs.approved * inputs.history / inputs.users;
    let most = policy.and_then(|policy| policy.most_sends.as_ref());
    let (sends, formula) = match (inputs.sends, most) {
        (Some(sends), _) => (sends, "--sends".to_owned()),
        (None, Some((most, cap))) if *most < by_rate => {
            (*most, format!("the policy's limit ({cap}), less than the rate gives"))
        }
        (None, _) => (by_rate, "--rate x --approved-share x --history / --users".to_owned()),
    };
    if sends > MOST_SENDS {
        return Err(format!(
            "--rate gives {sends:.0} sends per user ({formula}); weir estimates at most {MOST_SENDS}: check --users, --rate \
             and --history, or give --policy or --sends"
        ));
    }
    Ok((sends, formula))
}
