//! The demo's broker: librdkafka's mock cluster, with the topics of a worker.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use rdkafka::{
    Offset, TopicPartitionList,
    config::ClientConfig,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
};
use weir_core::{
    basis::memory::LaneMemory,
    deferral::wheel::{Ring, Wheel},
};
use weir_kafka::client::{COMMIT_INTERVAL, Delivery, KafkaOptions, RECORDS_A_CALL, ReadOrder, Reads, WheelTopics};

use super::gateway;

/// Partitions of each topic. The mock cluster keeps some 5 MB of a partition, so that the demo's records fit.
const PARTITIONS: i32 = 16;
/// The wheel of deferred intents: one partition a bucket.
pub(super) const WHEEL: Wheel = Wheel { shares: 1 };

/// The broker, and what the worker and the watcher need to know of it.
pub(super) struct Broker {
    // Ends with this value.
    _cluster: MockCluster<'static, DefaultProducerContext>,
    pub(super) options: Arc<KafkaOptions>,
}

impl Broker {
    pub(super) fn start() -> anyhow::Result<Self> {
        let cluster = MockCluster::new(1).context("the embedded broker does not start")?;
        let options = options(cluster.bootstrap_servers());
        let buckets = |ring: Ring| i32::try_from(ring.buckets() * i64::from(WHEEL.shares)).unwrap_or(i32::MAX);
        let rings =
            options.wheels().flat_map(|wheel| Ring::ALL.map(|ring| (wheel.topic(ring).to_owned(), buckets(ring))));
        let waiting = options.waiting_topic(gateway::CHANNEL);
        let plain = options.topics().map(str::to_owned).into_iter().chain([gateway::TOPIC.to_owned()]).chain(waiting);
        let rings: Vec<(String, i32)> = rings.collect();
        for (topic, partitions) in plain.map(|topic| (topic, PARTITIONS)).chain(rings.iter().cloned()) {
            cluster.create_topic(&topic, partitions, 1).with_context(|| format!("the topic {topic}"))?;
        }
        commit_beginnings(&options, &rings)?;
        Ok(Self { _cluster: cluster, options: Arc::new(options) })
    }
}

/// Commits the beginnings of the wheel's topics: the mock cluster refuses a lane's start there while another lane of the group joins.
fn commit_beginnings(options: &KafkaOptions, rings: &[(String, i32)]) -> anyhow::Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers).set("group.id", options.later_group());
    let nobody: BaseConsumer = config.create().context("no client for the embedded broker")?;
    let mut beginnings = TopicPartitionList::new();
    for (topic, partitions) in rings {
        for partition in 0..*partitions {
            beginnings.add_partition_offset(topic, partition, Offset::Offset(0))?;
        }
    }
    nobody.commit(&beginnings, CommitMode::Sync).context("the embedded broker takes no offsets")
}

fn options(brokers: String) -> KafkaOptions {
    KafkaOptions {
        refunds: None,
        activity: None,
        delivery_reports: None,
        retries: None,
        undelivered: None,
        deferred: Some(WheelTopics::of("send-deferred")),
        deferred_before: Vec::new(),
        waiting: Some("send-waiting".to_owned()),
        routes: Arc::default(),
        reads: Reads::Published,
        read_order: ReadOrder::AsFetched,
        brokers,
        group: "weir".to_owned(),
        intents: "send-intents".to_owned(),
        approved: "send-approved".to_owned(),
        // So that the gateway's lag is that of texts alone.
        approved_by_channel: BTreeMap::from([(gateway::CHANNEL.to_owned(), gateway::TOPIC.to_owned())]),
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
    }
}
