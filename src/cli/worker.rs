//! Puts a worker together: lanes on a Kafka edge, any store, health and metrics on HTTP. `run` and `demo` share it.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{policy::Policy, segment::SegmentSet},
    edge::{
        http::{self, Health, HttpOptions, Inquiries, Server, Sources},
        kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource},
        redis::{RedisStats, RetryCause},
    },
    metrics::{Metrics, NodeLabel, ReasonLabel, SegmentLabel, SourceLabel, VersionLabels},
    worker::{
        clock::{ComparedClock, SystemClock},
        desk::Desk,
        lane::{Lane, LaneError, LaneSettings},
        ports::{Clock, Store, StoreError},
        refresh::Refreshed,
        status::LaneStatus,
        supervise::{LaneWork, supervise},
        vitals::{Nodes, Vitals},
    },
};

/// All that a worker is made of.
pub struct Worker<D> {
    /// The Kafka edge.
    pub kafka: Arc<KafkaOptions>,
    /// One store a lane.
    pub stores: Vec<D>,
    /// What decides.
    pub desk: Desk,
    /// Batch size and pace.
    pub lane: LaneSettings,
    /// The refunds' reader and how it stands, where refunds are read.
    pub refunds: Option<(LaneWork, Arc<LaneStatus>)>,
    /// HTTP; none if `None`.
    pub http: Option<HttpSetup>,
    /// How long lanes may take to end.
    pub drain: Duration,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// What everything is decided by.
    pub clock: ComparedClock<SystemClock>,
    /// What the Redis edge counts, where there is one.
    pub redis: Option<Arc<RedisStats>>,
    /// How the store is, as far as somebody looks.
    pub store_health: StoreHealth,
    /// The store's nodes, as far as somebody looks.
    pub nodes: Nodes,
    /// The lanes' word to stop, and everybody else's.
    pub stop: CancellationToken,
}

/// What the HTTP interface is made of, beside what the lanes have.
pub struct HttpSetup {
    /// Where it listens; bound already.
    pub listener: TcpListener,
    /// Its limits.
    pub options: HttpOptions,
    /// Who answers questions about users.
    pub inquiries: Arc<dyn Inquiries>,
}

impl<D: Store + 'static> Worker<D> {
    /// Works until `asked_to_stop` is done.
    ///
    /// # Errors
    /// A lane failed, or did not end in time, or the HTTP address is not free.
    pub async fn run(mut self, asked_to_stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let lanes: Vec<Arc<LaneStatus>> = self.stores.iter().map(|_| Arc::default()).collect();
        let health = Arc::new(WorkerHealth {
            lanes: lanes.clone(),
            metrics: Arc::clone(&self.metrics),
            clock: self.clock.clone(),
            segments: Arc::clone(&self.desk.segments),
            policy: Arc::clone(&self.desk.policy),
            redis: self.redis.clone(),
            store: self.store_health.clone(),
            refunds: self.refunds.as_ref().map(|(_, status)| Arc::clone(status)),
        });
        let vitals = Vitals {
            metrics: Arc::clone(&self.metrics),
            segments: Arc::clone(&self.desk.segments),
            policy: Arc::clone(&self.desk.policy),
            lanes: lanes.clone(),
            nodes: self.nodes.clone(),
        };
        let server = self.http.take().map(|setup| serve(setup, health, vitals, &self.stop)).transpose()?;
        let mut work: Vec<LaneWork> = self
            .stores
            .into_iter()
            .zip(lanes)
            .enumerate()
            .map(|(number, (store, status))| {
                let (kafka, desk, settings) = (Arc::clone(&self.kafka), self.desk.clone(), self.lane.clone());
                let (metrics, stop, runtime) = (Arc::clone(&self.metrics), self.stop.clone(), Handle::current());
                let clock = self.clock.clone();
                let work: LaneWork = Box::new(move || {
                    let source = KafkaSource::join(&kafka).map_err(|error| LaneError::Fatal(error.to_string()))?;
                    let sink = KafkaSink::new(kafka, number);
                    let mut lane = Lane { source, sink, store, clock, desk, settings, stop, metrics, status };
                    // On this thread; what the store spawns runs on the runtime's own.
                    runtime.block_on(Box::pin(lane.run()))
                });
                work
            })
            .collect();
        work.extend(self.refunds.map(|(refunds, _)| refunds));
        let outcome = supervise(work, &self.stop, asked_to_stop, self.drain).await;
        if let Some(server) = server {
            server.ended().await;
        }
        Ok(outcome?)
    }
}

