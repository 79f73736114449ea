//! Reads partitions of a topic from one offset to another: outside of the group, and without committing anything.

mod reached;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    config::ClientConfig,
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode},
};
use weir_core::batch::record::{RecordView, Records as _};

use self::reached::Reached;
use super::{
    client::{KafkaOptions, Reads, not_made},
    client_end::drop_elsewhere,
    context::KafkaConsumer,
    extents::{ReadError, Span},
    native::{self, MessageBatch, MessageQueue, PartitionError},
    offsets::bare_list,
    rights::Right,
    tokens::make,
    topics::TopicError,
};

/// How long nothing may come before the read is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same where all that is committed is read, and a transaction is open: longer than brokers let one be open by default
/// (`transaction.max.timeout.ms`), which is 15 minutes.
const TRANSACTION_PATIENCE: Duration = Duration::from_secs(16 * 60);
const SEEK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long messages are waited for between two looks at the client's events.
const SLICE: Duration = Duration::from_millis(100);
/// Records taken in one call.
const TAKE: usize = 512;
/// The bytes after which a batch is full.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// What all queues together hold of fetched and unread records, and one of them at the least, in kB.
const READ_AHEAD_KBYTES: usize = 16_384;
const LEAST_READ_AHEAD_KBYTES: usize = 256;

/// Records of one or several partitions, in the order of each.
pub type PartitionBatch = MessageBatch;

/// Reads spans of one topic: what is committed of them.
pub struct PartitionReader {
    // Fields are dropped in their order: queues before the consumer.
    queues: Vec<PartitionQueue>,
    consumer: Arc<KafkaConsumer>,
    closing: Arc<Closing>,
    topic: String,
    reached: Reached,
    passes_over_unreadable: bool,
    /// What the client said last that is wrong.
    trouble: Option<String>,
}

struct PartitionQueue {
    messages: MessageQueue,
    partitions: Vec<i32>,
    idle: Duration,
}

/// Closes a consumer when neither its reader nor a batch is left, without waiting for it.
struct Closing(Option<Arc<KafkaConsumer>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let consumer = self.0.take();
        if let Err(error) = drop_elsewhere(consumer) {
            tracing::warn!(%error, "no thread for the end of a consumer");
        }
    }
}

