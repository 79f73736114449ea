//! How a worker is: what `/livez`, `/readyz`, `/v1/status` and `/metrics` ask.

mod waiting;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use weir_core::{
    policy::Policy,
    ports::{Clock as _, ShardsFound, in_short},
    segment::SegmentSet,
};
use weir_redis::{RedisStats, RetryCause};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    refresh::{Failure, Refreshed},
    status::{LaneStatus, StoreStatus},
};

use crate::{
    http::{Degradation, Degraded, Health},
    limits::LimitsDesk,
    metrics::{Metrics, NodeLabel, ReasonLabel, SegmentLabel, SourceLabel, VersionLabels, bring},
};

pub(super) use self::waiting::WaitingHealth;

/// All that tells how a worker is.
pub(super) struct WorkerHealth {
    pub(super) lanes: Vec<Arc<LaneStatus>>,
    pub(super) waiting: WaitingHealth,
    pub(super) clock: ComparedClock<SystemClock>,
    pub(super) readers: Vec<(Degraded, Arc<LaneStatus>)>,
    pub(super) limits: Arc<LimitsDesk>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) redis: Option<Arc<RedisStats>>,
    pub(super) store: StoreStatus,
    pub(super) segments: Arc<Refreshed<SegmentSet>>,
    pub(super) policy: Arc<Refreshed<Policy>>,
}

impl Health for WorkerHealth {
    fn stuck(&self) -> Result<(), String> {
        let passed = SystemClock.passed();
        if let Some(lane) = self.lanes.iter().position(|lane| lane.is_stuck(passed)) {
            return Err(format!("lane {lane}: no progress for 60 s"));
        }
        if let Some((what, _)) = self.readers.iter().find(|(_, reader)| reader.is_stuck(passed)) {
            return Err(format!("the reader of {}: no progress for 60 s", what.as_str()));
        }
        self.waiting.stuck(passed)
    }

    fn waiting(&self) -> Result<(), Vec<String>> {
        // Redis, segments and policy have answered before HTTP begins. Partitions that are taken away again, or that Kafka
        // cannot give now, are no fault of this instance: all would be unready at once.
        let waits = |(number, lane): (usize, &Arc<LaneStatus>)| {
            (!lane.was_assigned()).then(|| format!("lane {number} waits for its partitions"))
        };
        let mut what: Vec<String> = self.lanes.iter().enumerate().filter_map(waits).collect();
        what.extend(self.waiting.unready());
        // A wrong clock is this machine's own: another instance answers what this one refuses.
        what.extend(self.clock.check().err().map(|wrong| wrong.to_string()));
        if what.is_empty() { Ok(()) } else { Err(what) }
    }

    fn degraded(&self) -> Vec<Degradation> {
        let mut all = self.degraded_shards();
        let source = |what, failure: Option<Arc<Failure>>| {
            let Failure { since, error } = failure?.as_ref().clone();
            let message = format!("could not be refreshed, the last good version stays in force: {error}");
            Some(degradation(what, since, message))
        };
        all.extend(source(Degraded::Segments, self.segments.failure()));
        all.extend(source(Degraded::Policy, self.policy.failure()));
        for (number, lane) in self.lanes.iter().enumerate() {
            all.extend(of_lane(lane).into_iter().map(|of_lane| Degradation { lane: Some(number), ..of_lane }));
            all.extend(deleted(lane));
        }
        all.extend(self.waiting.degraded());
        for (what, reader) in &self.readers {
            all.extend(reader.trouble().map(|trouble| degradation(*what, trouble.since, trouble.message.clone())));
        }
        all.extend(self.limits.degraded());
        all
    }

    fn metrics(&self) -> String {
        let ready = self.lanes.iter().filter(|lane| lane.is_assigned()).count();
        self.metrics.lanes_ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        self.note_degraded();
        self.note_redis();
        self.note_clock();
        self.metrics.note_lag_seconds(self.clock.now());
        self.limits.note(&self.metrics);
        self.waiting.note(&self.metrics);
        let (set, policy) = (self.segments.current(), self.policy.current());
        self.metrics.segment_members.clear();
        for segment in set.segments() {
            let label = SegmentLabel { segment: segment.name.clone() };
            let members = i64::try_from(segment.members.len()).unwrap_or(i64::MAX);
            self.metrics.segment_members.get_or_create(&label).set(members);
        }
        self.metrics.version.clear();
        self.note_version("segments", set.version(), &self.segments);
        self.note_version("policy", &policy.version, &self.policy);
        self.metrics.render()
    }
}

