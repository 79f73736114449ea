//! Every metric, once: name, type, labels and help. docs/metrics.md is tested against this table.

mod buckets;
mod labels;
#[cfg(target_os = "linux")]
mod process;
mod tallied;
mod totals;

use std::{
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use weir_core::{
    basis::time::Time,
    batch::{
        stamps::Stamps,
        tally::{CapOfSegment, SegmentCounts, Tally, TopicTally},
    },
    deferral::DeferReason,
    history::{delivery_report::DeliveryReported, refund::RefundOutcome},
    limit::{budget::BudgetId, pressure::activity_report::ReportOutcome},
    policy::Unavailable,
    ports::CommitTimes,
};
use weir_oracle::{
    observer::{AdmissionEvent, AdmissionObserver},
    service::ServiceName,
};
use weir_worker::observer::{BesideTopic, Event, LedgerCall, Observer, Stage};

use self::{
    buckets::{lateness, sizes, times, waits},
    tallied::TalliedHistogram,
};
pub use self::{labels::*, totals::bring};

/// A gauge of a number that need not be whole.
pub type RealGauge = Gauge<f64, AtomicU64>;
type MakeHistogram = fn() -> Histogram;

/// Milliseconds from one time to a later one; none if it is not later.
fn millis_between(from: Time, to: Time) -> u64 {
    u64::try_from(to.millis().saturating_sub(from.millis())).unwrap_or(0)
}

/// Declares every metric once: its field, its type, how it is made unless empty, its name and its help. A counter's name
/// gets `_total` behind it, as the format demands.
macro_rules! metrics {
    ($($vis:vis $field:ident: $type:ty $(= $make:expr)?, $name:literal, $help:literal;)*) => {
        /// Every metric of weir.
        pub struct Metrics {
            registry: Registry,
            /// What is not weir's own, and has no prefix.
            process: Registry,
            /// The oldest record of each partition with lag, in milliseconds since 1970.
            oldest: Family<PartitionLabel, Gauge>,
            /// The highest partition whose lag was ever known, -1 for none: a family cannot be walked.
            highest_partition: AtomicI32,
            $(#[doc = $help] $vis $field: $type,)*
        }

        impl Metrics {
            fn registered() -> Self {
                let mut registry = Registry::with_prefix("weir");
                $(let $field: $type = metrics!(@made $($make)?);
                registry.register($name, $help, $field.clone());)*
                let (process, oldest) = (process_registry(), Family::default());
                Self { registry, process, oldest, highest_partition: AtomicI32::new(-1), $($field,)* }
            }
        }
    };
    (@made $make:expr) => { $make };
    (@made) => { Default::default() };
}

fn process_registry() -> Registry {
    let mut registry = Registry::default();
    #[cfg(target_os = "linux")]
    registry.register_collector(Box::new(process::ProcessFigures));
    registry
}

metrics! {
    build: Family<BuildLabels, Gauge>, "build_info", "Versions of weir and of the librdkafka in it, always 1";
    pub decisions: Family<DecisionLabels, Counter>, "decisions", "Intents decided and committed";
    pub dead_letters: Family<ReasonLabel, Counter>, "dead_letters", "Records written to the dead-letter topic";
    pub cap_denials: Family<CapLabels, Counter>, "cap_denials", "Intents that a cap denied, also in shadow mode";
    pub budget_tokens: Family<BudgetTokenLabels, Counter>, "budget_tokens", "Tokens of a budget by what became of them: spent, returned (not approved after all), denied";
    pub budget_left: Family<BudgetLabel, Gauge>, "budget_left", "Tokens that were left when the ledger last answered this instance; not of budgets per campaign";
    pub ledger_calls: Family<OutcomeLabel, Counter>, "ledger_calls", "Calls to the ledger of budgets in Redis";
    pub pressure_active_users: Gauge, "pressure_active_users", "Users active in the window of the policy's pressure, estimated";
    pub pressure_max_active_users: Gauge, "pressure_max_active_users", "The most users that may be active; 0: the policy has no pressure, or its window is not read yet";
    pub pressure_throttling: Gauge, "pressure_throttling", "1 while only active users pass";
    pub pressure_members: Gauge, "pressure_members", "Instances that share the maximum of active users, this one included";
    pub pressure_sync_bytes: Counter, "pressure_sync_bytes", "Bytes sent to and received from the log of activity in Redis, approximately";
    pub pressure_ignored_users: Counter, "pressure_ignored_users", "Users not taken from other instances, because their minute is ahead of the clock, or not told to them, because too many waited";
    pub pressure_unsynced: RealGauge, "pressure_unsynced_seconds", "Seconds since the log of activity stopped answering; 0: it answers";
    pub service_admissions: Family<ServiceOutcomeLabels, Counter>, "service_admissions", "Admissions of services that ask: admitted, ended, timed_out, or why they were denied";
    pub service_outstanding: Gauge, "service_outstanding", "Admissions given by this instance that have not ended";
    pub route_permits: Family<OfRouteLabel, RealGauge>, "route_permits", "Permits that this instance was granted for a route by its last turn";
    pub route_throttled: Family<ThrottledLabels, Gauge>, "route_throttled", "1 while a route takes less than its ceiling, by why: lag, lag_unknown, signal, stopped";
    pub route_lag: Family<OfRouteLabel, RealGauge>, "route_lag", "Approved intents of a route that its consumer group has not committed";
    pub route_drain_rate: Family<OfRouteLabel, RealGauge>, "route_drain_rate", "What delivery takes of a route, per second";
    pub route_waiting: Family<OfRouteLabel, RealGauge>, "route_waiting", "Intents that wait for a route, of all instances";
    pub route_oldest_waiting: Family<OfRouteLabel, RealGauge>, "route_oldest_waiting_seconds", "How long the oldest intent has waited for a route at the least, of all instances; 0: none waits";
    pub route_overdue: Family<OfRouteLabel, RealGauge>, "route_overdue", "Intents that have waited for a route for longer than 72 h and are not suppressed yet, of all instances";
    pub route_expected_wait: Family<OfRouteLabel, RealGauge>, "route_expected_wait_seconds", "How long an intent that comes now waits for a route";
    pub waiting: Family<OfRouteLabel, Counter>, "waiting", "Intents that this instance sent to wait for a route; one that waits again counts again";
    pub waiting_lane_ready: Family<OfRouteLabel, Gauge>, "waiting_lane_ready", "1 while the lane of intents that wait for a route has its partitions";
    pub deleted_undecided: Family<TopicLabel, Counter>, "deleted_undecided", "Offsets of deferred or waiting intents that retention deleted undecided: as many intents are lost at the most";
    pub retried: Family<OfRouteLabel, Counter>, "retried", "Failed deliveries that were approved again, by route; empty: none";
    pub retries_lag: Gauge, "retries_lag_records", "Records of the topic of retries not yet taken and committed";
    pub undelivered: Family<UndeliveredLabels, Counter>, "undelivered", "Deliveries given up, by route (empty: none) and why: attempts, capacity, expired, stopped";
    pub replays: Counter, "replays", "Approved intents that an uncommitted batch had decided before";
    batch_intents: Histogram = sizes(), "batch_intents", "Intents per commit";
    stages: Family<StageLabel, Histogram, MakeHistogram> = Family::new_with_constructor(times), "stage_seconds", "Time that a batch spends in each stage";
    until_decision: TalliedHistogram = waits(), "record_decision_seconds", "Time from the Kafka timestamp of a record of the intents topic to its decision; every record, when it is committed";
    until_commit: TalliedHistogram = waits(), "record_commit_seconds", "Time from the Kafka timestamp of a record of the intents topic to its commit";
    lag: Family<PartitionLabel, Gauge>, "lag_records", "Records not yet decided and committed";
    lag_seconds: Family<PartitionLabel, RealGauge>, "lag_seconds", "Age of the oldest record not yet committed, by its Kafka timestamp; before it is read, the age of the newest one committed. 0: none";
    pub deferred: Family<WhyLabel, Counter>, "deferred", "Deferrals committed; an intent that is deferred again counts again";
    pub deferred_waiting: Family<TopicLabel, Gauge>, "deferred_waiting", "Deferred intents in the topic, of all instances";
    deferred_late: TalliedHistogram = lateness(), "deferred_late_seconds", "Seconds from the due time of a deferred intent to its release";
    pub refunds: Family<OutcomeLabel, Counter>, "refunds", "Refunds applied and committed";
    pub refunds_lag: Gauge, "refunds_lag_records", "Refunds not yet applied and committed";
    pub delivery_reports: Family<OutcomeLabel, Counter>, "delivery_reports", "Reports of deliveries taken and committed: ok, or what became of the refund";
    pub delivery_reports_lag: Gauge, "delivery_reports_lag_records", "Reports of deliveries not yet taken and committed";
    pub activity_reports: Family<ReportLabels, Counter>, "activity_reports", "Reports of active users: by HTTP or a topic, and what became of them";
    pub activity_lag: Gauge, "activity_lag_records", "Records of the topic of activity not yet taken and committed";
    pub commit_failures: Counter, "commit_failures", "Failed commits, after which a lane returned to the committed offsets";
    pub batches_halved: Counter, "batches_halved", "Times that slow brokers made a lane halve its batches";
    pub rebalances: Counter, "rebalances", "Changes of a lane's partitions";
    pub store_failures: Counter, "store_failures", "Times that the store did not answer a whole batch and was asked again";
    pub unavailable: Family<ActionLabel, Counter>, "unavailable", "Intents decided while their history was unavailable or lost";
    pub deferred_sends: Gauge, "owed_sends", "Approved intents whose write to an unavailable history is deferred";
    pub deferred_recorded: Counter, "owed_recorded", "Deferred writes that were completed";
    pub deferred_full: Counter, "owed_full", "Times that intents waited because no more writes could be deferred";
    pub schema_failures: Counter, "schema_failures", "Times that the schema registry did not answer and a lane waited";
    pub clock_ahead: Counter, "clock_ahead", "Decisions for users with an entry more than 5 minutes ahead of the clock";
    pub early_times: Counter, "early_times", "Intents decided with created_at, expires_at or not_before before 1971: seconds instead of milliseconds, or a default such as the year 1";
    pub clock_wrong: Gauge, "clock_wrong", "1 while weir decides nothing: most other clocks contradict this machine's, or none was compared yet";
    pub clock_skew: Family<NodeLabel, RealGauge>, "clock_skew_seconds", "Seconds that this machine's clock is ahead of a Redis node's; negative: behind";
    pub history_dropped: Counter, "history_dropped", "Intents recorded in full histories (redis.max_entries), whose oldest entries were dropped";
    pub segment_overlaps: Counter, "segment_overlaps", "Intents of users in more than one segment";
    pub segment_unnamed: Counter, "segment_unnamed", "Intents of users in a segment that the policy does not name";
    pub version: Family<VersionLabels, Gauge>, "version_info", "Version in force of segments and policy, always 1";
    pub version_age: Family<SourceLabel, RealGauge>, "version_age_seconds", "Seconds since the version in force was loaded";
    pub refresh_failures: Family<SourceLabel, Counter>, "refresh_failures", "Segments or policies that were rejected or could not be read";
    pub segment_members: Family<SegmentLabel, Gauge>, "segment_members", "Users in a segment";
    pub lanes_ready: Gauge, "lanes_ready", "Lanes that have their partitions";
    pub shards_lost: Gauge, "shards_lost", "Shards that have lost their history and wait for weir rebuild";
    pub shards_unavailable: Gauge, "shards_unavailable", "Shards that do not answer";
    pub degraded: Family<ReasonLabel, Gauge>, "degraded", "Entries that GET /v1/status lists as degraded";
    pub redis_round_trips: Counter, "redis_round_trips", "Pipelines that a Redis node answered";
    pub redis_calls: Counter, "redis_calls", "Script calls in the pipelines that Redis nodes answered";
    pub redis_decisions: Counter, "redis_decisions", "Intents decided by Redis";
    pub redis_retries: Family<ReasonLabel, Counter>, "redis_retries", "Script calls that were retried";
    http_requests: Family<RequestLabels, Counter>, "http_requests", "HTTP requests answered";
    http_seconds: Family<RouteLabel, Histogram, MakeHistogram> = Family::new_with_constructor(times), "http_request_seconds", "Time until an HTTP answer begins";
    pub http_connections: Gauge, "http_connections", "Open HTTP connections";
    pub http_evictions: Counter, "http_evictions", "Idle HTTP connections closed at the limit http.connections";
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self::registered();
        let librdkafka = rdkafka::util::get_rdkafka_version().1;
        let build = BuildLabels { version: env!("CARGO_PKG_VERSION"), librdkafka };
        metrics.build.get_or_create(&build).set(1);
        // From zero on: the first of its kind is seen to have come.
        for outcome in RefundOutcome::COUNTED.map(RefundOutcome::as_str) {
            drop(metrics.refunds.get_or_create(&OutcomeLabel { outcome }));
        }
        for outcome in DeliveryReported::COUNTED.map(DeliveryReported::as_str) {
            drop(metrics.delivery_reports.get_or_create(&OutcomeLabel { outcome }));
        }
        for by in ["http", "kafka"] {
            ReportOutcome::ALL.iter().for_each(|outcome| metrics.activity_reported(by, outcome.as_str(), 0));
        }
        for why in DeferReason::ALL.map(DeferReason::as_str) {
            drop(metrics.deferred.get_or_create(&WhyLabel { why }));
        }
        for action in [Unavailable::Approve, Unavailable::Suppress].map(Unavailable::as_str) {
            drop(metrics.unavailable.get_or_create(&ActionLabel { action }));
        }
        metrics
    }
}

impl Metrics {
    pub fn http_request(&self, route: &str, status: u16, time: Duration) {
        self.http_requests.get_or_create(&RequestLabels { route: route.to_owned(), status }).inc();
        self.http_seconds.get_or_create(&RouteLabel { route: route.to_owned() }).observe(time.as_secs_f64());
    }

    /// Brings the lag in seconds up to date: a record grows older while nothing is reported of it.
    pub fn note_lag_seconds(&self, now: Time) {
        for (partition, _) in self.lags() {
            let label = PartitionLabel { partition };
            let oldest = self.oldest.get(&label).and_then(|oldest| Time::from_millis(oldest.get()));
            let age = Duration::from_millis(oldest.map_or(0, |oldest| millis_between(oldest, now)));
            self.lag_seconds.get_or_create(&label).set(age.as_secs_f64());
        }
    }

    /// Users were reported to be active, by `http` or `kafka`.
    pub fn activity_reported(&self, by: &'static str, outcome: &'static str, users: u64) {
        self.activity_reports.get_or_create(&ReportLabels { by, outcome }).inc_by(users);
    }

    /// All of them in the text format of OpenMetrics.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.process))
            .and_then(|()| encode_eof(&mut text));
        if encoded.is_err() {
            text.clear();
        }
        text
    }
}

