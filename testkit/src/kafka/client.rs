//! Publishing, topics and offsets, for tests.

#![allow(clippy::disallowed_types, reason = "tests share their clients; no lane")]

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    admin::AdminClient,
    client::{Client, DefaultClientContext},
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer},
    error::KafkaResult,
    producer::{BaseProducer, BaseRecord, Producer},
    topic_partition_list::TopicPartitionListElem,
};

use super::{
    BoundedConsumer, Consumed, Publisher, Record, TopicReader,
    publisher::{Failures, RECONNECT_MS},
    reader::ReadTopic,
};
use crate::{unique, wait_for};

pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// For those who ask again.
const SHORT_DEADLINE: Duration = Duration::from_secs(2);

/// The setting in which consumers that ask differ.
type Setting<'a> = (&'static str, &'a str);

/// What a consumer sees of open transactions.
pub(super) const UNCOMMITTED: Setting<'_> = ("isolation.level", "read_uncommitted");
const COMMITTED: Setting<'_> = ("isolation.level", "read_committed");

/// A way to cut records, and its name.
pub type Cut = (&'static str, fn(Consumed) -> Consumed);

const WHOLE: Cut = ("whole", |record| record);

/// A Kafka known by its address alone. Clones ask, publish and read with the same clients.
#[derive(Debug, Clone)]
pub struct KafkaClient {
    pub(super) bootstrap: String,
    patience: Duration,
    codec: &'static str,
    kept: Arc<Mutex<Kept>>,
}

/// The clients that ask for offsets and topics, publish and read, made when they are first needed: each has threads and connections.
#[derive(Default)]
struct Kept {
    consumers: BTreeMap<(&'static str, String), Arc<BoundedConsumer>>,
    admin: Option<Arc<AdminClient<DefaultClientContext>>>,
    /// By how they compress: those that nobody has taken.
    producers: BTreeMap<&'static str, BaseProducer<Failures>>,
    /// By topic, and how its records are cut: what nobody has taken.
    read: BTreeMap<(String, &'static str), ReadTopic>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl KafkaClient {
    pub fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), patience: REQUEST_DEADLINE, codec: "none", kept: Arc::default() }
    }

    /// The same, whose questions about offsets are given up soon: to be asked again, of brokers that are broken on purpose.
    pub fn impatient(&self) -> Self {
        Self { patience: SHORT_DEADLINE, ..self.clone() }
    }

    /// The same, whose publishers compress: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub fn compressing(&self, codec: &'static str) -> Self {
        Self { codec, ..self.clone() }
    }

    /// The same with clients of its own to ask, publish and read with, which end with it.
    pub fn apart(&self) -> Self {
        Self { kept: Arc::default(), ..self.clone() }
    }

    pub(super) fn codec(&self) -> &str {
        self.codec
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// A configuration for a client of one's own: the address, and librdkafka's log kept off the tests' output.
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
        self.ask(UNCOMMITTED, |consumer| partitions_within(consumer.client(), topic, self.patience))
    }

    /// Waits until the broker that answers knows a topic, and gives the number of its partitions.
    pub fn wait_topic(&self, topic: &str) -> Result<i32> {
        let known = wait_for(REQUEST_DEADLINE, || self.partitions(topic).ok());
        known.map_or_else(|| self.partitions(topic), Ok)
    }

    /// How many brokers the cluster has, as the first one that answers knows it.
    pub fn broker_count(&self) -> Result<usize> {
        self.ask(UNCOMMITTED, |consumer| Ok(consumer.fetch_metadata(None, Duration::from_secs(1))?.brokers().len()))
    }

    /// Publishes records in their order and waits until all brokers have them. A key goes to the partition that
    /// Java's murmur2 gives.
    pub fn publish(&self, topic: &str, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let known = self.kept().producers.remove(self.codec);
        let publisher = match known {
            Some(producer) => Publisher::again(producer, topic)?,
            None => self.publisher(topic)?,
        };
        records.into_iter().try_for_each(|record| publisher.send(&record))?;
        publisher.flush()?;
        let _former = self.kept().producers.insert(self.codec, publisher.into_producer());
        Ok(())
    }

    /// Publishes records in a transaction that is aborted: their offsets hold no record.
    pub fn publish_aborted(&self, topic: &str, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let publisher = Publisher::transactional(self, topic, &unique(topic))?;
        publisher.begin()?;
        records.into_iter().try_for_each(|record| publisher.send(&record))?;
        publisher.abort()
    }

    /// Publishes keys and values to a partition as one record batch, by this client's codec, however large it is.
    pub fn publish_as_one_batch(&self, topic: &str, partition: i32, records: &[(&str, &[u8])]) -> Result<()> {
        let producer: BaseProducer = self
            .config()
            .set("compression.type", self.codec)
            .set("message.max.bytes", "1000000000")
            .set("batch.size", "2000000000")
            .set("queue.buffering.max.kbytes", "2000000")
            // Until the last of several is there.
            .set("linger.ms", if records.len() > 1 { "500" } else { "0" })
            .create()?;
        for (key, value) in records {
            let record = BaseRecord::to(topic).key(*key).partition(partition).payload(*value);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        Ok(producer.flush(4 * REQUEST_DEADLINE)?)
    }

    /// A producer of one topic that stays: for what is published bit by bit.
    pub fn publisher(&self, topic: &str) -> Result<Publisher> {
        Publisher::with(self, topic, None)
    }

    /// All that a `read_committed` reader can see of a topic now, ordered by partition and offset.
    pub fn read_committed(&self, topic: &str) -> Result<Vec<Consumed>> {
        self.see_committed((topic, WHOLE), <[Consumed]>::to_vec)
    }

    /// The same, of records that are cut: large ones together may not fit into memory. Each way to cut has a name of its own.
    pub fn read_committed_cut(&self, topic: &str, cut: Cut) -> Result<Vec<Consumed>> {
        self.see_committed((topic, cut), <[Consumed]>::to_vec)
    }

    pub fn count_committed(&self, topic: &str) -> Result<usize> {
        self.see_committed((topic, WHOLE), <[Consumed]>::len)
    }

    /// Looks at what there is of a topic. What was read before is not read again.
    fn see_committed<T>(&self, (topic, (name, cut)): (&str, Cut), see: impl FnOnce(&[Consumed]) -> T) -> Result<T> {
        // Not told by brokers that are broken on purpose: then all is read anew, when they answer.
        let ends = self.stable_offsets(topic).ok();
        if ends.as_ref().is_some_and(|ends| ends.iter().all(|end| *end == 0)) {
            return Ok(see(&[]));
        }
        let place = (topic.to_owned(), name);
        let known = self.kept().read.remove(&place);
        let mut read = match known.filter(|read| ends.as_ref().is_some_and(|ends| read.is_of(ends))) {
            Some(known) => known,
            None => ReadTopic::open(self, topic)?,
        };
        let seen = see(read.read_on(ends, cut)?);
        let _former = self.kept().read.insert(place, read);
        Ok(seen)
    }

    /// Forgets what was read of a topic: its records are no longer what they were.
    pub(super) fn forget_read(&self, topic: &str) {
        self.kept().read.retain(|(read, _), _| read != topic);
    }

    /// A reader that starts at the beginning of a topic and goes on where it stopped.
    pub fn reader(&self, topic: &str) -> Result<TopicReader> {
        TopicReader::open(self, topic)
    }

    /// The offset after the last record of each partition, committed or not.
    pub fn end_offsets(&self, topic: &str) -> Result<Vec<i64>> {
        self.ends(topic, UNCOMMITTED)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks by the consumer with this setting. One that gets no answer may hold on to a broker that is gone: the next look
    /// has a new one.
    pub(super) fn ask<T>(&self, (key, value): Setting<'_>, ask: impl FnOnce(&BaseConsumer) -> Result<T>) -> Result<T> {
        let place = (key, value.to_owned());
        let known = self.kept().consumers.get(&place).cloned();
        let consumer: Arc<BoundedConsumer> = match known {
            Some(known) => known,
            None => Arc::new(self.asker_config().set(key, value).create()?),
        };
        let answer = ask(&consumer);
        let _former = match answer {
            Ok(_) => self.kept().consumers.insert(place, consumer),
            Err(_) => self.kept().consumers.remove(&place),
        };
        answer
    }

    pub(super) fn admin(&self) -> Result<Arc<AdminClient<DefaultClientContext>>> {
        let mut kept = self.kept();
        if let Some(known) = &kept.admin {
            return Ok(Arc::clone(known));
        }
        Ok(Arc::clone(kept.admin.insert(Arc::new(self.asker_config().create()?))))
    }

    fn asker_config(&self) -> ClientConfig {
        let mut config = self.config();
        config.set("reconnect.backoff.max.ms", RECONNECT_MS);
        config
    }

    /// The offset up to which a `read_committed` reader sees each partition: that of the first open transaction, or the end.
    pub fn stable_offsets(&self, topic: &str) -> Result<Vec<i64>> {
        self.ends(topic, COMMITTED)
    }

    /// The ends of all partitions, in one request to each of their leaders.
    fn ends(&self, topic: &str, isolation: Setting<'_>) -> Result<Vec<i64>> {
        let found = self.offsets(isolation, topic, Offset::End, BaseConsumer::offsets_for_times)?;
        let end = |element: &TopicPartitionListElem<'_>| {
            element.error()?;
            offset(element).with_context(|| format!("partition {} of {topic} has no leader", element.partition()))
        };
        found.elements().iter().map(end).collect()
    }

    /// The offset that a group has committed for each partition of a topic; `None` where it has none.
    pub fn committed(&self, group: &str, topic: &str) -> Result<Vec<Option<i64>>> {
        // Not by the admin client: librdkafka 2.12 crashes there when another broker has become the coordinator.
        let found = self.offsets(("group.id", group), topic, Offset::Invalid, BaseConsumer::committed_offsets)?;
        Ok(found.elements().iter().map(offset).collect())
    }

    /// Asks for an offset of each partition of a topic, of all at once, and waits no longer for all than `patience`.
    fn offsets(
        &self,
        setting: Setting<'_>,
        topic: &str,
        which: Offset,
        question: fn(&BaseConsumer, TopicPartitionList, Duration) -> KafkaResult<TopicPartitionList>,
    ) -> Result<TopicPartitionList> {
        let deadline = Instant::now() + self.patience;
        self.ask(setting, |consumer| {
            let mut asked = TopicPartitionList::new();
            for partition in 0..partitions_within(consumer.client(), topic, self.patience)? {
                asked.add_partition_offset(topic, partition, which)?;
            }
            Ok(question(consumer, asked, deadline.saturating_duration_since(Instant::now()))?)
        })
    }
}

fn offset(element: &TopicPartitionListElem<'_>) -> Option<i64> {
    match element.offset() {
        Offset::Offset(offset) => Some(offset),
        Offset::Beginning | Offset::End | Offset::Stored | Offset::Invalid | Offset::OffsetTail(_) => None,
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
