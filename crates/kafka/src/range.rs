//! Reads what a topic holds between two times, merged by time over its partitions: outside of the group, and without
//! committing anything.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
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
    offsets::{Logical, ends, offsets_at, partitions_of, right_to_read},
    rights::Right,
};

/// How long one answer of a broker may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Why a topic could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// The client could not be made.
    #[error("the Kafka client cannot be made: {0}. Check [kafka.properties]")]
    Client(String),
    /// No broker answered.
    #[error(
        "no answer from Kafka at {brokers} about the topic {topic}: {error}. Check kafka.brokers, the network, and TLS and SASL in [kafka.properties]"
    )]
    Unreachable {
        /// Where.
        brokers: String,
        /// What was asked for.
        topic: String,
        /// What the client says.
        error: Box<KafkaError>,
    },
    /// A right is missing.
    #[error("Kafka at {brokers} does not let weir read what it has to: grant {right} (docs/security.md)")]
    NotAllowed {
        /// Where.
        brokers: String,
        /// Which.
        right: Right,
    },
    /// There is no such topic.
    #[error("the topic {topic} does not exist at {brokers}: check its name")]
    Missing {
        /// Where.
        brokers: String,
        /// Which.
        topic: String,
    },
    /// A partition cannot be read.
    #[error("partition {partition} of {topic} cannot be read: {reason}")]
    Partition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Why.
        reason: String,
    },
}

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
    partition: i32,
    /// The offset behind the last record of the range.
    end: i64,
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
    consumer: Arc<BaseConsumer<LaneContext>>,
    topic: String,
    records: u64,
}

impl RangeReader {
    /// Looks up the offsets and starts to read. Blocks.
    ///
    /// # Errors
    /// No broker answers, or there is no such topic.
    pub fn open(options: &KafkaOptions, range: &Range) -> Result<Self, RangeError> {
        let unreachable = |error: KafkaError| {
            let brokers = options.brokers.clone();
            match right_to_read(&error, &range.topic) {
                Some(right) => RangeError::NotAllowed { brokers, right },
                None => RangeError::Unreachable { brokers, topic: range.topic.clone(), error: Box::new(error) },
            }
        };
        let asking: BaseConsumer =
            options.consumer().create().map_err(|error| RangeError::Client(error.to_string()))?;
        let partitions = partitions_of(&asking, &range.topic, ANSWER_TIMEOUT).map_err(unreachable)?;
        if partitions.is_empty() {
            return Err(RangeError::Missing { brokers: options.brokers.clone(), topic: range.topic.clone() });
        }
        let bounds = bounds(&asking, range, &partitions).map_err(unreachable)?;
        drop(asking);
        Self::start(options, range, &bounds)
    }