/// Something that has been so since a moment that is only known by what has passed.
fn degradation(what: Degraded, since: Instant, message: String) -> Degradation {
    Degradation::lasting(what, since.elapsed(), message)
}

/// What a lane waits for.
fn of_lane(lane: &LaneStatus) -> Option<Degradation> {
    lane.trouble().map(|trouble| degradation(Degraded::Lane, trouble.since, trouble.message.clone()))
}

/// What retention has deleted of a lane's topic undecided.
fn deleted(lane: &LaneStatus) -> Option<Degradation> {
    lane.deleted().map(|deleted| degradation(Degraded::Deleted, deleted.since, deleted.message.clone()))
}

impl WorkerHealth {
    fn degraded_shards(&self) -> Vec<Degradation> {
        let seen = self.store.seen();
        let ShardsFound { unavailable, lost, why } = &seen.found;
        let of = |what, shards: &[u16], since: Option<Instant>, message: String| {
            Some(Degradation { shards: shards.to_vec(), ..degradation(what, since?, message) })
        };
        let why = why.as_deref().unwrap_or("no answer");
        let away = format!(
            "shards {} do not answer ({why}): their intents wait, or follow on_unavailable",
            in_short(unavailable)
        );
        let gone = format!("shards {} have lost their history: their intents wait; run weir rebuild", in_short(lost));
        let unavailable = of(Degraded::ShardsUnavailable, unavailable, seen.unavailable_since, away);
        [unavailable, of(Degraded::ShardsLost, lost, seen.lost_since, gone)].into_iter().flatten().collect()
    }

    fn note_degraded(&self) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let degraded = self.degraded();
        for what in Degraded::ALL {
            let of_this = degraded.iter().filter(|degradation| degradation.what == what).count();
            self.metrics.degraded.get_or_create(&ReasonLabel { reason: what.as_str() }).set(count(of_this));
        }
        let seen = self.store.seen();
        let lost = self.lanes.iter().map(|lane| lane.lost_shards()).max().unwrap_or(0);
        let lost = lost.max(self.waiting.lost_shards()).max(seen.found.lost.len());
        self.metrics.shards_lost.set(count(lost));
        self.metrics.shards_unavailable.set(count(seen.found.unavailable.len()));
    }

    fn note_clock(&self) {
        self.metrics.clock_wrong.set(i64::from(self.clock.check().is_err()));
        self.metrics.clock_skew.clear();
        for (node, skew_ms) in self.clock.skews_ms() {
            let seconds = Duration::from_millis(skew_ms.unsigned_abs()).as_secs_f64();
            let seconds = if skew_ms < 0 { -seconds } else { seconds };
            self.metrics.clock_skew.get_or_create(&NodeLabel { node }).set(seconds);
        }
    }

    fn note_redis(&self) {
        let Some(stats) = &self.redis else { return };
        bring(&self.metrics.redis_round_trips, stats.round_trips());
        bring(&self.metrics.redis_calls, stats.calls());
        bring(&self.metrics.redis_decisions, stats.items());
        bring(&self.metrics.history_dropped, stats.dropped());
        for cause in RetryCause::ALL {
            let label = ReasonLabel { reason: cause.label() };
            bring(&self.metrics.redis_retries.get_or_create(&label), stats.errors(cause));
        }
    }

    fn note_version<T>(&self, source: &'static str, version: &str, of: &Refreshed<T>) {
        let label = VersionLabels { source, version: version.to_owned() };
        self.metrics.version.get_or_create(&label).set(1);
        let age = of.freshness().loaded_at.elapsed().as_secs_f64();
        self.metrics.version_age.get_or_create(&SourceLabel { source }).set(age);
        bring(&self.metrics.refresh_failures.get_or_create(&SourceLabel { source }), of.failures());
    }
}
