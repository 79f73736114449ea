//! `weir demo`: the whole thing on one machine with nothing installed. The broker is librdkafka's mock cluster, the
//! store is the embedded one; the worker between them is the one that `weir run` runs.

mod summary;
mod traffic;
mod watcher;

use std::{collections::BTreeMap, io::Write, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use indicatif::ProgressBar;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::RDKafkaErrorCode,
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weir_core::{
    activity_log::EmbeddedActivityLog,
    decider::Decider,
    embedded::EmbeddedStore,
    fields::FieldMap,
    ledger::EmbeddedLedger,
    memory::LaneMemory,
    policy::Policy,
    policy_file::parse_policy,
    ports::Clock as _,
    service::EmbeddedServices,
    wheel::{Ring, Wheel},
};
use weir_kafka::client::{COMMIT_INTERVAL, Delivery, KafkaOptions, RECORDS_A_CALL, ReadOrder, Reads, WheelTopics};
use weir_worker::{
    budgets::BudgetKeeper,
    clock::{ComparedClock, SystemClock},
    lane::{LaneSettings, Task},
    pressure::PressureKeeper,
    refresh::Refreshed,
    routes::RoutesStatus,
    services::ServiceKeeper,
    status::StoreStatus,
};

use self::{summary::Summary, watcher::Watcher};
use super::{
    output::progress,
    signals,
    worker::{HttpSetup, LaneEnds, Worker, WorkerPressure, WorkerRoutes},
};
use crate::{
    budgets::LedgerPool,
    config::HttpSettings,
    http::{self, QueryPool},
    metrics::Metrics,
    query::{EntryPoint, QueryService},
    vitals::Nodes,
};

/// The demo's policy.
const POLICY: &str = include_str!("policy.toml");
/// Partitions of each topic. The mock cluster keeps some 5 MB of a partition, so that the demo's records fit.
const PARTITIONS: i32 = 16;
/// The wheel of deferred intents: one partition a bucket.
const WHEEL: Wheel = Wheel { shares: 1 };
/// How long sends are remembered: 8 days, as in a real worker.
const HISTORY_MS: i64 = 8 * 24 * 60 * 60 * 1000;
/// The most intents of a demo: what fits into what the mock cluster keeps.
const MOST_INTENTS: u32 = 100_000;
/// How long the lanes may take to end.
const DRAIN: Duration = Duration::from_secs(20);
/// How long the demo waits for its records before it calls it a failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments of `weir demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many intents to publish
    #[arg(long, value_name = "N", default_value_t = MOST_INTENTS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_INTENTS)))]
    publish: u32,
    /// Where the HTTP interface listens; port 0: any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Stay up after the summary and print the broker's address, so that any Kafka client can publish and consume
    #[arg(long)]
    keep: bool,
}

/// The broker, and what the worker and the watcher need to know of it.
struct Broker {
    // Ends with this value.
    _cluster: MockCluster<'static, DefaultProducerContext>,
    options: Arc<KafkaOptions>,
}

impl Broker {
    fn start() -> anyhow::Result<Self> {
        let cluster = MockCluster::new(1).context("the embedded broker does not start")?;
        let deferred = WheelTopics::of("send-deferred");
        let options = KafkaOptions {
            refunds: None,
            activity: None,
            delivery_reports: None,
            retries: None,
            undelivered: None,
            deferred: Some(deferred.clone()),
            deferred_before: Vec::new(),
            waiting: None,
            routes: Arc::default(),
            reads: Reads::Published,
            read_order: ReadOrder::AsFetched,
            brokers: cluster.bootstrap_servers(),
            group: "weir".to_owned(),
            intents: "send-intents".to_owned(),
            approved: "send-approved".to_owned(),
            approved_by_channel: BTreeMap::new(),
            suppressed: "send-suppressed".to_owned(),
            dead_letters: "send-dead-letters".to_owned(),
            delivery: Delivery::ExactlyOnce,
            instance: "demo".to_owned(),
            tokens: None,
            properties: BTreeMap::new(),
            files: Arc::default(),
            memory: LaneMemory::default(),
            records_a_call: RECORDS_A_CALL,
            commit_interval: COMMIT_INTERVAL,
            limits: Arc::default(),
        };
        let buckets = |ring: Ring| i32::try_from(ring.buckets() * i64::from(WHEEL.shares)).unwrap_or(i32::MAX);
        let rings = Ring::ALL.map(|ring| (deferred.topic(ring), buckets(ring)));
        for (topic, partitions) in options.topics().map(|topic| (topic, PARTITIONS)).into_iter().chain(rings) {
            cluster.create_topic(topic, partitions, 1).with_context(|| format!("the topic {topic}"))?;
        }
        commit_beginnings(&options, &rings)?;
        Ok(Self { _cluster: cluster, options: Arc::new(options) })
    }
}

