//! `weir run`: the worker.

mod lanes;
mod readers;
mod routes;
mod services;
mod watch;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable, RetryableWithContext};
use clap::Args;
use tokio_util::sync::CancellationToken;
use weir_core::{
    current::Current,
    decider::Decider,
    policy::Policy,
    ports::{Clock as _, CommitTable, StoreError},
    segment::SegmentSet,
};
use weir_kafka::{
    client::KafkaOptions,
    limits,
    topics::{self, TopicError},
};
use weir_redis::{
    Absent, KeyspaceSeed, Opened, PooledStore, RedisActivityLog, RedisCommits, RedisLedger, RedisOptions, RedisPool,
    RedisRefunds, RedisStats, RedisStore, WhenMissing,
};
use weir_worker::{
    activity::Activity,
    budgets::{BudgetKeeper, Budgets},
    clock::{ComparedClock, SystemClock},
    deferred_shards::DeferredShards,
    lane::LaneSettings,
    pressure::PressureKeeper,
    refresh::{RefreshSource, Refreshed, keep_fresh},
    status::StoreStatus,
};

use self::{
    lanes::{lane_ends, wheels},
    readers::Readers,
    routes::{RoutedPolicy, Sharing, waiting_ends},
    watch::{watch_nodes, watch_shards},
};
use super::{
    args::ConfigFile,
    assemble::{self, START_PATIENCE},
    clocks,
    exit::UsageError,
    logging, signals, time_zones,
    worker::{HttpSetup, Worker, WorkerPressure, WorkerRoutes},
};
use crate::{
    budgets::LedgerPool,
    config::{KafkaSettings, Settings},
    deferred,
    http::{self, QueryPool},
    metrics::Metrics,
    policy_source::PolicySource,
    query::{EntryPoint, QueryService},
    segments::SegmentSource,
    traces::Traces,
    vitals::Nodes,
};

/// How often a question of HTTP is tried: who asks is told rather than kept waiting.
const QUERY_TRIES: usize = 3;

/// Tries of a batch before the lane hears of it, where intents go by `redis.unavailable_after`: one, and one for a
/// connection that was closed meanwhile.
const TRIES_WITHOUT_PATIENCE: usize = 2;

/// Arguments of `weir run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigFile,
}

/// Works until SIGTERM or Ctrl-C; `log_level` overrides the setting.
///
/// # Errors
/// [`UsageError`] for what the user has to correct; else what failed.
pub async fn run(args: &RunArgs, log_level: Option<&str>) -> anyhow::Result<()> {
    let settings = assemble::settings(&args.config.path)?;
    logging::start(&settings.log, log_level)?;
    tracing::info!("time zones are those of {}", time_zones::in_use());
    let mut asked_to_stop = std::pin::pin!(signals::asked_to_stop()?);
    let worker = tokio::select! {
        worker = Box::pin(start(&settings)) => worker?,
        () = &mut asked_to_stop => {
            tracing::info!("asked to stop while starting");
            return Ok(());
        }
    };
    worker.run(asked_to_stop).await
}

