//! `weir demo`: the whole thing on one machine with nothing installed. The broker is librdkafka's mock cluster, the
//! store is the embedded one; the worker between them is the one that `weir run` runs.

mod broker;
mod gateway;
mod publisher;
mod summary;
mod traffic;
mod watcher;

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use indicatif::ProgressBar;
use rdkafka::ClientConfig;
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::current::Current,
    batch::decider::Decider,
    deferral::wheel::Ring,
    limit::{SharedLimit, budget::ledger::EmbeddedLedger, share::Embedded},
    policy::{Policy, file::parse_policy},
    ports::{Clock as _, embedded::EmbeddedStore},
};
use weir_kafka::client::KafkaOptions;
use weir_oracle::service::EmbeddedServices;
use weir_redis::OnRedis;
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    lane::{LaneSettings, Task},
    refresh::Refreshed,
    status::StoreStatus,
};

use self::{
    broker::{Broker, WHEEL},
    gateway::Gateway,
    publisher::{PER_S, Publisher},
    summary::Summary,
    watcher::Watcher,
};
use super::{
    output::{OutputForm, print_json, progress},
    signals,
    worker::{Connect, HttpSetup, LaneEnds, LimitClients, LimitLinks, WaitingEnds, Worker, WorkerLimits, WorkerRoutes},
};
use crate::{
    config::HttpSettings,
    http::{self, QueryPool},
    metrics::Metrics,
    query::{EntryPoint, QueryService},
    vitals::Nodes,
};

const POLICY: &str = include_str!("policy.toml");
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
    /// Stay up after the summary, with 500 intents per second until Ctrl-C, and print the addresses of the page and of the broker,
    /// so that any Kafka client can publish and consume
    #[arg(long)]
    keep: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

pub async fn run(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let policy = parse_policy("the demo's policy", POLICY, weir_core::basis::document::Format::Toml, HISTORY_MS)?;
    let broker = Broker::start()?;
    let gateway = Gateway::start(&broker.options)?;
    let stop = CancellationToken::new();
    let listener = http::bind(args.listen).await.map_err(anyhow::Error::msg)?;
    let http = listener.local_addr().context("the HTTP address")?;
    let worker = tokio::spawn(worker(Arc::clone(&broker.options), policy, listener, stop.clone()));

    let template = "deciding [{bar:40}] {human_pos}/{human_len} intents  {per_sec}  {eta} left";
    let bar = progress(Some(u64::from(args.publish)), template);
    let options = Arc::clone(&broker.options);
    let (count, watch_bar, taken) = (args.publish, bar.clone(), Arc::clone(&gateway.taken));
    let publisher = tokio::task::spawn_blocking(move || {
        let mut publisher = Publisher::new(&options)?;
        publisher.publish(count)?;
        anyhow::Ok(publisher)
    });
    let mut watcher = Watcher::start(&broker.options)?;
    let (sender, receiver) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        // The result is sent before the consumer ends: rdkafka waits for that without a deadline.
        let _ = sender.send(watch(&mut watcher, &taken, count, &watch_bar));
    });
    let summary = tokio::select! {
        summary = receiver => summary.context("the watcher")??,
        // The worker ends before the watcher only when it fails.
        ended = worker => {
            ended.context("the worker")??;
            anyhow::bail!("the worker ended before all intents were decided");
        }
    };
    let publisher = publisher.await.context("the publisher")??;
    bar.finish_and_clear();
    match (args.output, args.keep) {
        (OutputForm::Text, true) => {
            summary.print(out)?;
            how_to_use(&broker.options, http, out)?;
        }
        (OutputForm::Text, false) => {
            summary.print(out)?;
            summary::how_to_go_on(out)?;
        }
        (OutputForm::Json, keep) => {
            let mut report = summary.report();
            if keep {
                let KafkaOptions { brokers, .. } = broker.options.as_ref();
                report["kept"] = json!({"brokers": brokers, "topics": broker.options.topics(), "http": http});
            }
            print_json(&report, out)?;
        }
    }
    out.flush()?;
    if args.keep {
        publisher.keep_publishing().await?;
    }
    stop.cancel();
    drop(gateway);
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
    // The broker and the store are on this machine.
    let clock = ComparedClock::alone(SystemClock);
    let links = LimitLinks { kafka: &kafka, policy: &policy, clock: &clock, metrics: &metrics, stop: &stop };
    let limits = WorkerLimits::start(InMemory, links).await?;
    let decider = Decider {
        wheel: Some(WHEEL),
        held: limits.held.clone(),
        approved_by_channel: kafka.approved_by_channel(),
        ..Decider::new(kafka.intents.as_str(), segments.value(), policy.value())
    };
    let store = EmbeddedStore::new(HISTORY_MS);
    let query = QueryService::new(&decider, EntryPoint::Http, store.clone(), SystemClock, Arc::clone(&metrics))
        .taking(limits.budgets.claimant());
    let queries = Arc::new(QueryPool::new(vec![query]));
    let worker = Worker {
        readers: Vec::new(),
        lanes: lanes(&kafka, &store),
        decider,
        segments,
        policy,
        limits,
        lane: lane_settings(),
        http: Some(HttpSetup { listener, options: HttpSettings::default(), queries }),
        drain: DRAIN,
        metrics,
        traces: None,
        clock,
        redis: None,
        store: StoreStatus::default(),
        nodes: Nodes::default(),
        deferred: None,
        routes: WorkerRoutes { waiting: Some(waiting_ends(kafka, store)), known: Current::new(Arc::default()) },
        stop: stop.clone(),
    };
    let asked_to_stop = async {
        stop.cancelled().await;
        signals::Asked::Interrupt
    };
    worker.run(asked_to_stop).await
}

