//! The demo's broker: librdkafka's mock cluster, with the topics of a worker.

use std::sync::Arc;

use anyhow::Context as _;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
};
use weir_core::deferral::wheel::{Ring, Wheel};
use weir_kafka::client::KafkaOptions;

use super::{client, gateway};
use crate::{cli::assemble, config};

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
        let options = options(&cluster.bootstrap_servers())?;
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
    let mut nobody = client(options);
    let nobody: BaseConsumer =
        nobody.set("group.id", options.later_group()).create().context("no client for the embedded broker")?;
    let mut beginnings = TopicPartitionList::new();
    for (topic, partitions) in rings {
        for partition in 0..*partitions {
            beginnings.add_partition_offset(topic, partition, Offset::Offset(0))?;
        }
    }
    nobody.commit(&beginnings, CommitMode::Sync).context("the embedded broker takes no offsets")
}

/// What a worker's settings would give. The gateway's channel has a topic of its own, so that its lag is that of texts alone.
fn options(brokers: &str) -> anyhow::Result<KafkaOptions> {
    let (channel, topic) = (gateway::CHANNEL, gateway::TOPIC);
    let settings = format!(
        r#"
        [kafka]
        brokers = {brokers:?}
        instance = "demo"
        intents = "send-intents"
        approved = "send-approved"
        approved_by_channel = {{ {channel} = {topic:?} }}
        suppressed = "send-suppressed"
        dead_letters = "send-dead-letters"
        deferred = "send-deferred"
        waiting = "send-waiting"
        "#
    );
    Ok(assemble::kafka(&config::kafka(&settings)?))
}
