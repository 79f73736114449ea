//! The demo's broker: librdkafka's mock cluster, with the topics of a worker.

use std::sync::Arc;

use anyhow::Context as _;
use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use weir_core::deferral::wheel::{Ring, Wheel};
use weir_kafka::client::{KafkaOptions, WheelTopics};

use super::gateway;
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
        for (topic, partitions) in plain.map(|topic| (topic, PARTITIONS)).chain(rings) {
            cluster.create_topic(&topic, partitions, 1).with_context(|| format!("the topic {topic}"))?;
        }
        Ok(Self { _cluster: cluster, options: Arc::new(options) })
    }
}

/// Options of the lane of a ring, which is alone in its group. The mock cluster refuses a member whose assignment is fetched after the leader
/// has sent it, or who joins late: it joins again, and that takes as long as a session (45 s).
pub(super) fn of_ring(options: &KafkaOptions, wheel: &WheelTopics, ring: Ring) -> KafkaOptions {
    let mut options = options.for_ring(wheel, ring);
    options.group.clone_from(&options.intents);
    options
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
