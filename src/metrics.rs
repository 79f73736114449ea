//! Every metric, once: name, type, labels and help. docs/metrics.md is tested against this table.

mod labels;
mod totals;

use std::{
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use weir_core::{
    policy::Unavailable,
    ports::CommitTimes,
    refund::RefundOutcome,
    tally::{CapOfSegment, RefundTally, SegmentCounts, Tally},
};
use weir_worker::observer::{Event, Observer, Stage};

pub use self::labels::{
    ActionLabel, CapLabels, DecisionLabels, NodeLabel, OutcomeLabel, PartitionLabel, ReasonLabel, RequestLabels,
    RouteLabel, SegmentLabel, SourceLabel, StageLabel, VersionLabels,
};

/// A gauge of seconds.
pub type Seconds = Gauge<f64, AtomicU64>;
/// A histogram's maker, for families.
type MakeHistogram = fn() -> Histogram;

/// Every metric of weir.
pub struct Metrics {
    registry: Registry,
    /// Decisions by verdict and reason.
    pub decisions: Family<DecisionLabels, Counter>,
    /// Dead letters by reason.
    pub dead_letters: Family<ReasonLabel, Counter>,
    /// Denials by segment and cap.
    pub cap_denials: Family<CapLabels, Counter>,
    /// Decisions that were found in the history: their batch was decided before, and lost.
    pub replays: Counter,
    batch_intents: Histogram,
    stages: Family<StageLabel, Histogram, MakeHistogram>,
    lag: Family<PartitionLabel, Gauge>,
    parked_offsets: Family<PartitionLabel, Gauge>,
    /// Refunds by what became of them.
    pub refunds: Family<OutcomeLabel, Counter>,
    /// Refunds that are not yet taken.
    pub refunds_lag: Gauge,
    /// The highest partition whose lag was ever known, -1 for none: a family cannot be walked.
    highest_partition: AtomicI32,
    /// Commits that failed.
    pub commit_failures: Counter,
    /// Batches that the brokers were too slow for.
    pub batches_halved: Counter,
    /// Changes of partitions taken up.
    pub rebalances: Counter,
    /// Times the store did not answer a whole batch.
    pub store_failures: Counter,
    /// Intents decided without their history, by what the policy said.
    pub unavailable: Family<ActionLabel, Counter>,
    /// Approved sends that are not in their history yet.
    pub owed_sends: Gauge,
    /// Those of them that have been recorded since.
    pub owed_recorded: Counter,
    /// Times a batch had to wait because no more may be owed.
    pub owed_full: Counter,
    /// Decisions for users with an entry more than five minutes ahead of the clock.
    pub clock_ahead: Counter,
    /// 1 while most other clocks contradict this machine's, or none was compared yet: nothing is decided.
    pub clock_wrong: Gauge,
    /// How far this machine's clock is ahead of each Redis node's.
    pub clock_skew: Family<NodeLabel, Seconds>,
    /// Approved intents that were recorded in place of their user's oldest entries.
    pub history_dropped: Counter,
    /// Intents of users in more than one segment.
    pub segment_overlaps: Counter,
    /// Intents of users whose segment the policy does not name.
    pub segment_unnamed: Counter,
    /// The version in force, as a label.
    pub version: Family<VersionLabels, Gauge>,
    /// Seconds since the version in force was taken up.
    pub version_age: Family<SourceLabel, Seconds>,
    /// Refreshes that were refused or failed.
    pub refresh_failures: Family<SourceLabel, Counter>,
    /// Users in a segment.
    pub segment_members: Family<SegmentLabel, Gauge>,
    /// Lanes that have their partitions.
    pub lanes_ready: Gauge,
    /// Shards that have lost their history.
    pub shards_lost: Gauge,
    /// Shards that do not answer.
    pub shards_unavailable: Gauge,
    /// Things that are degraded, by what.
    pub degraded: Family<ReasonLabel, Gauge>,
    /// Redis: pipelines sent and answered.
    pub redis_round_trips: Counter,
    /// Redis: script calls.
    pub redis_calls: Counter,
    /// Redis: sends decided.
    pub redis_decisions: Counter,
    /// Redis: what had to be sent again, by cause.
    pub redis_retries: Family<ReasonLabel, Counter>,
    http_requests: Family<RequestLabels, Counter>,
    http_seconds: Family<RouteLabel, Histogram, MakeHistogram>,
    /// HTTP: open connections.
    pub http_connections: Gauge,
    /// HTTP: idle connections closed to make room.
    pub http_evictions: Counter,
}

/// Buckets of a batch's size: 1 to 65,536 intents.
fn sizes() -> Histogram {
    Histogram::new((0..=16).step_by(2).map(|power| f64::from(1_u32 << power)))
}

/// Buckets of a stage's time: 0.1 ms to 26 s.
fn times() -> Histogram {
    Histogram::new((0..=9).map(|power| 0.000_1 * f64::from(4_u32.pow(power))))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("weir"),
            decisions: Family::default(),
            dead_letters: Family::default(),
            cap_denials: Family::default(),
            replays: Counter::default(),
            batch_intents: sizes(),
            stages: Family::new_with_constructor(times),
            lag: Family::default(),
            parked_offsets: Family::default(),
            refunds: Family::default(),
            refunds_lag: Gauge::default(),
            highest_partition: AtomicI32::new(-1),
            commit_failures: Counter::default(),
            batches_halved: Counter::default(),
            rebalances: Counter::default(),
            store_failures: Counter::default(),
            unavailable: Family::default(),
            owed_sends: Gauge::default(),
            owed_recorded: Counter::default(),
            owed_full: Counter::default(),
            clock_ahead: Counter::default(),
            clock_wrong: Gauge::default(),
            clock_skew: Family::default(),
            history_dropped: Counter::default(),
            segment_overlaps: Counter::default(),
            segment_unnamed: Counter::default(),
            version: Family::default(),
            version_age: Family::default(),
            refresh_failures: Family::default(),
            segment_members: Family::default(),
            lanes_ready: Gauge::default(),
            shards_lost: Gauge::default(),
            shards_unavailable: Gauge::default(),
            degraded: Family::default(),
            redis_round_trips: Counter::default(),
            redis_calls: Counter::default(),
            redis_decisions: Counter::default(),
            redis_retries: Family::default(),
            http_requests: Family::default(),
            http_seconds: Family::new_with_constructor(times),
            http_connections: Gauge::default(),
            http_evictions: Counter::default(),
        };
        // From zero on: the first of its kind is seen to have come.
        for outcome in RefundOutcome::COUNTED.map(RefundOutcome::as_str) {
            drop(metrics.refunds.get_or_create(&OutcomeLabel { outcome }));
        }
        for action in [Unavailable::Approve, Unavailable::Suppress].map(Unavailable::as_str) {
            drop(metrics.unavailable.get_or_create(&ActionLabel { action }));
        }
        metrics.register();
        metrics
    }
}

