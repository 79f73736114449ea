//! Reads partitions of a topic from one offset to another: outside of the group, and without committing anything.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    config::ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};
use weir_core::record::{RecordView, Records as _};

use super::{
    client::{KafkaOptions, Reads, not_made},
    extents::{ReadError, Span},
    lane_context::LaneContext,
    native::{self, MessageBatch, MessageQueue},
    rights::Right,
    topics::TopicError,
};

/// How long nothing may come before the read is given up: longer than the transaction of a producer that hangs stays open by default,
/// which is a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long messages are waited for between two looks at the client's events.
const SLICE: Duration = Duration::from_millis(100);
/// Records taken in one call.
const TAKE: usize = 512;
/// The bytes after which a batch is full.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// What all queues together hold of fetched and unread records, and one of them at the least, in kB.
const READ_AHEAD_KBYTES: usize = 16_384;
const LEAST_READ_AHEAD_KBYTES: usize = 256;

/// Records of one or several partitions, in the order of each. To be dropped before their reader.
pub type PartitionBatch = MessageBatch<LaneContext>;

/// Reads spans of one topic: what is committed of them.
pub struct PartitionReader {
    // Fields are dropped in their order: queues before the consumer.
    queues: Vec<Queue>,
    consumer: Arc<BaseConsumer<LaneContext>>,
    _closing: Closing,
    topic: String,
    reached: Reached,
}

/// Where the fetched messages of some partitions wait.
struct Queue {
    messages: MessageQueue,
    partitions: Vec<i32>,
    /// How long nothing has come of them.
    idle: Duration,
}

/// Closes a consumer on a thread of its own: because of its `group.id`, rdkafka waits until librdkafka has closed it, however long that
/// takes.
struct Closing(Option<Arc<BaseConsumer<LaneContext>>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let consumer = self.0.take();
        let end = thread::Builder::new().name("reader-end".to_owned()).spawn(move || drop(consumer));
        if let Err(error) = end {
            tracing::warn!(%error, "no thread for the end of a consumer");
        }
    }
}

/// How far spans are read.
struct Reached {
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
    /// The ends of the spans that are not read to their end.
    open: BTreeMap<i32, i64>,
}

impl Reached {
    fn of(spans: &[Span]) -> Self {
        let full = spans.iter().filter(|span| span.from < span.to);
        Self {
            next: spans.iter().map(|span| (span.partition, span.from.max(0))).collect(),
            open: full.map(|span| (span.partition, span.to)).collect(),
        }
    }

    fn is_open(&self, partition: i32) -> bool {
        self.open.contains_key(&partition)
    }

    /// Notes that a partition was read up to before this offset; `false` where that is beyond its span.
    fn advance(&mut self, partition: i32, next: i64) -> bool {
        let Some(&end) = self.open.get(&partition) else { return false };
        let known = self.next.entry(partition).or_insert(next);
        *known = next.min(end).max(*known);
        if next >= end {
            self.open.remove(&partition);
        }
        next <= end
    }
}

fn settings(options: &KafkaOptions, read_ahead_kbytes: usize) -> ClientConfig {
    let (mut config, fetch_bytes) = (options.client(), options.span_fetch_bytes());
    config
        .set("fetch.max.bytes", fetch_bytes.to_string())
        .set("receive.message.max.bytes", options.inflated_bytes().to_string())
        // The producer's; librdkafka holds a consumer's fetches to it.
        .set("message.max.bytes", fetch_bytes.clamp(1_000, 1_000_000).to_string())
        .set("isolation.level", "read_committed")
        // librdkafka assigns no partitions without one; the group is not joined.
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.queue.backoff.ms", "10")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", read_ahead_kbytes.to_string());
    config
}

fn client(error: &KafkaError) -> ReadError {
    TopicError::Client(not_made(error)).into()
}

impl PartitionReader {
    /// Begins to read, all spans into one queue. One that is empty is not read.
    ///
    /// # Errors
    /// The settings are not librdkafka's.
    pub fn new(options: &KafkaOptions, topic: &str, spans: &[Span]) -> Result<Self, ReadError> {
        Self::begin(options, topic, spans, spans.len().max(1))
    }

    /// Begins to read, each span into the queue of its place: one that is not read from holds none of the others up.
    pub(super) fn apart(options: &KafkaOptions, topic: &str, spans: &[Span]) -> Result<Self, ReadError> {
        Self::begin(options, topic, spans, 1)
    }