/// Commits the beginnings of the wheel's topics: the mock cluster refuses a lane's start there while another lane of the group joins.
fn commit_beginnings(options: &KafkaOptions, rings: &[(&str, i32)]) -> anyhow::Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers).set("group.id", options.later_group());
    let nobody: BaseConsumer = config.create().context("no client for the embedded broker")?;
    let mut beginnings = TopicPartitionList::new();
    for &(topic, partitions) in rings {
        for partition in 0..partitions {
            beginnings.add_partition_offset(topic, partition, Offset::Offset(0))?;
        }
    }
    nobody.commit(&beginnings, CommitMode::Sync).context("the embedded broker takes no offsets")
}

/// Runs the demo.
///
/// # Errors
/// Something of it did not start, or the records did not come out in time.
pub async fn run(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let policy = parse_policy("the demo's policy", POLICY, weir_core::document::Format::Toml, HISTORY_MS)?;
    let broker = Broker::start()?;
    let stop = CancellationToken::new();
    let listener = http::bind(args.listen).await.map_err(anyhow::Error::msg)?;
    let http = listener.local_addr().context("the HTTP address")?;
    let worker = tokio::spawn(worker(Arc::clone(&broker.options), policy, listener, stop.clone()));

    let template = "deciding [{bar:40}] {human_pos}/{human_len} intents  {per_sec}  {eta} left";
    let bar = progress(Some(u64::from(args.publish)), template);
    let options = Arc::clone(&broker.options);
    let (count, watch_bar) = (args.publish, bar.clone());
    let publisher = tokio::task::spawn_blocking(move || publish(&options, count));
    let options = Arc::clone(&broker.options);
    let watcher = tokio::task::spawn_blocking(move || watch(&options, count, &watch_bar));
    let summary = tokio::select! {
        summary = watcher => summary.context("the watcher")??,
        // The worker ends before the watcher only when it fails.
        ended = worker => {
            ended.context("the worker")??;
            anyhow::bail!("the worker ended before all intents were decided");
        }
    };
    publisher.await.context("the publisher")??;
    bar.finish_and_clear();
    summary.print(out)?;
    if args.keep {
        keep(&broker.options, http, out).await?;
    } else {
        summary::how_to_go_on(out)?;
    }
    stop.cancel();
    Ok(())
}

async fn worker(
    kafka: Arc<KafkaOptions>,
    policy: Policy,
    listener: TcpListener,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let segments = Refreshed::new(Arc::new(traffic::segments()));
    let policy = Refreshed::new(Arc::new(policy));
    let metrics = Arc::new(Metrics::default());
    let log = EmbeddedActivityLog::new("demo", || SystemClock.now());
    let observer = Arc::<Metrics>::clone(&metrics);
    let (mut keeper, shared, status) = PressureKeeper::new(log, SystemClock, policy.value(), observer);
    keeper.load(DRAIN).await?;
    let pressed = CancellationToken::new();
    let task = tokio::spawn(keeper.run(pressed.clone()));
    let decider = Decider {
        topic: kafka.intents.as_str().into(),
        fields: Arc::new(FieldMap::default()),
        segments: segments.value(),
        policy: policy.value(),
        limits: Arc::default(),
        wheel: Some(WHEEL),
        pressure: Some(Arc::clone(&shared)),
        routes: None,
        approved_by_channel: Arc::default(),
    };
    let lane = LaneSettings {
        batch: 10_000,
        commit_interval: Duration::from_millis(50),
        drain: DRAIN,
        unavailable_after: None,
        deferred_bytes: 0,
        deferred_shards: Arc::default(),
    };
    let store = EmbeddedStore::new(HISTORY_MS);
    let ledger = EmbeddedLedger::new("demo", || SystemClock.now());
    let looked_at = ledger.clone();
    let (keeper, budgets) = BudgetKeeper::new(move || ledger.clone(), SystemClock, Arc::<Metrics>::clone(&metrics));
    tokio::spawn(keeper.run());
    let query = QueryService::new(&decider, EntryPoint::Http, store.clone(), SystemClock, Arc::clone(&metrics))
        .taking(budgets.claimant());
    let queries = Arc::new(QueryPool::new(vec![query]));
    let services = EmbeddedServices::new("demo", || SystemClock.now());
    let observer = Arc::<Metrics>::clone(&metrics);
    let (keeper, services) = ServiceKeeper::new(move || services.clone(), "demo", SystemClock, observer);
    tokio::spawn(keeper.run());
    let worker = Worker {
        services,
        readers: Vec::new(),
        lanes: lanes(&kafka, &store),
        decider,
        segments,
        policy,
        budgets,
        ledger: Arc::new(LedgerPool::new(move || looked_at.clone())),
        pressure: Some(WorkerPressure { shared, status, stop: pressed, task }),
        lane,
        http: Some(HttpSetup { listener, options: HttpSettings::default(), queries }),
        drain: DRAIN,
        metrics,
        traces: None,
        // The broker and the store are on this machine.
        clock: ComparedClock::alone(SystemClock),
        redis: None,
        store: StoreStatus::default(),
        nodes: Nodes::default(),
        deferred: None,
        routes: WorkerRoutes { status: RoutesStatus::default(), waiting: None, known: Vec::new() },
        stop: stop.clone(),
    };
    worker.run(stop.cancelled_owned()).await
}