impl Metrics {
    /// The table. A counter's name gets `_total` behind it, as the format demands.
    fn register(&mut self) {
        let registry = &mut self.registry;
        macro_rules! table {
            ($($name:literal, $metric:ident, $help:literal;)*) => {
                $(registry.register($name, $help, self.$metric.clone());)*
            };
        }
        table! {
            "decisions", decisions, "Intents decided and committed";
            "dead_letters", dead_letters, "Records written to the dead-letter topic";
            "cap_denials", cap_denials, "Intents that a cap denied, also in shadow mode";
            "replays", replays, "Approved intents that an uncommitted batch had decided before";
            "batch_intents", batch_intents, "Intents per commit";
            "stage_seconds", stages, "Time that a batch spends in each stage";
            "lag_records", lag, "Records not yet decided and committed";
            "parked_offsets", parked_offsets, "Offsets from the first pending intent to the next one to read";
            "refunds", refunds, "Refunds applied and committed";
            "refunds_lag_records", refunds_lag, "Refunds not yet applied and committed";
            "commit_failures", commit_failures, "Failed commits, after which a lane returned to the committed offsets";
            "batches_halved", batches_halved, "Times that slow brokers made a lane halve its batches";
            "rebalances", rebalances, "Changes of a lane's partitions";
            "store_failures", store_failures, "Times that the store did not answer a whole batch and was asked again";
            "unavailable", unavailable, "Intents decided while their history was unavailable or lost";
            "owed_sends", owed_sends, "Approved intents whose write to an unavailable history is deferred";
            "owed_recorded", owed_recorded, "Deferred writes that were completed";
            "owed_full", owed_full, "Times that intents waited because no more writes could be deferred";
            "clock_ahead", clock_ahead, "Decisions for users with an entry more than 5 minutes ahead of the clock";
            "clock_wrong", clock_wrong, "1 while weir decides nothing: most other clocks contradict this machine's, or none was compared yet";
            "clock_skew_seconds", clock_skew, "Seconds that this machine's clock is ahead of a Redis node's; negative: behind";
            "history_dropped", history_dropped, "Intents recorded in full histories (redis.max_entries), whose oldest entries were dropped";
            "segment_overlaps", segment_overlaps, "Intents of users in more than one segment";
            "segment_unnamed", segment_unnamed, "Intents of users in a segment that the policy does not name";
            "version_info", version, "Version in force of segments and policy, always 1";
            "version_age_seconds", version_age, "Seconds since the version in force was loaded";
            "refresh_failures", refresh_failures, "Segments or policies that were rejected or could not be read";
            "segment_members", segment_members, "Users in a segment";
            "lanes_ready", lanes_ready, "Lanes that have their partitions";
            "shards_lost", shards_lost, "Shards that have lost their history and wait for weir rebuild";
            "shards_unavailable", shards_unavailable, "Shards that do not answer";
            "degraded", degraded, "Entries that GET /v1/status lists as degraded";
            "redis_round_trips", redis_round_trips, "Pipelines that a Redis node answered";
            "redis_calls", redis_calls, "Script calls in these pipelines";
            "redis_decisions", redis_decisions, "Intents decided by Redis";
            "redis_retries", redis_retries, "Script calls that were retried";
            "http_requests", http_requests, "HTTP requests answered";
            "http_request_seconds", http_seconds, "Time until an HTTP answer begins";
            "http_connections", http_connections, "Open HTTP connections";
            "http_evictions", http_evictions, "Idle HTTP connections closed at the limit http.connections";
        }
    }

