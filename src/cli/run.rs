//! `weir run`: the worker.

mod kafka_files;
mod lanes;
mod readers;
mod redis;
mod routes;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable, RetryableWithContext};
use clap::Args;
use tokio_util::sync::CancellationToken;
use weir_core::{batch::decider::Decider, policy::Policy, segment::SegmentSet};
use weir_kafka::{
    client::KafkaOptions,
    limits,
    new_topics::{self, Holds},
    topics::{self, TopicError},
};
use weir_redis::{PooledStore, RedisStore};
use weir_worker::{
    activity::Activity,
    clock::{ComparedClock, SystemClock},
    deferred_shards::DeferredShards,
    lane::LaneSettings,
    refresh::{RefreshSource, Refreshed, keep_fresh},
};

use self::{
    kafka_files::KafkaFiles,
    lanes::{lane_ends, wheels},
    readers::Readers,
    redis::OpenRedis,
    routes::{RoutedPolicy, waiting_ends},
};
use super::{
    args::ConfigFile,
    assemble::{self, START_PATIENCE},
    clocks,
    exit::UsageError,
    logging, signals, time_zones,
    worker::{HttpSetup, LimitLinks, Worker, WorkerLimits, WorkerRoutes},
};
use crate::{
    config::{HttpSettings, Settings},
    deferred,
    http::{self, QueryPool},
    metrics::Metrics,
    query::{EntryPoint, QueryService},
    traces::Traces,
};

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
        _ = &mut asked_to_stop => {
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
    let fields = assemble::fields(settings)?;
    let files = KafkaFiles::of(&settings.kafka);

    let (lanes, memory) = assemble::lanes_and_memory(settings)?;
    assemble::kafka_properties(&settings.kafka, memory)?;
    let kafka = assemble::signed_kafka(&settings.kafka).await?;
    let kafka = Arc::new(KafkaOptions { memory, commit_interval: settings.worker.commit_interval, ..kafka });
    let (policy, segments) = load(settings, &kafka, &stop).await?;

    ready_topics(&kafka, settings).await?;
    let wheels = wheels(&kafka, policy.current().defer_max_ms).await?;
    limits::find_out(&kafka).await;
    keep_up(&kafka, files, &stop);
    let redis = Arc::new(OpenRedis::open(settings, &kafka).await?);
    let clock = clocks::keep_comparing(&redis.options, &redis.stats, &stop).await?;
    let pool = redis.query_pool(settings.http.concurrency);
    let (store, nodes) = redis.watch(&pool, &stop);
    let links = LimitLinks { kafka: &kafka, policy: &policy, clock: &clock, metrics: &metrics, stop: &stop };
    let limits = WorkerLimits::start(redis.limits(&clock), links).await?;
    let deferred = deferred::keep_counting(&kafka, &wheels, &metrics, &stop)?;

    let decider = Decider {
        fields,
        limits: Arc::clone(&kafka.limits),
        wheel: wheels.first().map(|(_, wheel)| *wheel),
        held: limits.held.clone(),
        approved_by_channel: kafka.approved_by_channel(),
        ..Decider::new(kafka.intents.as_str(), segments.value(), policy.value())
    };
    let readers = Readers { kafka: &kafka, drain: settings.worker.drain, metrics: &metrics, stop: &stop };
    let reader = assemble::activity_fields(settings)?;
    let activity = readers.activity(Activity { reader, pressure: Arc::clone(&limits.active) }, &clock);
    let refunds = readers.refunds(|| redis.refunds());
    let deferred_shards = Arc::<DeferredShards>::default();
    // What is asked over HTTP is answered now. Who waits for a node waits in the pool.
    let asked = Decider { wheel: None, ..decider.clone() };
    let topics: Arc<[String]> = settings.kafka.topics_of_users().into();
    let query = || {
        let store = PooledStore::new(Arc::clone(&pool));
        QueryService::new(&asked, EntryPoint::Http, store, clock.clone(), Arc::clone(&metrics))
            .beside(Arc::clone(&deferred_shards))
            .of_topics(Arc::clone(&topics))
            .taking(limits.budgets.claimant())
    };
    let http = http_setup(&settings.http, query).await?;
    let routes =
        WorkerRoutes { waiting: waiting_ends(&kafka, &redis), known: routes::known((&kafka, &redis), &stop).await? };
    let due_lanes = assemble::reads_beside(&settings.kafka).due_lanes(lanes);
    let lanes = lane_ends(&kafka, (lanes, &due_lanes), &wheels, &redis);
    Ok(Worker {
        lanes,
        readers: refunds.into_iter().chain([activity]).flatten().collect(),
        decider,
        segments,
        policy,
        limits,
        lane: lane_settings(settings, memory.deferred_bytes, deferred_shards),
        http: Some(http),
        drain: settings.worker.drain,
        metrics,
        traces,
        clock,
        redis: Some(Arc::clone(&redis.stats)),
        store,
        nodes,
        deferred,
        routes,
        stop,
    })
}

/// Keeps what clients of Kafka are created from up to date.
fn keep_up(kafka: &Arc<KafkaOptions>, files: KafkaFiles, stop: &CancellationToken) {
    tokio::spawn(stop.clone().run_until_cancelled_owned(limits::keep_up(Arc::clone(kafka))));
    tokio::spawn(stop.clone().run_until_cancelled_owned(files.keep_up(Arc::clone(kafka))));
}

/// Loads the policy and the segments, and keeps them fresh.
async fn load(
    settings: &Settings,
    kafka: &Arc<KafkaOptions>,
    stop: &CancellationToken,
) -> anyhow::Result<(Arc<Refreshed<Policy>>, Arc<Refreshed<SegmentSet>>)> {
    let policy = assemble::policy_source(settings).await.map_err(|error| UsageError(error.to_string()))?;
    let create = settings.kafka.create_topics.then(|| assemble::new_topics(settings));
    let policy = RoutedPolicy::new(policy, Arc::clone(kafka), create);
    let policy = fresh(policy, settings.policy.refresh, stop).await?;
    let segments = fresh(assemble::segment_source(settings).await, settings.segments.refresh, stop).await?;
    warn_of_names(&policy.current(), &segments.current());
    Ok((policy, segments))
}

fn lane_settings(settings: &Settings, deferred_bytes: u64, deferred_shards: Arc<DeferredShards>) -> LaneSettings {
    LaneSettings {
        batch: settings.worker.batch,
        commit_interval: settings.worker.commit_interval,
        drain: settings.worker.drain,
        unavailable_after: settings.redis.unavailable_after,
        deferred_bytes: usize::try_from(deferred_bytes).unwrap_or(usize::MAX),
        deferred_shards,
    }
}

/// Answers as many at the same time as HTTP takes on.
async fn http_setup(
    options: &HttpSettings,
    query: impl Fn() -> QueryService<PooledStore, ComparedClock<SystemClock>>,
) -> anyhow::Result<HttpSetup> {
    Ok(HttpSetup {
        listener: http::bind(options.listen).await.map_err(anyhow::Error::msg)?,
        options: options.clone(),
        queries: Arc::new(QueryPool::new((0..options.concurrency).map(|_| query()).collect())),
    })
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
            let new = assemble::new_topics(settings);
            Ok(new_topics::create(kafka, (&topics, Holds::Configured), new).await?)
        }
        Ok(error @ TopicError::Missing { .. }) => Err(UsageError(error.to_string()).into()),
        Ok(error) => Err(error.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