fn settings(options: &KafkaOptions, read_ahead_kbytes: usize) -> ClientConfig {
    let mut config = options.client();
    options.bound_fetches(&mut config, options.span_fetch_bytes());
    config
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

impl PartitionReader {
    /// Begins to read, all spans into one queue. One that is empty is not read.
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
        let consumer = make(&settings(options, read_ahead_kbytes), options, Consumer::client);
        let consumer: Arc<KafkaConsumer> = Arc::new(consumer.map_err(TopicError::Client)?);
        native::inflate::bound(options.inflated_bytes(), options.answer_bytes());
        let closing = Arc::new(Closing(Some(Arc::clone(&consumer))));
        let (topic, reached) = (topic.to_owned(), Reached::of(spans));
        let (queues, passes_over_unreadable, trouble) = (Vec::new(), false, None);
        let mut reader = Self { queues, consumer, closing, topic, reached, passes_over_unreadable, trouble };
        let mut assigned = TopicPartitionList::new();
        for spans in spans.chunks(spans_a_queue) {
            let queue = reader.queue(spans, &mut assigned)?;
            reader.queues.push(queue);
        }
        if assigned.count() > 0 {
            reader.consumer.assign(&assigned).map_err(|error| TopicError::Client(not_made(&error)))?;
        }
        Ok(reader)
    }

    /// Whether records whose batches are broken, or inflate to too much, are passed over instead of being an error.
    #[must_use]
    pub fn passing_over_unreadable(mut self, passes_over: bool) -> Self {
        self.passes_over_unreadable = passes_over;
        self
    }

    /// A queue for these spans, which are then to be assigned.
    fn queue(&self, spans: &[Span], assigned: &mut TopicPartitionList) -> Result<PartitionQueue, ReadError> {
        let messages = MessageQueue::new(self.consumer.client()).map_err(TopicError::Client)?;
        for &Span { partition, from, .. } in spans.iter().filter(|span| self.reached.is_open(span.partition)) {
            let failed = |reason| self.failed(partition, reason);
            messages.take_over(self.consumer.client(), &self.topic, partition).map_err(failed)?;
            let added = assigned.add_partition_offset(&self.topic, partition, Offset::Offset(from));
            added.map_err(|error| failed(error.to_string()))?;
        }
        let partitions = spans.iter().map(|span| span.partition).collect();
        Ok(PartitionQueue { messages, partitions, idle: Duration::ZERO })
    }

    /// The next records, at most `max`, within `wait`: fewer, or none, where no more have come. `None` where all spans are read.
    ///
    /// # Errors
    /// A partition cannot be read, or this has waited for two minutes in which nothing came; for 16 where a transaction is open.
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
        match self.is_stuck(place) {
            Some((partition, reason)) => Err(self.failed(partition, reason)),
            None => Ok(Some(batch)),
        }
    }

    /// The partition of a queue on which nothing came for too long, and why that may be.
    fn is_stuck(&self, place: usize) -> Option<(i32, String)> {
        let PartitionQueue { partitions, idle, .. } = self.queues.get(place).filter(|queue| queue.idle >= PATIENCE)?;
        let open: Vec<i32> = partitions.iter().copied().filter(|partition| self.reached.is_open(*partition)).collect();
        if let Some(partition) = open.iter().find(|partition| !self.reached.is_held_up(**partition)) {
            let trouble = self.trouble.as_ref().map_or_else(String::new, |said| format!(" The last error: {said}"));
            let reason = format!("nothing came for {} s: are its brokers up?{trouble}", PATIENCE.as_secs());
            return Some((*partition, reason));
        }
        let partition = open.first().filter(|_| *idle >= TRANSACTION_PATIENCE)?;
        let minutes = TRANSACTION_PATIENCE.as_secs() / 60;
        let reason =
            format!("a transaction has been open for {minutes} min: kafka-transactions.sh find-hanging names it");
        Some((*partition, reason))
    }

    pub(super) fn batch(&self) -> PartitionBatch {
        let closing = Arc::clone(&self.closing);
        MessageBatch::new(Arc::clone(&self.consumer), Reads::Published).kept_with(closing)
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
            if let KafkaError::MessageConsumptionFatal(_) = error {
                return Err(TopicError::Client(format!("the consumer failed for good: {error}")).into());
            }
            tracing::warn!(%error, "reading {}", self.topic);
            self.trouble = Some(error.to_string());
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
        // librdkafka reads on behind some batches that are broken. What is still in the way it reports again.
        let came = |partition| (before..batch.len()).any(|index| batch.get(index).partition == partition);
        errors.retain(|error| !self.passes_over_unreadable || !is_unreadable(error.code) || !came(error.partition));
        has_advanced |= self.take_errors(&errors)?;
        self.leave_ended();
        Ok(has_advanced)
    }

    /// Takes what came beside records; `false`: none of the spans was read on.
    fn take_errors(&mut self, errors: &[PartitionError]) -> Result<bool, ReadError> {
        let (mut has_advanced, mut unreadable) = (false, BTreeMap::new());
        for &PartitionError { partition, offset, code } in errors {
            // What is behind the end of a span does not matter.
            if partition >= 0 && !self.reached.is_open(partition) {
                continue;
            }
            if code == RDKafkaErrorCode::PartitionEOF {
                // The offset of an end is that of the record that will come next. What is missing before it (transactions' markers,
                // aborted and compacted records) does not come any more.
                self.reached.comes_to_an_end(partition, offset);
                has_advanced = true;
            } else if is_unreadable(code) && self.passes_over_unreadable {
                unreadable.insert(partition, (offset, code));
            } else {
                self.judge(code, (partition, offset))?;
            }
        }
        if !unreadable.is_empty() {
            self.pass_over(&unreadable)?;
            has_advanced = true;
        }
        Ok(has_advanced)
    }

    /// Passes over the next record of partitions whose next batch cannot be read. How many records there are in it is not known, so the
    /// next one is tried then, until the batch ends.
    fn pass_over(&mut self, unreadable: &BTreeMap<i32, (i64, RDKafkaErrorCode)>) -> Result<(), ReadError> {
        let mut to = TopicPartitionList::with_capacity(unreadable.len());
        for (&partition, &(begin, code)) in unreadable {
            let offset = self.reached.next().get(&partition).map_or(begin, |next| begin.max(*next));
            tracing::warn!(topic = self.topic, partition, offset, error = %code, "a record is passed over: its batch cannot be read");
            self.reached.advance(partition, offset + 1);
            if self.reached.is_open(partition) {
                let added = to.add_partition_offset(&self.topic, partition, Offset::Offset(offset + 1));
                added.map_err(|error| self.failed(partition, error.to_string()))?;
            }
        }
        if to.count() > 0 {
            // A seek makes what was fetched before void.
            let sought = self.consumer.seek_partitions(to, SEEK_TIMEOUT);
            for element in sought.map_err(|error| TopicError::Client(error.to_string()))?.elements() {
                element.error().map_err(|error| self.failed(element.partition(), error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Does not fetch partitions any more whose spans have ended: they would take the room of the others.
    fn leave_ended(&mut self) {
        let ended = self.reached.take_ended();
        // The end of the last ones is that of the reader.
        if ended.is_empty() || !self.reached.is_any_open() {
            return;
        }
        if let Err(error) = self.consumer.incremental_unassign(&bare_list(&self.topic, &ended)) {
            tracing::warn!(%error, "partitions of {} are fetched on behind what is read of them", self.topic);
        }
    }

    fn failed(&self, partition: i32, reason: String) -> ReadError {
        ReadError::Partition { topic: self.topic.clone(), partition, reason }
    }

    /// Passes over errors of a partition that librdkafka mends by itself.
    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    fn judge(&self, code: RDKafkaErrorCode, (partition, offset): (i32, i64)) -> Result<(), ReadError> {
        let reason = match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                "records were deleted while they were read, by retention or with the topic, or lost by an unclean election: begin later, \
                 or run it again"
                    .to_owned()
            }
            RDKafkaErrorCode::ClusterAuthorizationFailed => {
                format!("Kafka does not let weir ({code}): docs/security.md lists what weir needs")
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                let right = Right::ReadTopic(self.topic.clone());
                format!("Kafka does not let weir ({code}): grant {right} (docs/security.md)")
            }
            RDKafkaErrorCode::Fatal => "the consumer failed for good".to_owned(),
            // It would be reported again and again.
            RDKafkaErrorCode::BadCompression => {
                format!("the batch at offset {offset} cannot be decompressed, or inflates to more than receive.message.max.bytes")
            }
            // librdkafka would read on behind these.
            RDKafkaErrorCode::BadMessage | RDKafkaErrorCode::NotImplemented => {
                format!("the batch at offset {offset} is broken, or of a format that librdkafka does not know ({code})")
            }
            RDKafkaErrorCode::MessageSizeTooLarge => {
                format!("the record at offset {offset} is larger than what is fetched: raise receive.message.max.bytes")
            }
            other => {
                tracing::warn!(error = %other, partition, "reading {}", self.topic);
                return Ok(());
            }
        };
        Err(self.failed(partition, reason))
    }

    /// The next offset of each partition: all before it was handed out.
    pub fn next(&self) -> &BTreeMap<i32, i64> {
        self.reached.next()
    }
}

fn is_unreadable(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::BadCompression | RDKafkaErrorCode::BadMessage | RDKafkaErrorCode::NotImplemented)
}