    fn begin(options: &KafkaOptions, topic: &str, spans: &[Span], spans_a_queue: usize) -> Result<Self, ReadError> {
        let queues = spans.chunks(spans_a_queue).len().max(1);
        let read_ahead_kbytes = (READ_AHEAD_KBYTES / queues).max(LEAST_READ_AHEAD_KBYTES);
        let consumer = settings(options, read_ahead_kbytes).create_with_context(LaneContext::default());
        let consumer: Arc<BaseConsumer<LaneContext>> = Arc::new(consumer.map_err(|error| client(&error))?);
        native::inflate::bound(options.inflated_bytes(), options.answer_bytes());
        let _closing = Closing(Some(Arc::clone(&consumer)));
        let (topic, reached) = (topic.to_owned(), Reached::of(spans));
        let mut reader = Self { queues: Vec::new(), consumer, _closing, topic, reached };
        let mut assigned = TopicPartitionList::new();
        for spans in spans.chunks(spans_a_queue) {
            let queue = reader.queue(spans, &mut assigned)?;
            reader.queues.push(queue);
        }
        if assigned.count() > 0 {
            reader.consumer.assign(&assigned).map_err(|error| client(&error))?;
        }
        Ok(reader)
    }

    /// A queue for these spans, which are then to be assigned.
    fn queue(&self, spans: &[Span], assigned: &mut TopicPartitionList) -> Result<Queue, ReadError> {
        let messages = MessageQueue::new(self.consumer.client()).map_err(TopicError::Client)?;
        for &Span { partition, from, .. } in spans.iter().filter(|span| self.reached.is_open(span.partition)) {
            let failed = |reason| self.failed(partition, reason);
            messages.take_over(self.consumer.client(), &self.topic, partition).map_err(failed)?;
            let added = assigned.add_partition_offset(&self.topic, partition, Offset::Offset(from));
            added.map_err(|error| failed(error.to_string()))?;
        }
        let partitions = spans.iter().map(|span| span.partition).collect();
        Ok(Queue { messages, partitions, idle: Duration::ZERO })
    }

    /// The next records, at most `max`, within `wait`: fewer, or none, where no more have come. `None` where all spans are read.
    ///
    /// # Errors
    /// A partition cannot be read, or this has waited for two minutes in which nothing came.
    pub fn read(&mut self, max: usize, wait: Duration) -> Result<Option<PartitionBatch>, ReadError> {
        self.read_queue(0, (max, max), wait)
    }

    /// The next records of a queue: at most `most`, and not fewer than `least` unless no more come within `wait`. `None` where its
    /// spans are read.
    pub(super) fn read_queue(
        &mut self,
        place: usize,
        (least, most): (usize, usize),
        wait: Duration,
    ) -> Result<Option<PartitionBatch>, ReadError> {
        if self.open_partition(place).is_none() {
            return Ok(None);
        }
        let (began, mut batch, mut has_advanced) = (Instant::now(), self.batch(), false);
        loop {
            let left = wait.saturating_sub(began.elapsed());
            let room = most.saturating_sub(batch.len());
            has_advanced |= self.take(place, &mut batch, room, left)?;
            let is_full = batch.len() >= least || batch.bytes() >= BATCH_BYTES;
            if is_full || left.is_zero() || self.open_partition(place).is_none() {
                break;
            }
        }
        let idle = &mut self.queues[place].idle;
        // A process that was frozen has not waited all the time.
        *idle = if has_advanced { Duration::ZERO } else { *idle + began.elapsed().min(wait) };
        if *idle >= PATIENCE
            && let Some(partition) = self.open_partition(place)
        {
            let reason = "are its brokers up, or does a transaction stay open?";
            return Err(self.failed(partition, format!("nothing came for {} s: {reason}", PATIENCE.as_secs())));
        }
        Ok(Some(batch))
    }

    /// A batch without records.
    pub(super) fn batch(&self) -> PartitionBatch {
        MessageBatch::new(Arc::clone(&self.consumer), Reads::Published)
    }

    /// A partition of a queue that is not read to its end.
    fn open_partition(&self, place: usize) -> Option<i32> {
        self.queues.get(place)?.partitions.iter().copied().find(|partition| self.reached.is_open(*partition))
    }

