//! Reads partitions of a topic from one offset to another, without a group.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::error::RDKafkaErrorCode;
use weir_core::record::{RecordView, Records};

use super::{
    client::{KafkaOptions, Reads},
    extents::{ReadError, Span},
    groupless::Reading,
    lane_context::LaneContext,
    native::{MessageBatch, MessageQueue},
};

/// What is held of fetched and unread records, in kB.
const READ_AHEAD_KBYTES: usize = 16_384;
/// The bytes after which a batch is full.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Records taken in one call.
const TAKE: usize = 512;

/// Reads spans of one topic, what is committed of them.
pub struct SpanReader {
    // Dropped before the consumer: fields go in their order.
    queue: MessageQueue,
    reading: Reading,
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
    pub fn new(options: &KafkaOptions, topic: &str, spans: &[Span]) -> Result<Self, ReadError> {
        let reading = Reading::new(options, topic, READ_AHEAD_KBYTES)?;
        let queue = reading.queue()?;
        let next = spans.iter().map(|span| (span.partition, span.from.max(0))).collect();
        let full = || spans.iter().filter(|span| span.from < span.to);
        reading.begin(full().map(|span| (*span, &queue)))?;
        let open = full().map(|span| (span.partition, span.to)).collect();
        Ok(Self { queue, reading, open, next })
    }

    /// The next records, at most `max`, within `wait`; none where all spans are read. Records behind the end of a span
    /// may be among them.
    ///
    /// # Errors
    /// A partition cannot be read.
    pub fn read(&mut self, max: usize, wait: Duration) -> Result<Option<SpanBatch>, ReadError> {
        if self.open.is_empty() {
            return Ok(None);
        }
        let deadline = Instant::now() + wait;
        let mut batch = MessageBatch::new(Arc::clone(&self.reading.consumer), Reads::Published);
        loop {
            self.reading.serve();
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
                    self.reading.judge(error.code, error.partition)?;
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