/// Reads and connects everything; changes nothing but what the settings allow to be made.
async fn start(settings: &Settings) -> anyhow::Result<Worker<RedisStore>> {
    let (stop, metrics) = (CancellationToken::new(), Arc::new(Metrics::default()));
    let traces =
        Traces::start(&settings.tracing, &settings.kafka.instance).map_err(|error| UsageError(format!("{error:#}")))?;

    let policy_object = assemble::object(&settings.policy.source, &settings.s3).await;
    let policy = PolicySource::new(policy_object, assemble::policy_bounds(settings))
        .map_err(|error| UsageError(error.to_string()))?;
    let (lanes, memory) = assemble::lanes_and_memory(settings)?;
    let commit_interval = settings.worker.commit_interval;
    let kafka = Arc::new(KafkaOptions { memory, commit_interval, ..assemble::kafka(&settings.kafka) });
    let create = settings.kafka.create_topics.then(|| assemble::new_topics(settings));
    let policy = RoutedPolicy::new(policy, Arc::clone(&kafka), create);
    let policy = fresh(policy, settings.policy.refresh, &stop).await?;
    let segments = assemble::object(&settings.segments.source, &settings.s3).await;
    let prefix = settings.segments.user_id_prefix.as_deref().unwrap_or_default();
    let segments = fresh(SegmentSource::new(segments, prefix), settings.segments.refresh, &stop).await?;
    warn_of_names(&policy.current(), &segments.current());

    ready_topics(&kafka, settings).await?;
    let wheels = wheels(&kafka, policy.current().defer_max_ms).await?;
    limits::find_out(&kafka).await;
    tokio::spawn(stop.clone().run_until_cancelled_owned(limits::keep_up(Arc::clone(&kafka))));
    let stats = Arc::new(RedisStats::default());
    let mut redis_options = assemble::redis(&settings.redis)?;
    if settings.redis.unavailable_after.is_some() {
        // A lane asks again by itself, and wants to know soon who does not answer.
        redis_options.tries = TRIES_WITHOUT_PATIENCE;
        redis_options.absent = Absent::Leave;
    }
    let redis_options = Arc::new(redis_options);
    let opened = open_redis(&redis_options, &stats, when_missing(&kafka).await?).await?;
    let store = {
        let (options, stats, opened) = (Arc::clone(&redis_options), Arc::clone(&stats), opened.clone());
        move || RedisStore::new(&options, &stats, &opened)
    };
    let clock = clocks::keep_comparing(&redis_options, &stats, &stop).await?;
    let (redis_status, nodes) = (StoreStatus::default(), Nodes::default());
    let pool = query_pool(&redis_options, &stats, &opened, settings.http.concurrency);
    // One try, and one for a connection that was closed meanwhile: what is found is what is shown.
    let look = Arc::new(RedisOptions { tries: TRIES_WITHOUT_PATIENCE, ..redis_options.as_ref().clone() });
    tokio::spawn(watch_shards(
        RedisStore::new(&look, &stats, &opened),
        redis_status.clone(),
        Arc::clone(&pool),
        stop.clone(),
    ));
    tokio::spawn(watch_nodes(store(), nodes.clone(), stop.clone()));

    let log = RedisActivityLog::new(&look, &stats, &opened, settings.kafka.instance.clone());
    let pressure = pressure(log, &clock, policy.value(), &metrics).await?;
    let deferred = deferred::keep_counting(&kafka, &wheels, &metrics, &stop)?;

    let decider = Decider {
        topic: settings.kafka.intents.as_str().into(),
        fields: assemble::fields(settings)?,
        segments: segments.value(),
        policy: policy.value(),
        limits: Arc::clone(&kafka.limits),
        wheel: wheels.first().map(|(_, wheel)| *wheel),
        pressure: Some(Arc::clone(&pressure.shared)),
        routes: Some(Arc::clone(&kafka.routes)),
        approved_by_channel: kafka.approved_by_channel(),
    };
    let readers = Readers { kafka: &kafka, drain: settings.worker.drain, metrics: &metrics, stop: &stop };
    let reader = assemble::activity_fields(settings)?;
    let activity = readers.activity(Activity { reader, pressure: Arc::clone(&pressure.shared) }, &clock);
    let refunds = readers.refunds(|| RedisRefunds::new(&redis_options, &stats, &opened));
    let deferred_shards = Arc::default();
    let ledger = |options: &Arc<RedisOptions>| {
        let (options, stats, opened) = (Arc::clone(options), Arc::clone(&stats), opened.clone());
        let instance = settings.kafka.instance.clone();
        move || RedisLedger::new(&options, &stats, &opened, instance.clone())
    };
    let metrics_of_budgets = Arc::<Metrics>::clone(&metrics);
    let (keeper, budgets) = BudgetKeeper::new(ledger(&redis_options), clock.clone(), metrics_of_budgets);
    tokio::spawn(keeper.run());
    let http = HttpSetup {
        listener: http::bind(settings.http.listen).await.map_err(anyhow::Error::msg)?,
        options: settings.http.clone(),
        queries: Arc::new(queries(
            &pool,
            (&settings.kafka, settings.http.concurrency, &budgets),
            (&decider, &clock, &metrics, &deferred_shards),
        )),
    };
    let noting = {
        let (options, stats, opened) = (Arc::clone(&redis_options), Arc::clone(&stats), opened.clone());
        move |group: &str| -> Arc<dyn CommitTable> { Arc::new(RedisCommits::start(&options, &stats, &opened, group)) }
    };
    let sharing = Sharing { options: &look, stats: &stats, opened: &opened, clock: &clock, stop: &stop };
    let routes = WorkerRoutes {
        status: sharing.keep(&kafka, policy.value()),
        waiting: waiting_ends(&kafka, noting.clone(), store.clone()),
        known: ask_kafka(&kafka, routes::known).await?,
    };
    let due_lanes = assemble::reads_beside(&settings.kafka).due_lanes(lanes);
    let lanes = lane_ends(&kafka, (lanes, &due_lanes), &wheels, &noting, &store);
    Ok(Worker {
        lanes,
        readers: refunds.into_iter().chain([activity]).flatten().collect(),
        decider,
        segments,
        policy,
        budgets,
        ledger: Arc::new(LedgerPool::new(ledger(&look))),
        pressure: Some(pressure),
        services: services::start((&look, &stats, &opened), &clock, &metrics),
        lane: LaneSettings {
            batch: settings.worker.batch,
            commit_interval,
            drain: settings.worker.drain,
            unavailable_after: settings.redis.unavailable_after,
            deferred_bytes: usize::try_from(memory.deferred_bytes).unwrap_or(usize::MAX),
            deferred_shards,
        },
        http: Some(http),
        drain: settings.worker.drain,
        metrics,
        traces,
        clock,
        redis: Some(stats),
        store: redis_status,
        nodes,
        deferred,
        routes,
        stop,
    })
}

