//! Puts a worker together: lanes on a Kafka edge, any store, health and metrics on HTTP. `run` and `demo` share it.

mod health;
mod limits;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{net::TcpListener, runtime::Handle, time::timeout};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::current::Current,
    batch::decider::Decider,
    policy::Policy,
    ports::{CommitTable, Store},
    segment::SegmentSet,
};
use weir_kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource};
use weir_redis::RedisStats;
use weir_worker::{
    budgets::Budgets,
    clock::{ComparedClock, SystemClock},
    lane::{Lane, LaneError, LaneSettings, Task},
    pressure::AskedTurns,
    refresh::Refreshed,
    routes::{WaitingLanes, WaitingStatuses, waited_for},
    status::{LaneStatus, StoreStatus},
    supervise::{LaneWork, supervise},
};

use self::health::WorkerHealth;
pub use self::limits::{Connect, LimitClients, LimitLinks, WorkerLimits};
use super::signals::Asked;
use crate::{
    config::HttpSettings,
    deferred::DeferredCount,
    http::{self, ActivityReports, Degraded, Queries, Server, Sources},
    limits::LimitsDesk,
    metrics::{Metrics, TopicLabel},
    traces::Traces,
    vitals::{Nodes, Vitals},
};

/// All that a worker is made of.
pub struct Worker<D> {
    pub lanes: Vec<LaneEnds<D>>,
    pub decider: Decider,
    pub segments: Arc<Refreshed<SegmentSet>>,
    pub policy: Arc<Refreshed<Policy>>,
    pub limits: WorkerLimits,
    pub lane: LaneSettings,
    /// The readers of topics beside the intents.
    pub readers: Vec<BesideReader>,
    pub http: Option<HttpSetup>,
    /// How long lanes may take to end.
    pub drain: Duration,
    pub metrics: Arc<Metrics>,
    /// Traces of batches, where they are wanted.
    pub traces: Option<Traces>,
    pub routes: WorkerRoutes<D>,
    /// What everything is decided by.
    pub clock: ComparedClock<SystemClock>,
    /// What the Redis edge counts, where there is one.
    pub redis: Option<Arc<RedisStats>>,
    /// How the store is, as far as somebody looks.
    pub store: StoreStatus,
    /// The store's nodes, as far as somebody looks.
    pub nodes: Nodes,
    /// The deferred intents, where intents can be deferred.
    pub deferred: Option<DeferredCount>,
    /// The shutdown signal of the lanes and of all other tasks.
    pub stop: CancellationToken,
}

/// What a worker has for what waits for routes.
pub struct WorkerRoutes<D> {
    /// Makes the ends of the lane that reads what waits for a route, by the route's name; `None`: nothing can wait.
    pub waiting: Option<WaitingEnds<D>>,
    /// Routes for which something may wait, whatever the policy says.
    pub known: Arc<Current<BTreeSet<String>>>,
}

/// See [`WorkerRoutes`].
pub type WaitingEnds<D> = Box<dyn Fn(&Arc<str>) -> LaneEnds<D> + Send>;

/// The reader of a topic beside the intents, and how it stands.
pub struct BesideReader {
    /// What is degraded while it waits.
    pub what: Degraded,
    pub work: LaneWork,
    pub status: Arc<LaneStatus>,
}

/// What one lane has for itself.
pub struct LaneEnds<D> {
    /// What it reads, and what it does with it.
    pub task: Task,
    pub kafka: Arc<KafkaOptions>,
    /// Its number among the lanes of its group in this process.
    pub number: usize,
    /// Where it is noted what the group has committed; `None` where the store is no older than the broker.
    pub commits: Option<Arc<dyn CommitTable>>,
    pub store: D,
}

/// What the HTTP interface is made of, beside what the lanes have.
pub struct HttpSetup {
    /// Where it listens; bound already.
    pub listener: TcpListener,
    pub options: HttpSettings,
    pub queries: Arc<dyn Queries>,
}

