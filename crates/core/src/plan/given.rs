//! What is planned for, and which of it can be.

use super::super::{
    decide::Scope,
    policy::{Cap, CapWindow, Caps, Policy},
};

/// What is planned for. `check` says which values can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// Users with a history.
    pub users: f64,
    /// Sends of a user in the history; `None`: as many as the rate makes and the policy lets through.
    pub sends: Option<f64>,
    /// Intents a second, over days.
    pub rate: f64,
    /// Intents a second at the peak.
    pub peak: f64,
    /// The share of them that is approved.
    pub approved: f64,
    /// The most caps that a decision is held to.
    pub caps: f64,
    /// Segments of the set.
    pub segments: f64,
    /// The most sends of a user in the history that the policy lets through, where it bounds them.
    pub most_sends: Option<Most>,
    /// How far back the history reaches, in seconds.
    pub history_s: f64,
    /// Replicas of a Redis primary.
    pub replicas: f64,
    /// Memory of a Redis node, in bytes.
    pub node_bytes: f64,
    /// The share of it that is filled at most.
    pub memory_share: f64,
    /// The share of a node's one core that is used at the peak.
    pub redis_load: f64,
    /// Shards of the keyspace.
    pub shards: f64,
    /// The share of a lane's rate that is used at the peak.
    pub lane_load: f64,
    /// Lanes of one instance.
    pub lanes_an_instance: f64,
    /// Partitions of the intents topic, where it is there already.
    pub partitions: Option<f64>,
    /// Intents of a batch.
    pub batch: f64,
    /// Bytes of an intent's key.
    pub key_bytes: f64,
    /// Bytes of an intent.
    pub value_bytes: f64,
    /// Copies that Kafka keeps.
    pub replication: f64,
    /// Round trip to the brokers, in seconds.
    pub round_trip_s: f64,
    /// After this long an intent must be delivered, in seconds.
    pub timeout_s: f64,
    /// What weir and delivery take for one intent of it, in seconds.
    pub processing_s: f64,
    /// Intents of a blast.
    pub blast: f64,
    /// Cores for a rebuild.
    pub rebuild_cores: f64,
}

/// The most sends that a policy lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct Most {
    /// How many.
    pub sends: f64,
    /// By which caps: `active: daily 4 x 8`.
    pub because: String,
}

/// Something is given that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadGiven(pub String);

/// What is nearly nothing; with nothing at all there is nothing to plan.
const LEAST: f64 = 0.001;
/// The most sends a user, far beyond what anybody is sent within a history, and what measurements bear out.
pub(super) const MOST_SENDS: f64 = 1e4;

impl Given {
    /// Bounds of each number. The upper ones are far beyond what exists; they keep every result a number.
    pub(super) fn check(&self) -> Result<(), BadGiven> {
        let optional = |name, value: Option<f64>, range| value.map_or((name, 1.0, (0.0, 1.0)), |v| (name, v, range));
        let bounds = [
            ("users", self.users, (1.0, 1e10)),
            optional("sends", self.sends, (LEAST, MOST_SENDS)),
            ("rate", self.rate, (LEAST, 1e9)),
            ("peak", self.peak, (LEAST, 1e9)),
            ("approved", self.approved, (LEAST, 1.0)),
            ("caps", self.caps, (0.0, 255.0)),
            ("segments", self.segments, (0.0, 1e5)),
            ("history", self.history_s, (60.0, 3660.0 * 86_400.0)),
            ("replicas", self.replicas, (0.0, 5.0)),
            ("node-memory", self.node_bytes, (64.0 * 1024.0 * 1024.0, 1e14)),
            ("memory-share", self.memory_share, (0.01, 1.0)),
            ("redis-load", self.redis_load, (0.01, 1.0)),
            ("shards", self.shards, (1.0, 16_384.0)),
            ("lane-load", self.lane_load, (0.01, 1.0)),
            ("lanes", self.lanes_an_instance, (1.0, 256.0)),
            optional("partitions", self.partitions, (1.0, 1e6)),
            ("batch", self.batch, (1.0, 100_000.0)),
            ("key-size", self.key_bytes, (0.0, 1024.0 * 1024.0)),
            ("intent-size", self.value_bytes, (1.0, 1024.0 * 1024.0)),
            ("replication", self.replication, (1.0, 10.0)),
            ("round-trip", self.round_trip_s, (0.0, 60.0)),
            ("delivery-timeout", self.timeout_s, (0.001, 365.0 * 86_400.0)),
            ("processing", self.processing_s, (0.0, 86_400.0)),
            ("blast", self.blast, (1.0, 1e12)),
            ("rebuild-cores", self.rebuild_cores, (1.0, 1e5)),
        ];
        for (name, value, (least, most)) in bounds {
            if !(least..=most).contains(&value) {
                return Err(BadGiven(format!("--{name} is {value}; it can be from {least} to {most}")));
            }
        }
        if self.peak < self.rate {
            let Self { peak, rate, .. } = self;
            return Err(BadGiven(format!("--peak is {peak} and --rate {rate}: a peak is no less than the average")));
        }
        Ok(())
    }
}

/// The most sends of one user that a policy lets through within a history: of all segments the one that lets most.
/// `None` where one of them bounds nothing for all sends.
#[must_use]
pub fn most_sends(policy: &Policy, history_ms: i64) -> Option<Most> {
    let segments = policy.segments.iter().map(|(name, caps)| (name.as_str(), caps));
    let all = segments.chain([("[default]", &policy.default)]);
    let bounds = all.map(|(name, caps)| most_of(name, caps, history_ms)).collect::<Option<Vec<_>>>()?;
    bounds.into_iter().reduce(|most, other| if other.sends > most.sends { other } else { most })
}

fn most_of(segment: &str, caps: &Caps, history_ms: i64) -> Option<Most> {
    let bounds = caps.list().iter().filter(|cap| cap.filter.is_everything() && cap.scope == Scope::Every).map(|cap| {
        let windows = windows_in(cap, history_ms);
        let Cap { name, limit, .. } = cap;
        Most { sends: f64::from(*limit) * windows, because: format!("{segment}: {name} {limit} x {windows}") }
    });
    bounds.reduce(|least, other| if other.sends < least.sends { other } else { least })
}

/// In how many windows of a cap a history's sends may lie: each lets the limit through anew.
fn windows_in(cap: &Cap, history_ms: i64) -> f64 {
    let (length_ms, begun) = match &cap.window {
        CapWindow::Sliding { length_ms, .. } => (*length_ms, 0),
        // The history begins in the middle of a period, as a rule. The shortest month has 28 days.
        CapWindow::Per(period) => (period.shortest_ms(), 1),
    };
    let windows = history_ms.max(1).div_euclid(length_ms.max(1)) + i64::from(history_ms % length_ms.max(1) > 0);
    (windows + begun) as f64
}