/// Reads who is active, and begins to share it with other instances.
async fn pressure(
    log: RedisActivityLog,
    clock: &ComparedClock<SystemClock>,
    policy: Arc<Current<Policy>>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<WorkerPressure> {
    let (mut keeper, shared, status) = PressureKeeper::new(log, clock.clone(), policy, Arc::<Metrics>::clone(metrics));
    keeper.load(START_PATIENCE).await?;
    let stop = CancellationToken::new();
    let task = tokio::spawn(keeper.run(stop.clone()));
    Ok(WorkerPressure { shared, status, stop, task })
}

/// Connections to Redis for HTTP: what hangs there holds up no lane. One node may keep at most half of the requests that HTTP
/// takes on waiting, so that the others are asked whatever becomes of it.
fn query_pool(options: &RedisOptions, stats: &Arc<RedisStats>, opened: &Opened, concurrency: usize) -> Arc<RedisPool> {
    let options = Arc::new(RedisOptions { tries: QUERY_TRIES, ..options.clone() });
    RedisPool::new(&options, stats, opened, concurrency / 2)
}

/// Answers HTTP: as many at the same time as HTTP takes on. Who waits for a node waits in the pool.
fn queries(
    pool: &Arc<RedisPool>,
    (kafka, concurrency, budgets): (&KafkaSettings, usize, &Budgets),
    (decider, clock, metrics, deferred_shards): (
        &Decider,
        &ComparedClock<SystemClock>,
        &Arc<Metrics>,
        &Arc<DeferredShards>,
    ),
) -> QueryPool<PooledStore, ComparedClock<SystemClock>> {
    let topics: Arc<[String]> = kafka.topics_of_users().into();
    let one = || {
        let store = PooledStore(Arc::clone(pool));
        // What is asked over HTTP is answered now.
        let decider = Decider { wheel: None, ..decider.clone() };
        QueryService::new(&decider, EntryPoint::Http, store, clock.clone(), Arc::clone(metrics))
            .beside(Arc::clone(deferred_shards))
            .of_topics(Arc::clone(&topics))
            .taking(budgets.claimant())
    };
    QueryPool::new((0..concurrency).map(|_| one()).collect())
}

/// Reads a source for the first time, and keeps it fresh from then on. Without a first value there is no start.
async fn fresh<S: RefreshSource + 'static>(
    source: S,
    every: Duration,
    stop: &CancellationToken,
) -> anyhow::Result<Arc<Refreshed<S::Value>>> {
    let (source, first) = first(source, START_PATIENCE).await?;
    tracing::info!(what = S::NAME, version = S::version(&first), "loaded");
    let refreshed = Refreshed::new(first);
    tokio::spawn(keep_fresh(source, Arc::clone(&refreshed), every, stop.clone()));
    Ok(refreshed)
}

