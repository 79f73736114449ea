//! Reads what a topic holds between two times, merged by time over its partitions: outside of the group, and without
//! committing anything.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::error::RDKafkaErrorCode;
use weir_core::{
    record::{RecordView, Records},
    time::Time,
};

use super::{
    client::{KafkaOptions, Reads},
    extents::{ReadError, Span, spans_between},
    groupless::Reading,
    lane_context::LaneContext,
    native::{MessageBatch, MessageQueue},
};

/// How long a partition may give nothing before the read is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long messages of one partition are waited for between two looks at the client's events.
const SLICE: Duration = Duration::from_millis(100);
/// Records of one partition taken in one call.
const TAKE: usize = 500;
/// What all partitions together hold of fetched and unread records, in kB.
const READ_AHEAD_KBYTES: usize = 65_536;
/// The least that one of them holds, in kB.
const LEAST_READ_AHEAD_KBYTES: usize = 256;

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The topic.
    pub topic: String,
    /// From the first record of this time or later; `None` from the beginning.
    pub from: Option<Time>,
    /// Up to before the first record of this time or later; `None` up to what is there now.
    pub to: Option<Time>,
}

/// One partition's part of the range.
struct Part {
    span: Span,
    next: usize,
    // Dropped before the consumer: see `RangeReader`.
    batch: MessageBatch<LaneContext>,
    queue: MessageQueue,
    ended: bool,
}

/// Reads a range, record by record.
pub struct RangeReader {
    // Queues are dropped before the consumer: fields go in their order.
    parts: Vec<Part>,
    reading: Reading,
    records: u64,
}

impl RangeReader {
    /// Looks up the offsets and starts to read. Blocks.
    ///
    /// # Errors
    /// No broker answers, or there is no such topic.
    pub fn open(options: &KafkaOptions, range: &Range) -> Result<Self, ReadError> {
        let spans = spans_between(options, &range.topic, (range.from, range.to))?;
        let read_ahead_kbytes = (READ_AHEAD_KBYTES / spans.len().max(1)).max(LEAST_READ_AHEAD_KBYTES);
        let reading = Reading::new(options, &range.topic, read_ahead_kbytes)?;
        let mut parts = Vec::with_capacity(spans.len());
        for span in spans {
            let batch = MessageBatch::new(Arc::clone(&reading.consumer), Reads::Published);
            parts.push(Part { span, next: 0, batch, queue: reading.queue()?, ended: false });
        }
        reading.begin(parts.iter().map(|part| (part.span, &part.queue)))?;
        let records = parts.iter().map(|part| (part.span.to - part.span.from).unsigned_abs()).sum();
        Ok(Self { parts, reading, records })
    }

    /// How many records it will give, at most: transactions' markers are among the offsets.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record: of the partitions' next ones the earliest. `None` at the end. Blocks.
    ///
    /// # Errors
    /// A partition cannot be read.
    pub fn read(&mut self) -> Result<Option<RecordView<'_>>, ReadError> {
        let mut earliest: Option<(Option<Time>, usize)> = None;
        for place in 0..self.parts.len() {
            if !self.fill(place)? {
                continue;
            }
            let part = &self.parts[place];
            let time = part.batch.get(part.next).timestamp;
            if earliest.is_none_or(|(other, _)| time < other) {
                earliest = Some((time, place));
            }
        }
        let Some((_, place)) = earliest else { return Ok(None) };
        let part = &mut self.parts[place];
        part.next += 1;
        Ok(Some(part.batch.get(part.next - 1)))
    }

    /// Makes sure that a partition has a next record; `false` where it has ended.
    fn fill(&mut self, place: usize) -> Result<bool, ReadError> {
        let (part, reading) = (&mut self.parts[place], &self.reading);
        let partition = part.span.partition;
        let deadline = Instant::now() + PATIENCE;
        while part.next >= part.batch.len() && !part.ended {
            part.batch = MessageBatch::new(Arc::clone(&reading.consumer), Reads::Published);
            part.next = 0;
            let mut errors = part.batch.fill(&part.queue, TAKE, Duration::ZERO);
            if part.batch.is_empty() && errors.is_empty() {
                reading.serve();
                errors = part.batch.fill(&part.queue, 1, SLICE);
            }
            for error in errors {
                if error.code == RDKafkaErrorCode::PartitionEOF {
                    part.ended = true;
                } else {
                    reading.judge(error.code, partition)?;
                }
            }
            if part.batch.is_empty() && !part.ended && Instant::now() >= deadline {
                let reason = format!("nothing came for {} s: are its brokers up?", PATIENCE.as_secs());
                return Err(reading.failed(partition, reason));
            }
        }
        if part.next >= part.batch.len() {
            return Ok(false);
        }
        if part.batch.get(part.next).offset >= part.span.to {
            part.ended = true;
            part.next = part.batch.len();
            return Ok(false);
        }
        Ok(true)
    }
}