/// A lane that decides the intents, one that decides deferred intents when they are due, and one that moves them there.
fn lanes(kafka: &Arc<KafkaOptions>, store: &EmbeddedStore) -> Vec<LaneEnds<EmbeddedStore>> {
    let ends = |task, kafka, number| LaneEnds { task, kafka, number, commits: None, store: store.clone() };
    let mut lanes = vec![ends(Task::Intents, Arc::clone(kafka), 0)];
    if let Some(wheel) = &kafka.deferred {
        let [hours, minutes] = Ring::ALL.map(|ring| Arc::new(kafka.for_ring(wheel, ring)));
        lanes.extend([ends(Task::Due(WHEEL), minutes, 0), ends(Task::Move(WHEEL), hours, 1)]);
    }
    lanes
}

/// Publishes the traffic, waiting where the client's queue is full.
fn publish(options: &KafkaOptions, count: u32) -> anyhow::Result<()> {
    let producer: BaseProducer = client(options).set("partitioner", "murmur2_random").set("linger.ms", "5").create()?;
    for intent in traffic::intents(count, SystemClock.now()) {
        let record = || BaseRecord::to(&options.intents).key(&intent.key).payload(&intent.value);
        while let Err((error, _)) = producer.send(record()) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error).context("publishing the demo's intents");
            }
            producer.poll(Duration::from_millis(10));
        }
    }
    producer.flush(PATIENCE).context("publishing the demo's intents")
}

fn client(options: &KafkaOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers);
    config
}

/// Reads the outputs and the deferred intents until each intent has its record.
fn watch(options: &KafkaOptions, count: u32, bar: &ProgressBar) -> anyhow::Result<Summary> {
    let mut watcher = Watcher::start(options)?;
    let mut summary = Summary::default();
    let deadline = std::time::Instant::now() + PATIENCE;
    while summary.records() < u64::from(count) {
        anyhow::ensure!(
            std::time::Instant::now() < deadline,
            "{} of {count} intents have a record after {} s",
            summary.records(),
            PATIENCE.as_secs()
        );
        watcher.read_into(&mut summary)?;
        bar.set_position(summary.records());
    }
    Ok(summary)
}

/// Stays up until Ctrl-C.
async fn keep(options: &KafkaOptions, http: SocketAddr, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "\nThe demo stays up. The broker is {}; topics: {}.", options.brokers, options.topics().join(", "))?;
    writeln!(out, "Watch it, and explain a user: http://{http}/ in a browser")?;
    writeln!(out, "Publish an intent:")?;
    writeln!(
        out,
        "  echo '7:{{\"id\":\"mine-1\",\"user_id\":7,\"channel\":\"push\"}}' | kcat -b {} -t {} -K: -P",
        options.brokers, options.intents
    )?;
    writeln!(out, "See what became of it:")?;
    writeln!(out, "  kcat -b {} -t {} -C -o end -f '%k %h\\n'", options.brokers, options.approved)?;
    writeln!(
        out,
        "The deferred intents come back by themselves. Publish one that does within a minute or two, and follow it with the \
         command above:"
    )?;
    writeln!(
        out,
        "  echo '7:{{\"id\":\"mine-3\",\"user_id\":7,\"not_before\":\"'$(date -u -d '1 minute' +%FT%TZ)'\"}}' | kcat -b {} -t {} -K: -P",
        options.brokers, options.intents
    )?;
    writeln!(out, "Ask what a user was sent and may be sent, or decide an intent:")?;
    writeln!(out, "  curl http://{http}/v1/users/7")?;
    writeln!(
        out,
        "  curl http://{http}/v1/decisions -H 'content-type: application/json' -d '{{\"id\":\"mine-2\",\"user_id\":7}}'"
    )?;
    writeln!(out, "  http://{http}/openapi.json says what else there is.")?;
    writeln!(out, "Press Ctrl-C to end.")?;
    out.flush()?;
    signals::asked_to_stop()?.await;
    Ok(())
}
