//! How a worker is doing, at a glance: what the page shows. Totals only; nothing of any user.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use serde::Serialize;
use weir_core::{
    basis::time::Time,
    decision::verdict::SuppressReason,
    intent::dead_letter::DeadLetterReason,
    policy::{Mode, Policy},
    ports::NodeHealth,
    segment::SegmentSet,
};
use weir_worker::{refresh::Refreshed, status::LaneStatus};

use crate::{
    deferred::{DeferredCount, DeferredIntents},
    limits::LimitsDesk,
    metrics::Metrics,
};

/// The most caps and partitions that are told: those that deny most, and lag most.
const MOST_ROWS: usize = 100;

/// Where a worker's vitals come from.
#[derive(Clone)]
pub struct Vitals {
    /// Counts and lag.
    pub metrics: Arc<Metrics>,
    /// The segments in force.
    pub segments: Arc<Refreshed<SegmentSet>>,
    /// The policy in force.
    pub policy: Arc<Refreshed<Policy>>,
    /// The lanes.
    pub lanes: Vec<Arc<LaneStatus>>,
    /// The nodes of the store.
    pub nodes: Nodes,
    /// The deferred intents, where intents can be deferred.
    pub deferred: Option<DeferredCount>,
    /// The limits that instances share.
    pub limits: Arc<LimitsDesk>,
}

/// A look at a worker. Counts are totals since its start.
#[derive(Debug, Clone, Serialize)]
pub struct Look {
    /// The clock.
    pub at: Time,
    /// weir's version.
    pub weir: &'static str,
    /// Decisions by verdict and reason; those that never came are left out.
    pub decisions: Vec<Decided>,
    /// Dead letters by reason; those that never came are left out.
    pub dead_letters: Vec<ReasonCount>,
    /// Caps by denials, most first.
    pub caps: Vec<CapDenials>,
    /// Records not yet decided and committed, by partition, those that lag most.
    pub lag: Vec<Lag>,
    /// The lag of all partitions together.
    pub lag_total: i64,
    /// How many partitions this process reads.
    pub partitions: usize,
    /// The segments in force.
    pub segments: SegmentsInForce,
    /// The policy in force.
    pub policy: PolicyInForce,
    /// Lanes that have their partitions.
    pub lanes_ready: usize,
    /// All lanes.
    pub lanes: usize,
    /// The nodes of the store, none where it is embedded.
    pub nodes: Vec<NodeHealth>,
    /// How long ago they were looked at, in seconds; `None` where nobody looks.
    pub nodes_age_s: Option<f64>,
    /// The deferred intents; `None` where nothing can be deferred, and before they are counted.
    pub deferred: Option<DeferredIntents>,
}

/// How many intents were decided so.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "each is the metric's label of its name, and the count")]
pub struct Decided {
    pub verdict: &'static str,
    pub reason: &'static str,
    pub count: u64,
}

/// How many there were of a reason.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "each is the metric's label of its name, and the count")]
pub struct ReasonCount {
    pub reason: &'static str,
    pub count: u64,
}

/// What a cap denied.
#[derive(Debug, Clone, Serialize)]
pub struct CapDenials {
    /// The segment of the users; `None` for users in none.
    pub segment: Option<String>,
    /// The cap's name.
    pub cap: String,
    /// Its limit and window, in words: `2 in any 24h`.
    pub rule: String,
    /// How many intents.
    pub count: u64,
}

/// How far a partition is behind.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "a partition, and its records that are not done")]
pub struct Lag {
    pub partition: i32,
    pub records: i64,
}

/// The segments in force.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentsInForce {
    /// Version and age.
    #[serde(flatten)]
    pub version: InForce,
    /// Each segment's name and users, in the manifest's order.
    pub sizes: Vec<SegmentSize>,
}

/// How many users a segment has.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the segment's name, and its users")]
pub struct SegmentSize {
    pub name: String,
    pub users: u64,
}

/// The policy in force.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyInForce {
    /// Version and age.
    #[serde(flatten)]
    pub version: InForce,
    /// Whether verdicts are only reported.
    pub shadow: bool,
}

/// What is in force, and since when.
#[derive(Debug, Clone, Serialize)]
pub struct InForce {
    /// Its version.
    pub version: String,
    /// Seconds since it was taken up.
    pub age_s: f64,
    /// Seconds since its source last gave it or said that there is no newer one.
    pub confirmed_s: f64,
    /// Whether the last read of the source failed or was refused; the log says why.
    pub refused: bool,
}

/// The nodes of a store, as somebody last found them; written by who looks, read by the page.
#[derive(Debug, Clone, Default)]
pub struct Nodes(Arc<ArcSwap<NodesFound>>);