impl<D: Store + 'static> Worker<D> {
    /// Works until `asked_to_stop` is done.
    ///
    /// # Errors
    /// A lane or the task of a limit failed, or a lane did not end in time, or the HTTP address is not free.
    pub async fn run(mut self, asked_to_stop: impl Future<Output = Asked>) -> anyhow::Result<()> {
        let lanes: Vec<Arc<LaneStatus>> = self.lanes.iter().map(|_| Arc::default()).collect();
        let waiting = WaitingStatuses::default();
        let http_drain = self.http.as_ref().map(|setup| setup.options.drain).unwrap_or_default();
        let http = self.http.take();
        let server = http.map(|setup| self.serve(setup, (&lanes, &waiting))).transpose()?;
        let parts = LaneParts {
            decider: self.decider,
            settings: self.lane,
            metrics: self.metrics,
            stop: self.stop.clone(),
            clock: self.clock,
            budgets: self.limits.budgets.clone(),
            turns: self.limits.turns.clone(),
            traces: self.traces.clone(),
            runtime: Handle::current(),
        };
        let mut work: Vec<LaneWork> =
            self.lanes.into_iter().zip(lanes).map(|(ends, status)| parts.clone().lane(ends, status)).collect();
        if let Some(ends_of) = self.routes.waiting {
            let runtime = parts.runtime.clone();
            let make = Box::new(move |route: &Arc<str>| parts.clone().waiting_lane(ends_of(route), (&waiting, route)));
            let (policy, known, stop) = (self.policy.value(), self.routes.known, self.stop.clone());
            work.push(Box::new(move || WaitingLanes { policy, known, make, stop }.run(&runtime)));
        }
        work.extend(self.readers.into_iter().map(|reader| reader.work));
        let (mut asked_at, mut limit_failed) = (None, false);
        let limits_ended = &mut self.limits.ended;
        let asked_to_stop = async {
            let drained = async {
                if asked_to_stop.await == Asked::Terminate
                    && let Some(server) = &server
                {
                    drain(server, http_drain).await;
                }
            };
            tokio::select! {
                () = drained => {}
                Some(()) = limits_ended.recv() => limit_failed = true,
            }
            asked_at = Some(Instant::now());
        };
        let outcome = supervise(work, &self.stop, asked_to_stop, self.drain).await;
        let left = || self.drain.saturating_sub(asked_at.map(|at| at.elapsed()).unwrap_or_default());
        let requests = async {
            if let Some(server) = server {
                let _ = timeout(left(), server.ended()).await;
            }
        };
        self.limits.close(requests).await;
        if let Some(traces) = self.traces {
            traces.close(left()).await;
        }
        anyhow::ensure!(
            !limit_failed,
            "a bug in weir ended the task of a limit (the panic is in the log above); please report it"
        );
        Ok(outcome?)
    }

    /// Begins to serve HTTP.
    fn serve(
        &self,
        HttpSetup { listener, options, queries }: HttpSetup,
        (lanes, waiting): (&[Arc<LaneStatus>], &WaitingStatuses),
    ) -> anyhow::Result<Server> {
        let limits = Arc::clone(&self.limits.desk);
        let sources = Sources {
            health: Arc::new(self.health((lanes, waiting), Arc::clone(&limits))),
            segments: Arc::clone(&self.segments),
            queries,
            activity: ActivityReports {
                policy: Arc::clone(&self.policy),
                pressure: Arc::clone(&self.limits.active),
                clock: self.clock.clone(),
                metrics: Arc::clone(&self.metrics),
            },
            services: self.limits.services.clone(),
            metrics: Arc::clone(&self.metrics),
            vitals: Vitals {
                metrics: Arc::clone(&self.metrics),
                segments: Arc::clone(&self.segments),
                policy: Arc::clone(&self.policy),
                lanes: lanes.to_vec(),
                nodes: self.nodes.clone(),
                deferred: self.deferred.clone(),
                limits,
            },
        };
        let address = listener.local_addr().context("the HTTP address")?;
        let server = http::start(listener, &options, sources, self.stop.clone()).context("HTTP")?;
        tracing::info!(%address, "HTTP is up");
        Ok(server)
    }

    fn health(
        &self,
        (lanes, waiting): (&[Arc<LaneStatus>], &WaitingStatuses),
        limits: Arc<LimitsDesk>,
    ) -> WorkerHealth {
        WorkerHealth {
            lanes: lanes.to_vec(),
            waiting: health::WaitingHealth::new(waiting, self.waited_for_at_start()),
            metrics: Arc::clone(&self.metrics),
            clock: self.clock.clone(),
            segments: Arc::clone(&self.segments),
            policy: Arc::clone(&self.policy),
            redis: self.redis.clone(),
            store: self.store.clone(),
            readers: self.readers.iter().map(|reader| (reader.what, Arc::clone(&reader.status))).collect(),
            limits,
        }
    }

    /// The routes whose lanes of waiting intents belong to the start: a route that a later policy adds does not make a process unready
    /// that has been ready.
    fn waited_for_at_start(&self) -> BTreeSet<Arc<str>> {
        match self.routes.waiting {
            Some(_) => waited_for(&self.policy.current(), &self.routes.known.get()),
            None => BTreeSet::new(),
        }
    }
}