    fn start(options: &KafkaOptions, range: &Range, bounds: &[Bounds]) -> Result<Self, RangeError> {
        let read_ahead = (READ_AHEAD_KBYTES / bounds.len().max(1)).max(LEAST_READ_AHEAD_KBYTES);
        let consumer: BaseConsumer<LaneContext> = options
            .consumer()
            .set("enable.partition.eof", "true")
            .set("queued.max.messages.kbytes", read_ahead.to_string())
            .create_with_context(LaneContext::default())
            .map_err(|error| RangeError::Client(error.to_string()))?;
        let consumer = Arc::new(consumer);
        let mut assigned = TopicPartitionList::with_capacity(bounds.len());
        let (mut parts, mut records) = (Vec::with_capacity(bounds.len()), 0);
        for Bounds { partition, start, end } in bounds.iter().filter(|bounds| bounds.start < bounds.end) {
            let failed = |reason| RangeError::Partition { topic: range.topic.clone(), partition: *partition, reason };
            let queue = MessageQueue::new(consumer.client()).map_err(failed)?;
            queue.take_over(consumer.client(), &range.topic, *partition).map_err(failed)?;
            assigned
                .add_partition_offset(&range.topic, *partition, Offset::Offset(*start))
                .map_err(|error| failed(error.to_string()))?;
            let batch = MessageBatch::new(Arc::clone(&consumer), Reads::Published);
            parts.push(Part { partition: *partition, end: *end, next: 0, batch, queue, ended: false });
            records += (end - start).unsigned_abs();
        }
        if !parts.is_empty() {
            consumer.assign(&assigned).map_err(|error| RangeError::Client(error.to_string()))?;
        }
        Ok(Self { parts, consumer, topic: range.topic.clone(), records })
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
    pub fn read(&mut self) -> Result<Option<RecordView<'_>>, RangeError> {
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
    fn fill(&mut self, place: usize) -> Result<bool, RangeError> {
        let part = &mut self.parts[place];
        let deadline = Instant::now() + PATIENCE;
        while part.next >= part.batch.len() && !part.ended {
            part.batch = MessageBatch::new(Arc::clone(&self.consumer), Reads::Published);
            part.next = 0;
            let mut errors = part.batch.fill(&part.queue, TAKE, Duration::ZERO);
            if part.batch.is_empty() && errors.is_empty() {
                // The client's own events: what it logs goes to its context.
                drop(self.consumer.poll(Duration::ZERO));
                errors = part.batch.fill(&part.queue, 1, SLICE);
            }
            let failed =
                |reason: String| RangeError::Partition { topic: self.topic.clone(), partition: part.partition, reason };
            for error in errors {
                judge(error.code, &self.topic, &mut part.ended).map_err(failed)?;
            }
            if part.batch.is_empty() && !part.ended && Instant::now() >= deadline {
                return Err(failed(format!("nothing came for {} s: are its brokers up?", PATIENCE.as_secs())));
            }
        }
        if part.next >= part.batch.len() {
            return Ok(false);
        }
        if part.batch.get(part.next).offset >= part.end {
            part.ended = true;
            part.next = part.batch.len();
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whether an error of a partition is its end, one that librdkafka mends by itself, or one that ends the read.
#[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
fn judge(code: RDKafkaErrorCode, topic: &str, ended: &mut bool) -> Result<(), String> {
    match code {
        RDKafkaErrorCode::PartitionEOF => {
            *ended = true;
            Ok(())
        }
        RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
            Err("retention has deleted records of the range while it was read; begin later".to_owned())
        }
        RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
            let right = Right::ReadTopic(topic.to_owned());
            Err(format!("Kafka does not let weir ({code}): grant {right} (docs/security.md)"))
        }
        RDKafkaErrorCode::Fatal => Err(code.to_string()),
        other => {
            tracing::warn!(error = %other, "kafka consumer");
            Ok(())
        }
    }
}

/// The offsets of a partition's part.
struct Bounds {
    partition: i32,
    start: i64,
    end: i64,
}

fn bounds(consumer: &BaseConsumer, range: &Range, partitions: &[i32]) -> Result<Vec<Bounds>, KafkaError> {
    let at = |time: Option<Time>| {
        time.map(|time| offsets_at(consumer, &range.topic, partitions, time, ANSWER_TIMEOUT)).transpose()
    };
    let (from, to) = (at(range.from)?, at(range.to)?);
    let ends_at = |which| ends(consumer, &range.topic, partitions, which, ANSWER_TIMEOUT);
    let (lows, highs) = (ends_at(Logical::Earliest)?, ends_at(Logical::Latest)?);
    let of = |(place, &partition): (usize, &i32)| {
        // Records may be deleted between the two answers.
        let (low, high) = (lows[place], highs[place].max(lows[place]));
        let bound = |offsets: &Option<Vec<Option<i64>>>, none: i64| match offsets {
            None => none,
            // There is no record of that time or later.
            Some(offsets) => offsets[place].unwrap_or(high).clamp(low, high),
        };
        Bounds { partition, start: bound(&from, low), end: bound(&to, high) }
    };
    Ok(partitions.iter().enumerate().map(of).collect())
}