/// When the nodes were looked at, and how each was; `None` before the first look.
type NodesFound = Option<(Instant, Vec<NodeHealth>)>;

impl Nodes {
    /// Whether no node is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.load().as_ref().as_ref().is_none_or(|(_, nodes)| nodes.is_empty())
    }

    /// Notes what a look found.
    pub fn set(&self, nodes: Vec<NodeHealth>) {
        self.0.store(Arc::new(Some((Instant::now(), nodes))));
    }
}

impl Vitals {
    /// Looks.
    #[must_use]
    pub fn look(&self, at: Time) -> Look {
        let (set, policy) = (self.segments.current(), self.policy.current());
        let (lag, nodes) = (self.metrics.lags(), self.nodes.0.load());
        let sizes = set
            .segments()
            .iter()
            .map(|segment| SegmentSize { name: segment.name.clone(), users: segment.members.len() });
        Look {
            at,
            weir: env!("CARGO_PKG_VERSION"),
            decisions: decisions(&self.metrics),
            dead_letters: dead_letters(&self.metrics),
            caps: caps(&self.metrics, &set, &policy),
            lag_total: lag.iter().map(|(_, records)| records).sum(),
            partitions: lag.len(),
            lag: most_lag(lag),
            segments: SegmentsInForce { version: in_force(set.version(), &self.segments), sizes: sizes.collect() },
            policy: PolicyInForce {
                version: in_force(&policy.version, &self.policy),
                shadow: policy.mode == Mode::Shadow,
            },
            lanes_ready: self.lanes.iter().filter(|lane| lane.is_assigned()).count(),
            lanes: self.lanes.len(),
            nodes: nodes.as_ref().as_ref().map(|(_, nodes)| nodes.clone()).unwrap_or_default(),
            nodes_age_s: nodes.as_ref().as_ref().map(|(at, _)| at.elapsed().as_secs_f64()),
            deferred: self.deferred.as_ref().and_then(|counted| counted.load().as_deref().cloned()),
        }
    }
}

fn decisions(metrics: &Metrics) -> Vec<Decided> {
    let approved = ["counted", "not-counted"].map(|reason| ("approved", reason));
    let denied = ["suppressed", "shadow-suppressed"]
        .into_iter()
        .flat_map(|verdict| SuppressReason::ALL.iter().map(move |reason| (verdict, reason.as_str())));
    let all = approved.into_iter().chain(denied);
    let all = all.map(|(verdict, reason)| Decided { verdict, reason, count: metrics.decided(verdict, reason) });
    all.filter(|decided| decided.count > 0).collect()
}

fn dead_letters(metrics: &Metrics) -> Vec<ReasonCount> {
    let all = DeadLetterReason::ALL.iter().map(|reason| reason.as_str());
    let all = all.map(|reason| ReasonCount { reason, count: metrics.dead_lettered(reason) });
    all.filter(|counted| counted.count > 0).collect()
}

/// The caps of the policy in force that have denied something.
fn caps(metrics: &Metrics, set: &SegmentSet, policy: &Policy) -> Vec<CapDenials> {
    let segments = set.segments().iter().map(|segment| Some(segment.name.as_str())).chain([None]);
    let caps = segments.flat_map(|segment| policy.caps_of(segment).list().iter().map(move |cap| (segment, cap)));
    let mut denials: Vec<CapDenials> = caps
        .map(|(segment, cap)| CapDenials {
            segment: segment.map(str::to_owned),
            cap: cap.name.to_string(),
            rule: format!("{} {}", cap.limit, cap.window),
            count: metrics.denied(segment, &cap.name),
        })
        .filter(|denials| denials.count > 0)
        .collect();
    denials.sort_by_key(|denials| std::cmp::Reverse(denials.count));
    denials.truncate(MOST_ROWS);
    denials
}

/// The partitions that lag most, in their order.
fn most_lag(mut lags: Vec<(i32, i64)>) -> Vec<Lag> {
    lags.sort_by_key(|(_, records)| std::cmp::Reverse(*records));
    lags.truncate(MOST_ROWS);
    lags.sort_unstable();
    lags.into_iter().map(|(partition, records)| Lag { partition, records }).collect()
}

fn in_force<T>(version: &str, of: &Refreshed<T>) -> InForce {
    let freshness = of.freshness();
    InForce {
        version: version.to_owned(),
        age_s: freshness.loaded_at.elapsed().as_secs_f64(),
        confirmed_s: freshness.confirmed_at.elapsed().as_secs_f64(),
        refused: of.last_error().is_some(),
    }
}