    /// An HTTP request was answered.
    pub fn http_request(&self, route: &str, status: u16, time: Duration) {
        self.http_requests.get_or_create(&RequestLabels { route: route.to_owned(), status }).inc();
        self.http_seconds.get_or_create(&RouteLabel { route: route.to_owned() }).observe(time.as_secs_f64());
    }

    /// All of them in the text format of OpenMetrics.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

impl Observer for Metrics {
    fn stage(&self, stage: Stage, time: Duration) {
        self.stages.get_or_create(&StageLabel { stage: stage.as_str() }).observe(time.as_secs_f64());
    }

    fn gated(&self, counts: SegmentCounts) {
        self.segment_overlaps.inc_by(counts.overlaps);
        self.segment_unnamed.inc_by(counts.unnamed);
    }

    fn happened(&self, event: Event) {
        let counter = match event {
            Event::CommitFailed => &self.commit_failures,
            Event::BatchHalved => &self.batches_halved,
            Event::Rebalanced => &self.rebalances,
            Event::StoreFailed => &self.store_failures,
            Event::DeferredFull => &self.owed_full,
        };
        counter.inc();
    }

    fn deferred(&self) {
        self.owed_sends.inc();
    }

    fn deferred_recorded(&self, sends: u64) {
        self.owed_sends.dec_by(sends.cast_signed());
        self.owed_recorded.inc_by(sends);
    }

    fn set_refunds_lag(&self, refunds: i64) {
        self.refunds_lag.set(refunds);
    }

    fn committed(&self, tally: &Tally, times: &CommitTimes) {
        let CommitTimes { produce, flush, commit } = *times;
        self.stage(Stage::Produce, produce);
        self.stage(Stage::Flush, flush);
        self.stage(Stage::Commit, commit);
        let mut intents = 0;
        for ((verdict, reason), count) in tally.decisions.iter() {
            self.decisions.get_or_create(&DecisionLabels { verdict, reason }).inc_by(count);
            intents += count;
        }
        for (reason, count) in tally.dead_letters.iter() {
            self.dead_letters.get_or_create(&ReasonLabel { reason }).inc_by(count);
            intents += count;
        }
        for (CapOfSegment { segment, cap }, count) in &tally.cap_denials {
            let labels = CapLabels { segment: segment.clone(), cap: cap.clone() };
            self.cap_denials.get_or_create(&labels).inc_by(*count);
        }
        for (action, count) in tally.unavailable.iter() {
            self.unavailable.get_or_create(&ActionLabel { action }).inc_by(count);
        }
        self.replays.inc_by(tally.replayed);
        self.clock_ahead.inc_by(tally.ahead);
        self.batch_intents.observe(u32::try_from(intents).map_or(f64::MAX, f64::from));
    }

    fn refunded(&self, tally: &RefundTally) {
        for (outcome, count) in tally.refunds.iter() {
            self.refunds.get_or_create(&OutcomeLabel { outcome }).inc_by(count);
        }
        for (reason, count) in tally.dead_letters.iter() {
            self.dead_letters.get_or_create(&ReasonLabel { reason }).inc_by(count);
        }
    }

    fn set_lag(&self, partition: i32, records: i64) {
        self.highest_partition.fetch_max(partition, Ordering::Relaxed);
        self.lag.get_or_create(&PartitionLabel { partition }).set(records);
    }

    fn set_parked(&self, partition: i32, offsets: i64) {
        self.parked_offsets.get_or_create(&PartitionLabel { partition }).set(offsets);
    }

    fn forget_lag(&self, partition: i32) {
        self.lag.remove(&PartitionLabel { partition });
        self.parked_offsets.remove(&PartitionLabel { partition });
    }
}