impl AdmissionObserver for Metrics {
    fn admissions(&self, service: &ServiceName, event: AdmissionEvent, count: u64) {
        let labels = ServiceOutcomeLabels { service: service.to_string(), outcome: event.as_str() };
        self.service_admissions.get_or_create(&labels).inc_by(count);
    }

    fn set_outstanding(&self, admissions: usize) {
        self.service_outstanding.set(i64::try_from(admissions).unwrap_or(i64::MAX));
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
            Event::DeferredFull => &self.deferred_full,
            Event::SchemasUnavailable => &self.schema_failures,
        };
        counter.inc();
    }

    fn deferred(&self) {
        self.deferred_sends.inc();
    }

    fn deferred_recorded(&self, sends: u64) {
        self.deferred_sends.dec_by(sends.cast_signed());
        self.deferred_recorded.inc_by(sends);
    }

    fn ledger_called(&self, call: LedgerCall) {
        self.ledger_calls.get_or_create(&OutcomeLabel { outcome: call.as_str() }).inc();
    }

    fn budget_left(&self, budget: &BudgetId, tokens: u64) {
        if budget.campaign.is_none() {
            let label = BudgetLabel { budget: budget.name.to_string() };
            self.budget_left.get_or_create(&label).set(i64::try_from(tokens).unwrap_or(i64::MAX));
        }
    }

    fn set_topic_lag(&self, topic: BesideTopic, records: i64) {
        match topic {
            BesideTopic::Refunds => self.refunds_lag.set(records),
            BesideTopic::Activity => self.activity_lag.set(records),
            BesideTopic::DeliveryReports => self.delivery_reports_lag.set(records),
            BesideTopic::Retries => self.retries_lag.set(records),
        };
    }

    fn activity_synced(&self, bytes: u64, ignored_users: u64) {
        self.pressure_sync_bytes.inc_by(bytes);
        self.pressure_ignored_users.inc_by(ignored_users);
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
        for (why, count) in tally.deferred.iter() {
            self.deferred.get_or_create(&WhyLabel { why }).inc_by(count);
            intents += count;
        }
        for (route, count) in &tally.retried {
            self.retried.get_or_create(&OfRouteLabel { route: route.to_string() }).inc_by(*count);
            intents += count;
        }
        for ((route, why), count) in &tally.undelivered {
            let labels = UndeliveredLabels { route: route.to_string(), why: why.as_str() };
            self.undelivered.get_or_create(&labels).inc_by(*count);
            intents += count;
        }
        for (seconds, count) in tally.late_s.iter() {
            self.deferred_late.observe(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000), count);
        }
        for (CapOfSegment { segment, cap }, count) in &tally.cap_denials {
            let labels = CapLabels { segment: segment.clone(), cap: cap.clone() };
            self.cap_denials.get_or_create(&labels).inc_by(*count);
        }
        for (budget, tokens) in &tally.budget_tokens {
            for (outcome, tokens) in ["spent", "returned", "denied"].into_iter().zip(tokens) {
                let labels = BudgetTokenLabels { budget: budget.to_string(), outcome };
                self.budget_tokens.get_or_create(&labels).inc_by(*tokens);
            }
        }
        for (action, count) in tally.unavailable.iter() {
            self.unavailable.get_or_create(&ActionLabel { action }).inc_by(count);
        }
        self.replays.inc_by(tally.replayed);
        self.clock_ahead.inc_by(tally.ahead);
        self.early_times.inc_by(tally.early_times);
        // Those who move deferred intents on decide none.
        if intents > 0 {
            self.batch_intents.observe(u32::try_from(intents).map_or(f64::MAX, f64::from));
        }
    }

    fn records_committed(&self, stamps: &Stamps, decided: Time, committed: Time) {
        for (at, records) in stamps.counts() {
            self.until_decision.observe(millis_between(at, decided), records);
            self.until_commit.observe(millis_between(at, committed), records);
        }
    }

    fn topic_committed(&self, topic: BesideTopic, tally: &TopicTally) {
        for (outcome, count) in tally.outcomes.iter() {
            match topic {
                BesideTopic::Refunds => drop(self.refunds.get_or_create(&OutcomeLabel { outcome }).inc_by(count)),
                BesideTopic::Activity => self.activity_reported("kafka", outcome, count),
                BesideTopic::DeliveryReports => {
                    self.delivery_reports.get_or_create(&OutcomeLabel { outcome }).inc_by(count);
                }
                // Their lane counts what it commits.
                BesideTopic::Retries => {}
            }
        }
        for (reason, count) in tally.dead_letters.iter() {
            self.dead_letters.get_or_create(&ReasonLabel { reason }).inc_by(count);
        }
    }

    fn set_lag(&self, partition: i32, records: i64, oldest: Option<Time>) {
        self.highest_partition.fetch_max(partition, Ordering::Relaxed);
        let label = PartitionLabel { partition };
        self.lag.get_or_create(&label).set(records);
        match oldest {
            Some(oldest) => _ = self.oldest.get_or_create(&label).set(oldest.millis()),
            None => _ = self.oldest.remove(&label),
        }
    }

    fn forget_lag(&self, partition: i32) {
        let label = PartitionLabel { partition };
        self.lag.remove(&label);
        self.oldest.remove(&label);
        self.lag_seconds.remove(&label);
    }
}
