//! Reads partitions of a topic from one offset to another, without a group.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    config::ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};
use weir_core::{
    record::{RecordView, Records},
    time::Time,
};

use super::{
    client::{KafkaOptions, Reads},
    lane_context::LaneContext,
    native::{MessageBatch, MessageQueue},
    offsets::{offsets_at, partitions_of, right_to_read},
    rights::Right,
};

/// How long one answer of a broker may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes after which a batch is full.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Records taken in one call.
const TAKE: usize = 512;

/// A part of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Which partition.
    pub partition: i32,
    /// The first offset to read.
    pub from: i64,
    /// Behind the last one.
    pub to: i64,
}

/// What is known of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which partition.
    pub partition: i32,
    /// The first offset that is still there.
    pub low: i64,
    /// The first offset of a record of the time asked for, or later; `high` where there is none.
    pub since: i64,
    /// The next offset to be written, open transactions included.
    pub high: i64,
}

/// Why a topic cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{topic} cannot be read: {reason}")]
pub struct SpanError {
    /// Which.
    pub topic: String,
    /// Why.
    pub reason: String,
}

fn settings(options: &KafkaOptions) -> ClientConfig {
    let (mut config, fetch_bytes) = (options.client(), options.span_fetch_bytes());
    config
        .set("fetch.max.bytes", fetch_bytes.to_string())
        // The producer's; librdkafka holds a consumer's fetches to it.
        .set("message.max.bytes", fetch_bytes.clamp(1_000, 1_000_000).to_string())
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.queue.backoff.ms", "10")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "16384");
    config
}

fn failed(topic: &str, error: &KafkaError) -> SpanError {
    let reason = match right_to_read(error, topic) {
        Some(right) => format!("Kafka does not let weir ({error}): grant {right} (docs/security.md)"),
        None => error.to_string(),
    };
    SpanError { topic: topic.to_owned(), reason }
}

/// How far each partition of a topic reaches, ascending.
///
/// # Errors
/// A broker cannot be asked.
pub fn extents(options: &KafkaOptions, topic: &str, since: Time) -> Result<Vec<Extent>, SpanError> {
    let failed = |error: KafkaError| failed(topic, &error);
    let mut config = settings(options);
    // Ends that open transactions do not hide.
    config.set("isolation.level", "read_uncommitted");
    let consumer: BaseConsumer = config.create().map_err(failed)?;
    let partitions = partitions_of(&consumer, topic, ANSWER_TIMEOUT).map_err(failed)?;
    if partitions.is_empty() {
        return Err(SpanError { topic: topic.to_owned(), reason: "there is no such topic".to_owned() });
    }
    let found = offsets_at(&consumer, topic, &partitions, since, ANSWER_TIMEOUT).map_err(failed)?;
    let mut extents = Vec::with_capacity(partitions.len());
    for (partition, since) in partitions.into_iter().zip(found) {
        let (low, high) = consumer.fetch_watermarks(topic, partition, ANSWER_TIMEOUT).map_err(failed)?;
        // Without an offset there is no record of that time or later.
        extents.push(Extent { partition, low, since: since.map_or(high, |offset| offset.clamp(low, high)), high });
    }
    extents.sort_unstable_by_key(|extent| extent.partition);
    Ok(extents)
}

/// Reads spans of one topic, what is committed of them.
pub struct SpanReader {
    // Dropped before the consumer: fields go in their order.
    queue: MessageQueue,
    consumer: Arc<BaseConsumer<LaneContext>>,
    topic: String,
    /// Partitions not read to their end: the end.
    open: BTreeMap<i32, i64>,
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
}

