//! Reads a topic as a `read_committed` reader sees it, without a group.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::Consumer,
    error::KafkaError,
    message::{BorrowedMessage, Headers},
};

use super::{BoundedConsumer, Consumed, KafkaClient, client::partitions_of, publisher::RECONNECT_MS};

/// How long reading to the end may take.
const WHOLE_DEADLINE: Duration = Duration::from_secs(600);
/// How long it may go without a record.
const END_DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// A reader of all partitions of a topic, from their beginning. What it gave once it does not give again.
pub struct TopicReader {
    topic: String,
    consumer: BoundedConsumer,
    /// Where to read on, by partition.
    next: Vec<i64>,
    at_end: BTreeSet<i32>,
    last_error: Option<KafkaError>,
}

impl TopicReader {
    pub(super) fn open(client: &KafkaClient, topic: &str) -> Result<Self> {
        let mut config = client.config();
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        // librdkafka assigns no partitions without a group's name; nothing is joined or committed.
        config.set("group.id", "testkit-reader").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest");
        config.set("fetch.wait.max.ms", "50").set("fetch.queue.backoff.ms", "10");
        config.set("fetch.message.max.bytes", "10000000").set("reconnect.backoff.max.ms", RECONNECT_MS);
        let consumer: BoundedConsumer = config.create()?;
        let next = vec![0; usize::try_from(partitions_of(consumer.client(), topic)?)?];
        let reader = Self { topic: topic.to_owned(), consumer, next, at_end: BTreeSet::new(), last_error: None };
        reader.assign()?;
        Ok(reader)
    }

    /// What is there and was not read yet, up to the end (the last stable offset) of every partition, in the order
    /// it came: sorted within a partition. An open transaction hides what comes after its begin.
    ///
    /// # Errors
    /// When the brokers do not answer for two minutes, or records keep coming for ten.
    pub fn read_to_end(&mut self) -> Result<Vec<Consumed>> {
        let mut records = Vec::new();
        self.visit_to_end(|record| records.push(record))?;
        Ok(records)
    }

    /// The same, one record at a time: for topics that do not fit into memory.
    fn visit_to_end(&mut self, mut visit: impl FnMut(Consumed)) -> Result<()> {
        // An end is told once each time it is reached, and ends told before are old: ask again.
        self.at_end.clear();
        self.assign()?;
        let (began, mut start) = (Instant::now(), Instant::now());
        while self.at_end.len() < self.next.len() {
            if start.elapsed() > END_DEADLINE {
                let (ends, all) = (self.at_end.len(), self.next.len());
                bail!("{ends} of {all} partitions of {} read to their end{}", self.topic, self.after(END_DEADLINE));
            }
            if began.elapsed() > WHOLE_DEADLINE {
                bail!("records of {} still came{}", self.topic, self.after(WHOLE_DEADLINE));
            }
            self.poll(|record| {
                start = Instant::now();
                visit(record);
            })?;
        }
        Ok(())
    }

    fn assign(&self) -> Result<()> {
        let mut all = TopicPartitionList::new();
        for (partition, next) in (0..).zip(&self.next) {
            all.add_partition_offset(&self.topic, partition, Offset::Offset(*next))?;
        }
        self.consumer.assign(&all)?;
        Ok(())
    }

    fn after(&self, deadline: Duration) -> String {
        let error = self.last_error.as_ref().map(|error| format!("; the last error was {error}"));
        format!(" after {deadline:?}{}", error.unwrap_or_default())
    }

    fn poll(&mut self, take: impl FnOnce(Consumed)) -> Result<()> {
        match self.consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let partition = message.partition();
                self.at_end.remove(&partition);
                self.next[usize::try_from(partition)?] = message.offset() + 1;
                take(consumed(&message));
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.at_end.insert(partition);
            }
            // Connections come and go while brokers are broken on purpose; the caller's deadline bounds it.
            Some(Err(error)) => self.last_error = Some(error),
        }
        Ok(())
    }
}

/// What was read of a topic, and its reader, which reads on.
pub(super) struct ReadTopic {
    reader: TopicReader,
    /// Ordered by partition and offset.
    records: Vec<Consumed>,
    /// How far the partitions could be read when it was read last.
    ends: Option<Vec<i64>>,
}

impl ReadTopic {
    pub(super) fn open(client: &KafkaClient, topic: &str) -> Result<Self> {
        Ok(Self { reader: TopicReader::open(client, topic)?, records: Vec::new(), ends: None })
    }

    /// Whether it reads all partitions of a topic with these ends, none of which was read further.
    pub(super) fn is_of(&self, ends: &[i64]) -> bool {
        let next = &self.reader.next;
        next.len() == ends.len() && next.iter().zip(ends).all(|(next, end)| next <= end)
    }

    /// All records of a topic that can be read up to these ends now.
    pub(super) fn read_on(&mut self, ends: Option<Vec<i64>>, cut: fn(Consumed) -> Consumed) -> Result<&[Consumed]> {
        if ends.is_none() || ends != self.ends {
            let records = &mut self.records;
            self.reader.visit_to_end(|record| records.push(cut(record)))?;
            // Nothing is fetched until it reads on.
            self.reader.consumer.unassign()?;
            records.sort_by_key(|record| (record.partition, record.offset));
            self.ends = ends;
        }
        Ok(&self.records)
    }
}

pub(super) fn consumed(message: &BorrowedMessage<'_>) -> Consumed {
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    let (partition, offset, timestamp_ms) = (message.partition(), message.offset(), message.timestamp().to_millis());
    let [key, value] = [message.key(), message.payload()].map(|bytes| bytes.map(<[u8]>::to_vec));
    Consumed { partition, offset, key, value, headers: headers.unwrap_or_default(), timestamp_ms }
}