    /// Takes at most `most` records that a queue holds; where it holds nothing, waits so long for one. `false`: none of its spans was
    /// read on.
    fn take(
        &mut self,
        place: usize,
        batch: &mut PartitionBatch,
        most: usize,
        wait: Duration,
    ) -> Result<bool, ReadError> {
        // Serves logs and errors; messages come by our queues.
        if let Some(Err(error)) = self.consumer.poll(Duration::ZERO) {
            tracing::warn!(%error, "reading {}", self.topic);
        }
        let (messages, before) = (&self.queues[place].messages, batch.len());
        let mut errors = batch.fill(messages, most.min(TAKE), Duration::ZERO);
        if errors.is_empty() && batch.len() == before {
            errors = batch.fill(messages, most.min(1), wait.min(SLICE));
        }
        let (mut has_advanced, mut beyond) = (false, Vec::new());
        for index in before..batch.len() {
            let RecordView { partition, offset, .. } = batch.get(index);
            if self.reached.advance(partition, offset + 1) {
                has_advanced = true;
            } else if beyond.iter().all(|(known, _)| *known != partition) {
                beyond.push((partition, offset));
            }
        }
        if !beyond.is_empty() {
            batch.take_out(&beyond);
        }
        for error in errors {
            if error.code == RDKafkaErrorCode::PartitionEOF {
                // The offset of an end is that of the record that will come next. What is missing before it (transactions' markers,
                // aborted and compacted records) does not come any more.
                has_advanced |= self.reached.is_open(error.partition);
                self.reached.advance(error.partition, error.offset);
            } else {
                self.judge(error.code, error.partition)?;
            }
        }
        Ok(has_advanced)
    }

    fn failed(&self, partition: i32, reason: String) -> ReadError {
        ReadError::Partition { topic: self.topic.clone(), partition, reason }
    }

    /// Passes over errors of a partition that librdkafka mends by itself.
    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    fn judge(&self, code: RDKafkaErrorCode, partition: i32) -> Result<(), ReadError> {
        let reason = match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                "records were deleted while they were read, by retention or with the topic: begin later, or run it again"
                    .to_owned()
            }
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
                let right = Right::ReadTopic(self.topic.clone());
                format!("Kafka does not let weir ({code}): grant {right} (docs/security.md)")
            }
            RDKafkaErrorCode::Fatal => "the consumer failed for good".to_owned(),
            // It would be reported again and again.
            RDKafkaErrorCode::BadCompression => {
                "a record batch cannot be decompressed, or inflates to more than receive.message.max.bytes".to_owned()
            }
            other => {
                tracing::warn!(error = %other, partition, "reading {}", self.topic);
                return Ok(());
            }
        };
        Err(self.failed(partition, reason))
    }

    /// The next offset of each partition: all before it was handed out.
    #[must_use]
    pub fn next(&self) -> &BTreeMap<i32, i64> {
        &self.reached.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_with_its_last_record_or_where_the_partition_goes_on_behind_it() {
        let span = |partition, from, to| Span { partition, from, to };
        let mut reached = Reached::of(&[span(0, 5, 8), span(1, 0, 4), span(2, 3, 3), span(3, 9, 7)]);
        let next = |reached: &Reached, partition: i32| reached.next[&partition];
        let open = |reached: &Reached| reached.open.keys().copied().collect::<Vec<_>>();
        assert_eq!(open(&reached), [0, 1], "the others are empty");
        assert_eq!([2, 3].map(|partition| next(&reached, partition)), [3, 9]);

        assert!(reached.advance(0, 6) && next(&reached, 0) == 6);
        // The partition's end was reported before a record that came with it.
        assert!(reached.advance(0, 5) && next(&reached, 0) == 6);
        assert!(reached.advance(0, 8), "the last record");
        assert!(!reached.advance(0, 9) && next(&reached, 0) == 8, "a record behind the end");
        assert_eq!(open(&reached), [1]);

        // The last offsets are transactions' markers: the next record, or the partition's end, is behind them.
        assert!(reached.advance(1, 2) && !reached.advance(1, 6) && next(&reached, 1) == 4);
        assert!(open(&reached).is_empty());
        assert!(!reached.advance(2, 4) && next(&reached, 2) == 3);
    }
}