/// What all lanes have in common.
#[derive(Clone)]
struct LaneParts {
    decider: Decider,
    settings: LaneSettings,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    clock: ComparedClock<SystemClock>,
    budgets: Budgets,
    turns: AskedTurns,
    traces: Option<Traces>,
    runtime: Handle,
}

impl LaneParts {
    /// What the lane of a route's waiting intents does. It has a status until it has ended.
    fn waiting_lane<D: Store + 'static>(
        self,
        ends: LaneEnds<D>,
        (statuses, route): (&WaitingStatuses, &Arc<str>),
    ) -> LaneWork {
        let (statuses, route) = (statuses.clone(), Arc::clone(route));
        let lane = self.lane(ends, statuses.add(&route));
        Box::new(move || {
            let end = lane();
            statuses.remove(&route);
            end
        })
    }

    /// What a lane with these ends does.
    fn lane<D: Store + 'static>(self, ends: LaneEnds<D>, status: Arc<LaneStatus>) -> LaneWork {
        let Self { mut decider, settings, metrics, stop, clock, budgets, turns, traces, runtime } = self;
        let LaneEnds { task, kafka, number, commits, store } = ends;
        if task != Task::Intents {
            // Of what weir has not written: a deferred intent has its first record's.
            decider.topic = kafka.intents.as_str().into();
        }
        let budgets = budgets.claimant();
        let tracer = traces.map(|traces| traces.of_lane(&kafka, task, number));
        let on_deleted = deleted(kafka.intents.clone(), (Arc::clone(&metrics), Arc::clone(&status)));
        Box::new(move || {
            let source = KafkaSource::join(&kafka).map_err(|error| LaneError::Fatal(error.to_string()))?;
            let source = source.noting_in(commits).telling_of_deleted(on_deleted);
            let sink = KafkaSink::new(kafka, number);
            let mut lane = Lane {
                source,
                sink,
                store,
                clock,
                task,
                decider,
                budgets,
                turns,
                settings,
                stop,
                metrics,
                tracer,
                status,
            };
            // On this thread; what the store spawns runs on the runtime's own.
            runtime.block_on(Box::pin(lane.run()))
        })
    }
}

/// Notes how many offsets of a topic retention has deleted undecided.
fn deleted(topic: String, (metrics, status): (Arc<Metrics>, Arc<LaneStatus>)) -> impl Fn(u64) + Send + 'static {
    move |offsets| {
        metrics.deleted_undecided.get_or_create(&TopicLabel { topic: topic.clone() }).inc_by(offsets);
        status.note_deleted(format!(
            "retention has deleted {offsets} offsets of {topic} undecided: as many intents are lost at the most, fewer where \
             transactions were aborted. They were not read for longer than retention.ms allows: what held the lane up?"
        ));
    }
}

/// Answers while callers turn to other instances: the lanes go on meanwhile, so that every answer is as before.
async fn drain(server: &Server, drain: Duration) {
    server.drain();
    if !drain.is_zero() {
        tracing::info!("asked to stop: /readyz is 503, and all goes on for {drain:?} (http.drain)");
        tokio::time::sleep(drain).await;
    }
}