fn serve(
    setup: HttpSetup,
    health: Arc<WorkerHealth>,
    vitals: Vitals,
    stop: &CancellationToken,
) -> anyhow::Result<Server> {
    let HttpSetup { listener, options, inquiries } = setup;
    let sources = Sources {
        health,
        segments: Arc::clone(&vitals.segments),
        inquiries,
        metrics: Arc::clone(&vitals.metrics),
        vitals,
    };
    let address = listener.local_addr().context("the HTTP address")?;
    let server = http::start(listener, &options, sources, stop.clone()).context("HTTP")?;
    tracing::info!(%address, "HTTP is up");
    Ok(server)
}

/// How the store is: what the last look at it said.
#[derive(Debug, Clone, Default)]
pub struct StoreHealth(Arc<ArcSwapOption<StoreTrouble>>);

#[derive(Debug)]
struct StoreTrouble {
    message: String,
    lost_shards: usize,
}

impl StoreHealth {
    /// Notes what a look said.
    pub fn set(&self, look: Result<(), StoreError>) {
        let trouble = look.err().map(|error| {
            let lost_shards = match &error {
                StoreError::LostHistory { shards, .. } => shards.len(),
                StoreError::Temporary(_) | StoreError::Fatal(_) => 0,
            };
            Arc::new(StoreTrouble { message: error.to_string(), lost_shards })
        });
        self.0.store(trouble);
    }
}

struct WorkerHealth {
    lanes: Vec<Arc<LaneStatus>>,
    clock: ComparedClock<SystemClock>,
    refunds: Option<Arc<LaneStatus>>,
    metrics: Arc<Metrics>,
    redis: Option<Arc<RedisStats>>,
    store: StoreHealth,
    segments: Arc<Refreshed<SegmentSet>>,
    policy: Arc<Refreshed<Policy>>,
}

impl Health for WorkerHealth {
    fn stuck(&self) -> Result<(), String> {
        let passed = SystemClock.passed();
        let refunds = self.refunds.as_ref().is_some_and(|refunds| refunds.is_stuck(passed));
        match self.lanes.iter().position(|lane| lane.is_stuck(passed)) {
            None if refunds => Err("the reader of refunds has not made a turn for a minute".to_owned()),
            None => Ok(()),
            Some(lane) => Err(format!("lane {lane} has not made a turn for a minute")),
        }
    }

    fn waiting(&self) -> Result<(), Vec<String>> {
        let lane = |(number, lane): (usize, &Arc<LaneStatus>)| match lane.trouble() {
            Some(trouble) => Some(format!("lane {number}: {trouble}")),
            None if lane.is_assigned() => None,
            None => Some(format!("lane {number} waits for its partitions")),
        };
        let mut what: Vec<String> = self.lanes.iter().enumerate().filter_map(lane).collect();
        let refunds = self.refunds.as_ref().and_then(|refunds| refunds.trouble());
        what.extend(refunds.map(|trouble| format!("refunds: {trouble}")));
        what.extend(self.store.0.load().as_ref().map(|trouble| trouble.message.clone()));
        what.extend(self.clock.check().err().map(|wrong| wrong.to_string()));
        if what.is_empty() { Ok(()) } else { Err(what) }
    }

    fn metrics(&self) -> String {
        let ready = self.lanes.iter().filter(|lane| lane.is_assigned()).count();
        self.metrics.lanes_ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        let looked = self.store.0.load().as_ref().map_or(0, |trouble| trouble.lost_shards);
        let lost = self.lanes.iter().map(|lane| lane.lost_shards()).max().unwrap_or(0).max(looked);
        self.metrics.shards_lost.set(i64::try_from(lost).unwrap_or(i64::MAX));
        self.note_redis();
        self.note_clock();
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

/// Brings a counter to a total that is counted elsewhere.
fn bring(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

impl WorkerHealth {
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
        for cause in RetryCause::ALL {
            let label = ReasonLabel { reason: cause.label() };
            bring(&self.metrics.redis_retries.get_or_create(&label), stats.troubles(cause));
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