/// The first value of a source. A store that does not answer is asked again for so long, and is then a failure at
/// run time; what somebody has to correct ends the start at once.
async fn first<S: RefreshSource>(source: S, patience_for: Duration) -> anyhow::Result<(S, Arc<S::Value>)> {
    let begun = Instant::now();
    let read = |mut source: S| async move {
        let read = source.load().await;
        (source, read)
    };
    let (source, first) = read
        .retry(patience().with_total_delay(Some(patience_for)))
        .context(source)
        .when(|error| S::is_temporary(error) && begun.elapsed() < patience_for)
        .notify(|error, pause| tracing::warn!("{error}; trying again in {pause:?}"))
        .await;
    let first = first.map_err(|error| match S::is_temporary(&error) {
        true => anyhow::anyhow!("{error}"),
        false => UsageError(error.to_string()).into(),
    })?;
    let first = first.with_context(|| format!("no {} at the first read", S::NAME))?;
    Ok((source, first))
}

/// Names that are on one side only are no reason not to start, but seldom meant.
fn warn_of_names(policy: &Policy, set: &SegmentSet) {
    let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
    for name in policy.unnamed(&names) {
        tracing::warn!(segment = name, "the policy does not name this segment: its users are under [default]");
    }
    for name in policy.absent(&names) {
        tracing::warn!(segment = name, "the policy names a segment that the set does not have");
    }
    for overlap in set.overlaps() {
        let (first, second) = (names[overlap.first], names[overlap.second]);
        tracing::warn!(first, second, users = overlap.users, "users are in two segments: the first one counts");
    }
}

fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_total_delay(Some(START_PATIENCE))
        .without_max_times()
        .with_jitter()
}

/// Asks Kafka something, again while it is unreachable.
async fn ask_kafka<T: Send + 'static>(
    kafka: &Arc<KafkaOptions>,
    ask: fn(&KafkaOptions) -> Result<T, TopicError>,
) -> anyhow::Result<T> {
    (|| assemble::ask_kafka(kafka, ask))
        .retry(patience())
        .when(|error: &anyhow::Error| matches!(error.downcast_ref(), Some(TopicError::Unreachable { .. })))
        .notify(|error, pause| tracing::warn!("{error}; trying again in {pause:?}"))
        .await
}

/// Makes sure that all topics are there; makes them where the user allows it.
async fn ready_topics(kafka: &Arc<KafkaOptions>, settings: &Settings) -> anyhow::Result<()> {
    let Err(error) = ask_kafka(kafka, topics::verify).await else { return Ok(()) };
    match error.downcast() {
        Ok(TopicError::Missing { topics, .. }) if settings.kafka.create_topics => {
            tracing::info!(?topics, "creating missing topics");
            Ok(topics::create(kafka, &topics, assemble::new_topics(settings)).await?)
        }
        Ok(error @ TopicError::Missing { .. }) => Err(UsageError(error.to_string()).into()),
        Ok(error) => Err(error.into()),
        Err(error) => Err(error),
    }
}

/// Whether a keyspace that is missing may be made. Where the group has decided intents before, it has been lost, and an
/// empty one would let everybody be written to anew: only a person may say so (`weir check --create`).
async fn when_missing(kafka: &Arc<KafkaOptions>) -> anyhow::Result<WhenMissing> {
    let has_progress = ask_kafka(kafka, topics::has_progress).await?;
    Ok(if has_progress { WhenMissing::Refuse } else { WhenMissing::Create })
}

async fn open_redis(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    when_missing: WhenMissing,
) -> anyhow::Result<Opened> {
    let keyspace_seed = KeyspaceSeed { epoch: assemble::new_epoch(), now: SystemClock.now() };
    let opened = (|| weir_redis::open(options, stats, when_missing, keyspace_seed.clone()))
        .retry(patience())
        .when(|error| matches!(error, StoreError::Temporary(_)))
        .notify(|error, pause| tracing::warn!("{error}; trying again in {pause:?}"))
        .await?;
    for warning in &opened.warnings {
        tracing::warn!("{warning}");
    }
    if !opened.lost.is_empty() {
        tracing::error!(shards = ?opened.lost, "these shards have lost their history: their intents wait for a rebuild");
    }
    Ok(opened)
}

#[cfg(test)]
mod tests;