fn lane_settings() -> LaneSettings {
    LaneSettings {
        batch: 10_000,
        commit_interval: Duration::from_millis(50),
        drain: DRAIN,
        unavailable_after: None,
        deferred_bytes: 0,
        deferred_shards: Arc::default(),
    }
}

/// The limits, in memory.
struct InMemory;

impl LimitClients for InMemory {
    type Ledger = EmbeddedLedger;
    type Services = EmbeddedServices;
    type Client<L: OnRedis<By = ()>> = Embedded<L>;

    fn ledgers(&self) -> [Connect<EmbeddedLedger>; 2] {
        let ledger: Connect<EmbeddedLedger> = in_memory("demo");
        let seen = ledger();
        [ledger, Box::new(move || seen.clone())]
    }

    fn services(&self, holder: &str) -> Connect<EmbeddedServices> {
        in_memory(holder)
    }

    fn of<L: OnRedis<By = ()>>(&self) -> Connect<Embedded<L>> {
        in_memory("demo")
    }
}

/// Gives a limit that nobody else has, to this member.
fn in_memory<L: SharedLimit>(member: &str) -> Connect<Embedded<L>> {
    let limit = Embedded::<L>::new(member, || SystemClock.now());
    Box::new(move || limit.clone())
}

/// Makes the ends of lanes that read what waits.
fn waiting_ends(kafka: Arc<KafkaOptions>, store: EmbeddedStore) -> WaitingEnds<EmbeddedStore> {
    Box::new(move |route| {
        let task = Task::Waiting(kafka.routes.state(route).topic);
        let options = kafka.for_waiting(route).unwrap_or_else(|| KafkaOptions::clone(&kafka));
        LaneEnds { task, kafka: Arc::new(options), number: 0, commits: None, store: store.clone() }
    })
}

/// A lane that decides the intents, one that decides deferred intents when they are due, and one that moves them there.
fn lanes(kafka: &Arc<KafkaOptions>, store: &EmbeddedStore) -> Vec<LaneEnds<EmbeddedStore>> {
    let ends = |task, kafka, number| LaneEnds { task, kafka, number, commits: None, store: store.clone() };
    let mut lanes = vec![ends(Task::Intents, Arc::clone(kafka), 0)];
    if let Some(wheel) = &kafka.deferred {
        let [hours, minutes] = Ring::ALL.map(|ring| Arc::new(broker::of_ring(kafka, wheel, ring)));
        lanes.extend([ends(Task::Due(WHEEL), minutes, 0), ends(Task::Move(WHEEL), hours, 1)]);
    }
    lanes
}

fn client(options: &KafkaOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers);
    config
}

/// Reads what is committed, from the beginning.
fn reader(options: &KafkaOptions, group: &str) -> ClientConfig {
    let mut config = client(options);
    config.set("group.id", group).set("auto.offset.reset", "earliest").set("isolation.level", "read_committed");
    config
}

/// Reads the outputs and the deferred intents until each intent has its record.
fn watch(watcher: &mut Watcher, taken: &AtomicU64, count: u32, bar: &ProgressBar) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    let deadline = std::time::Instant::now() + PATIENCE;
    while summary.records < u64::from(count) {
        anyhow::ensure!(
            std::time::Instant::now() < deadline,
            "{} of {count} intents have a record after {} s",
            summary.records,
            PATIENCE.as_secs()
        );
        watcher.read_into(&mut summary)?;
        summary.texts.taken(taken.load(Ordering::Relaxed));
        bar.set_position(summary.records);
    }
    Ok(summary)
}

/// How the demo that stays up is used.
fn how_to_use(options: &KafkaOptions, http: SocketAddr, out: &mut impl Write) -> io::Result<()> {
    let KafkaOptions { brokers, intents, approved, .. } = options;
    let topics = options.topics().join(", ");
    writeln!(
        out,
        r#"
The demo stays up, with {PER_S} intents per second. Press Ctrl-C to end.
The broker is {brokers}; topics: {topics}.
Watch it, and explain a user: http://{http}/ in a browser
Publish an intent:
  echo '7:{{"id":"mine-1","user_id":7,"channel":"push"}}' | kcat -b {brokers} -t {intents} -K: -P
See what becomes of yours:
  kcat -b {brokers} -t {approved} -C -o end -u -f '%s %h\n' | grep mine-
The deferred intents come back by themselves. Publish one that does within a minute or two, and follow it with the command above:
  echo '7:{{"id":"mine-3","user_id":7,"not_before":"'$(date -u -d '1 minute' +%FT%TZ)'"}}' | kcat -b {brokers} -t {intents} -K: -P
Ask what a user was sent and may be sent, or decide an intent:
  curl http://{http}/v1/users/7
  curl http://{http}/v1/decisions -H 'content-type: application/json' -d '{{"id":"mine-2","user_id":7}}'
  http://{http}/openapi.json says what else there is."#
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_lane_is_alone_in_its_group() {
        let broker = Broker::start().unwrap();
        let lanes = lanes(&broker.options, &EmbeddedStore::new(HISTORY_MS));
        let groups: BTreeSet<&str> = lanes.iter().map(|lane| lane.kafka.group.as_str()).collect();
        assert_eq!((groups.len(), lanes.len()), (3, 3), "{groups:?}");
    }
}
