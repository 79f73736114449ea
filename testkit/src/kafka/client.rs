//! Publishing, topics and offsets, for tests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    client::Client,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};

use super::{Consumed, Publisher, Record, TopicReader};
use crate::wait_for;

/// How long one request to the brokers may take.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// The same for those who ask again.
const SHORT_DEADLINE: Duration = Duration::from_secs(2);

/// A Kafka known by its address alone.
#[derive(Debug, Clone)]
pub struct KafkaClient {
    pub(super) bootstrap: String,
    patience: Duration,
    codec: &'static str,
}

impl KafkaClient {
    /// A client of the brokers at `bootstrap`. Does not connect.
    #[must_use]
    pub fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), patience: REQUEST_DEADLINE, codec: "none" }
    }

    /// The same, whose questions about offsets are given up soon: to be asked again, of brokers that are broken on purpose.
    #[must_use]
    pub fn impatient(&self) -> Self {
        Self { patience: SHORT_DEADLINE, ..self.clone() }
    }

    /// The same, whose publishers compress: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    #[must_use]
    pub fn compressing(&self, codec: &'static str) -> Self {
        Self { codec, ..self.clone() }
    }

    /// What publishers compress by.
    pub(super) fn codec(&self) -> &str {
        self.codec
    }

    /// What goes into `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// A configuration for a client of one's own: the address, and librdkafka's log kept off the tests' output.
    #[must_use]
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set_log_level(RDKafkaLogLevel::Critical);
        config
    }

    /// How many partitions a topic has.
    ///
    /// # Errors
    /// When there is no such topic, or a partition has no leader yet. A broker may not know a topic yet that the
    /// controller has just made: [`wait_topic`](Self::wait_topic).
    pub fn partitions(&self, topic: &str) -> Result<i32> {
        let consumer: BaseConsumer = self.config().create()?;
        partitions_within(consumer.client(), topic, self.patience)
    }

    /// Waits until the broker that answers knows a topic, and gives the number of its partitions.
    ///
    /// # Errors
    /// When it does not within 30 s: the last answer.
    pub fn wait_topic(&self, topic: &str) -> Result<i32> {
        let known = wait_for(REQUEST_DEADLINE, || self.partitions(topic).ok());
        known.map_or_else(|| self.partitions(topic), Ok)
    }

    /// How many brokers the cluster has, as the first one that answers knows it.
    ///
    /// # Errors
    /// When none answers within a second.
    pub fn broker_count(&self) -> Result<usize> {
        let consumer: BaseConsumer = self.config().create()?;
        Ok(consumer.fetch_metadata(None, Duration::from_secs(1))?.brokers().len())
    }

    /// Publishes records in their order and waits until all brokers have them. A key goes to the partition that
    /// Java's murmur2 gives.
    ///
    /// # Errors
    /// When a record was refused or not delivered in time.
    pub fn publish(&self, topic: &str, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let publisher = self.publisher(topic)?;
        for record in records {
            publisher.send(&record)?;
        }
        publisher.finish()
    }

    /// Publishes keys and values to partition 0 as one record batch, by this client's codec, however large it is.
    ///
    /// # Errors
    /// When a record was refused or not delivered in time.
    pub fn publish_as_one_batch(&self, topic: &str, records: &[(&str, &[u8])]) -> Result<()> {
        let producer: BaseProducer = self
            .config()
            .set("compression.type", self.codec)
            .set("message.max.bytes", "1000000000")
            .set("batch.size", "2000000000")
            .set("queue.buffering.max.kbytes", "2000000")
            .set("linger.ms", "500")
            .create()?;
        for (key, value) in records {
            let record = BaseRecord::to(topic).key(*key).partition(0).payload(*value);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        Ok(producer.flush(4 * REQUEST_DEADLINE)?)
    }

    /// A producer of one topic that stays: for what is published bit by bit.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn publisher(&self, topic: &str) -> Result<Publisher> {
        Publisher::open(self, topic)
    }

    /// All that a `read_committed` reader can see of a topic now, ordered by partition and offset.
    ///
    /// # Errors
    /// When there is no such topic, or the brokers do not answer.
    pub fn read_committed(&self, topic: &str) -> Result<Vec<Consumed>> {
        let mut records = self.reader(topic)?.read_to_end()?;
        records.sort_by_key(|record| (record.partition, record.offset));
        Ok(records)
    }

    /// A reader that starts at the beginning of a topic and goes on where it stopped.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn reader(&self, topic: &str) -> Result<TopicReader> {
        TopicReader::open(self, topic)
    }

    /// The offset after the last record of each partition, committed or not.
    ///
    /// # Errors
    /// When there is no such topic, or the brokers do not answer.
    pub fn end_offsets(&self, topic: &str) -> Result<Vec<i64>> {
        let consumer: BaseConsumer = self.config().set("isolation.level", "read_uncommitted").create()?;
        (0..self.partitions(topic)?)
            .map(|partition| Ok(consumer.fetch_watermarks(topic, partition, self.patience)?.1))
            .collect()
    }

    /// The offset that a group has committed for each partition of a topic; `None` where it has none.
    ///
    /// # Errors
    /// When there is no such topic, or the brokers do not answer.
    pub fn committed(&self, group: &str, topic: &str) -> Result<Vec<Option<i64>>> {
        let consumer: BaseConsumer = self.config().set("group.id", group).create()?;
        let partitions = self.partitions(topic)?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, partitions - 1);
        let found = consumer.committed_offsets(asked, self.patience)?;
        Ok((0..partitions)
            .map(|partition| match found.find_partition(topic, partition)?.offset() {
                Offset::Offset(offset) => Some(offset),
                Offset::Beginning | Offset::End | Offset::Stored | Offset::Invalid | Offset::OffsetTail(_) => None,
            })
            .collect())
    }
}

/// How many partitions a topic has. Also brings a new client up: left to itself it meets its brokers a second later.
pub(super) fn partitions_of<C: ClientContext>(client: &Client<C>, topic: &str) -> Result<i32> {
    partitions_within(client, topic, REQUEST_DEADLINE)
}

fn partitions_within<C: ClientContext>(client: &Client<C>, topic: &str, patience: Duration) -> Result<i32> {
    let metadata = client.fetch_metadata(Some(topic), patience)?;
    let found = metadata.topics().first().with_context(|| format!("no topic {topic}"))?;
    ensure!(found.error().is_none() && !found.partitions().is_empty(), "no topic {topic}");
    ensure!(found.partitions().iter().all(|partition| partition.leader() >= 0), "{topic} has no leader yet");
    Ok(i32::try_from(found.partitions().len())?)
}