impl SpanReader {
    /// Begins to read. A span that is empty is not read.
    ///
    /// # Errors
    /// The settings are not librdkafka's.
    pub fn new(options: &KafkaOptions, topic: &str, spans: &[Span]) -> Result<Self, SpanError> {
        let failed = |error: KafkaError| failed(topic, &error);
        let text = |reason: String| SpanError { topic: topic.to_owned(), reason };
        let mut config = settings(options);
        config.set("isolation.level", "read_committed");
        let consumer: BaseConsumer<LaneContext> = config.create_with_context(LaneContext::default()).map_err(failed)?;
        let queue = MessageQueue::new(consumer.client()).map_err(text)?;
        let mut from = TopicPartitionList::with_capacity(spans.len());
        let (mut open, mut next) = (BTreeMap::new(), BTreeMap::new());
        for span in spans {
            next.insert(span.partition, span.from.max(0));
            if span.from < span.to {
                open.insert(span.partition, span.to);
                queue.take_over(consumer.client(), topic, span.partition).map_err(text)?;
                from.add_partition_offset(topic, span.partition, Offset::Offset(span.from)).map_err(failed)?;
            }
        }
        consumer.assign(&from).map_err(failed)?;
        Ok(Self { queue, consumer: Arc::new(consumer), topic: topic.to_owned(), open, next })
    }

    /// The next records, at most `max`, within `wait`; none where all spans are read. Records behind the end of a span
    /// may be among them.
    ///
    /// # Errors
    /// A partition cannot be read.
    pub fn read(&mut self, max: usize, wait: Duration) -> Result<Option<SpanBatch>, SpanError> {
        if self.open.is_empty() {
            return Ok(None);
        }
        let deadline = Instant::now() + wait;
        let mut batch = MessageBatch::new(Arc::clone(&self.consumer), Reads::Published);
        loop {
            // Serves logs, errors and statistics; messages come by our own queue.
            if let Some(Err(error)) = self.consumer.poll(Duration::ZERO) {
                tracing::warn!(%error, "reading {}", self.topic);
            }
            let (before, left) = (batch.len(), deadline.saturating_duration_since(Instant::now()));
            let errors = batch.fill(&self.queue, TAKE.min(max - before.min(max)), left.min(Duration::from_millis(100)));
            for index in before..batch.len() {
                let RecordView { partition, offset, .. } = batch.get(index);
                self.advance(partition, offset + 1);
            }
            for error in errors {
                if error.code == RDKafkaErrorCode::PartitionEOF {
                    // The offset of an end is that of the record that will come next.
                    self.advance(error.partition, error.offset);
                } else {
                    self.judge(error.code, error.partition)?;
                }
            }
            let full = batch.len() >= max || batch.bytes() >= BATCH_BYTES;
            if full || self.open.is_empty() || Instant::now() >= deadline {
                return Ok(Some(SpanBatch(batch)));
            }
        }
    }

    fn advance(&mut self, partition: i32, next: i64) {
        let known = self.next.entry(partition).or_insert(next);
        *known = next.max(*known);
        if self.open.get(&partition).is_some_and(|end| *known >= *end) {
            self.open.remove(&partition);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    fn judge(&self, code: RDKafkaErrorCode, partition: i32) -> Result<(), SpanError> {
        let reason = match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                "retention has deleted records while they were read: run it again".to_owned()
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                let right = Right::ReadTopic(self.topic.clone());
                format!("Kafka does not let weir ({code}): grant {right} (docs/security.md)")
            }
            RDKafkaErrorCode::Fatal => "the consumer failed for good".to_owned(),
            other => {
                tracing::warn!(error = %other, partition, "reading {}", self.topic);
                return Ok(());
            }
        };
        Err(SpanError { topic: format!("partition {partition} of {}", self.topic), reason })
    }

    /// The next offset of each partition: all before it was handed out.
    #[must_use]
    pub fn next(&self) -> &BTreeMap<i32, i64> {
        &self.next
    }
}

/// Records of several partitions, in the order of each.
pub struct SpanBatch(MessageBatch<LaneContext>);

impl Records for SpanBatch {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        self.0.get(index)
    }
}
