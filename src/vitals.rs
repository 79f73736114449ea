//! How a worker is doing, at a glance: what the page shows. Totals only; nothing of any user.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use weir_core::{
    decision::verdict::SuppressReason,
    intent::dead_letter::DeadLetterReason,
    policy::{Cap, Mode, Policy},
    ports::{Clock as _, NodeHealth},
    segment::{Segment, SegmentSet},
};
use weir_worker::{clock::SystemClock, refresh::Refreshed, status::LaneStatus};

use crate::{deferred::DeferredCount, http::Degradation, limits::LimitsDesk, metrics::Metrics};

/// The most caps and partitions that are told: those that deny most, and lag most.
const MOST_ROWS: usize = 100;

/// Where a worker's vitals come from.
#[derive(Clone)]
pub struct Vitals {
    pub metrics: Arc<Metrics>,
    pub segments: Arc<Refreshed<SegmentSet>>,
    pub policy: Arc<Refreshed<Policy>>,
    pub lanes: Vec<Arc<LaneStatus>>,
    pub nodes: Nodes,
    /// The deferred intents, where intents can be deferred.
    pub deferred: Option<DeferredCount>,
    pub limits: Arc<LimitsDesk>,
}

/// The nodes of a store, as somebody last found them; written by who looks, read by the page.
#[derive(Debug, Clone, Default)]
pub struct Nodes(Arc<ArcSwap<NodesFound>>);

/// When the nodes were looked at, and how each was; `None` before the first look.
type NodesFound = Option<(Instant, Vec<NodeHealth>)>;

impl Nodes {
    pub fn is_empty(&self) -> bool {
        self.0.load().as_ref().as_ref().is_none_or(|(_, nodes)| nodes.is_empty())
    }

    /// Notes what a look found.
    pub fn set(&self, nodes: Vec<NodeHealth>) {
        self.0.store(Arc::new(Some((Instant::now(), nodes))));
    }
}

impl Vitals {
    /// A look at a worker that waits for this before it is ready, and finds this degraded. Counts are totals since its start.
    pub async fn look(&self, waiting: Vec<String>, degraded: Vec<Degradation>) -> Value {
        // Before the clock is read and anything is counted, for rates are made of both: a ledger that is silent keeps them waiting for a second.
        let (limits, omitted) = self.limits.rows().await;
        let (set, policy) = (self.segments.current(), self.policy.current());
        let (lag, nodes) = (self.metrics.lags(), self.nodes.0.load());
        let nodes = nodes.as_ref().as_ref();
        let size = |segment: &Segment| json!({"name": segment.name, "users": segment.members.len()});
        let sizes: Value = set.segments().iter().map(size).collect();
        json!({
            "at": SystemClock.now(),
            "weir": env!("CARGO_PKG_VERSION"),
            "decisions": decisions(&self.metrics),
            "dead_letters": dead_letters(&self.metrics),
            "caps": caps(&self.metrics, &set, &policy),
            "lag_total": lag.iter().map(|(_, records)| records).sum::<i64>(),
            // How many this process reads.
            "partitions": lag.len(),
            "lag": most_lag(lag),
            "segments": in_force(set.version(), &self.segments, ("sizes", sizes)),
            "policy": in_force(&policy.version, &self.policy, ("shadow", json!(policy.mode == Mode::Shadow))),
            "lanes_ready": self.lanes.iter().filter(|lane| lane.is_assigned()).count(),
            "lanes": self.lanes.len(),
            "nodes": nodes.map(|(_, nodes)| nodes.as_slice()).unwrap_or_default(),
            // How long ago they were looked at; null where nobody looks.
            "nodes_age_s": nodes.map(|(at, _)| at.elapsed().as_secs_f64()),
            "deferred": self.deferred.as_ref().and_then(|counted| counted.load_full()).as_deref(),
            "waiting": waiting,
            "degraded": degraded,
            "limits": limits,
            "omitted": omitted,
        })
    }
}

/// Decisions by verdict and reason; those that never came are left out.
fn decisions(metrics: &Metrics) -> Value {
    let approved = ["counted", "not-counted"].map(|reason| ("approved", reason));
    let denied = ["suppressed", "shadow-suppressed"]
        .into_iter()
        .flat_map(|verdict| SuppressReason::ALL.iter().map(move |reason| (verdict, reason.as_str())));
    let counted = |(verdict, reason)| match metrics.decided(verdict, reason) {
        0 => None,
        count => Some(json!({"verdict": verdict, "reason": reason, "count": count})),
    };
    approved.into_iter().chain(denied).filter_map(counted).collect()
}

/// Dead letters by reason; those that never came are left out.
fn dead_letters(metrics: &Metrics) -> Value {
    let counted = |reason: &DeadLetterReason| match metrics.dead_lettered(reason.as_str()) {
        0 => None,
        count => Some(json!({"reason": reason.as_str(), "count": count})),
    };
    DeadLetterReason::ALL.iter().filter_map(counted).collect()
}

/// The caps of the policy in force that have denied something, most first. The segment is null for users in none, and the rule in words:
/// `2 in any 24h`.
fn caps(metrics: &Metrics, set: &SegmentSet, policy: &Policy) -> Value {
    let segments = set.segments().iter().map(|segment| Some(segment.name.as_str())).chain([None]);
    let caps = segments.flat_map(|segment| policy.caps_of(segment).list().iter().map(move |cap| (segment, cap)));
    let counted = caps.map(|(segment, cap)| (metrics.denied(segment, &cap.name), segment, cap));
    let mut denials: Vec<_> = counted.filter(|(count, ..)| *count > 0).collect();
    denials.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let row = |(count, segment, cap): &(u64, Option<&str>, &Cap)| {
        let rule = format!("{} {}", cap.limit, cap.window);
        json!({"segment": segment, "cap": &*cap.name, "rule": rule, "count": count})
    };
    denials.iter().take(MOST_ROWS).map(row).collect()
}

/// The partitions that lag most, in their order.
fn most_lag(mut lags: Vec<(i32, i64)>) -> Value {
    lags.sort_by_key(|(_, records)| std::cmp::Reverse(*records));
    lags.truncate(MOST_ROWS);
    lags.sort_unstable();
    lags.into_iter().map(|(partition, records)| json!({"partition": partition, "records": records})).collect()
}

/// What is in force, with its seconds since it was taken up, and since its source last gave it or said that there is no newer one.
/// `refused`: the last read of the source failed or was refused; the log says why.
fn in_force<T>(version: &str, of: &Refreshed<T>, (name, more): (&str, Value)) -> Value {
    let freshness = of.freshness();
    json!({
        "version": version,
        "age_s": freshness.loaded_at.elapsed().as_secs_f64(),
        "confirmed_s": freshness.confirmed_at.elapsed().as_secs_f64(),
        "refused": of.last_error().is_some(),
        name: more,
    })
}
