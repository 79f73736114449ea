//! The demo's broker: librdkafka's mock cluster, with the topics of a worker.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
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
