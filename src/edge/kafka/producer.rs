//! A lane's producer: one batch, one transaction.

use std::{
    ffi::{CStr, CString},
    time::{Duration, Instant},
};

use rdkafka::{
    TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseProducer, Producer},
};

use super::{
    client::{Delivery, KafkaOptions, LaneContext, TRANSACTION_TIMEOUT},
    native::{self, MessageBatch, Outgoing, Partition},
    source::Membership,
};
use crate::worker::{
    ports::{CommitError, CommitTimes},
    record::{Destination, Job, OutputValue, Records},
};

/// How long one step (flush, offsets, commit, abort) may take: below the transaction's own time-out.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first contact with the transaction coordinator may take. It waits for what a predecessor left open.
const INIT_TIMEOUT: Duration = Duration::from_secs(25);
/// How long delivery errors may stay unseen while flushing.
const FLUSH_SLICE: Duration = Duration::from_millis(200);
/// How long an abort waits at a time, and how long the reports of what it gave up are taken in between.
const ABORT_SLICES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// The output topics' names as librdkafka takes them.
pub struct OutputTopics {
    intents: String,
    approved: CString,
    suppressed: CString,
    dead_letters: CString,
}

impl OutputTopics {
    /// The names of these options.
    ///
    /// # Errors
    /// A name holds a NUL.
    pub fn new(options: &KafkaOptions) -> Result<Self, String> {
        let name =
            |name: &str| CString::new(name).map_err(|_| format!("the topic name {name:?} holds a NUL: correct it"));
        Ok(Self {
            intents: options.intents.clone(),
            approved: name(&options.approved)?,
            suppressed: name(&options.suppressed)?,
            dead_letters: name(&options.dead_letters)?,
        })
    }

    fn of(&self, destination: Destination) -> Option<&CStr> {
        match destination {
            Destination::Approved => Some(&self.approved),
            Destination::Suppressed => Some(&self.suppressed),
            Destination::DeadLetters => Some(&self.dead_letters),
            Destination::Nowhere => None,
        }
    }
}

/// What has to happen before the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Ready,
    /// A transaction is open and has to be aborted.
    Open,
    /// The client is of no more use, or what it did is unclear: another one has to take over its id.
    Spent,
}

/// A producer that has its transactional id to itself.
pub struct LaneProducer {
    producer: BaseProducer<LaneContext>,
    delivery: Delivery,
    state: State,
    opened: Instant,
    transactional_id: String,
    partitions: Vec<(CString, i32)>,
}

impl LaneProducer {
    /// A new producer; it waits until what a predecessor with its id left open has ended.
    ///
    /// # Errors
    /// `Failed` where it may work later, `Fatal` where it is not allowed.
    pub fn new(options: &KafkaOptions, lane: usize) -> Result<Self, CommitError> {
        let producer: BaseProducer<LaneContext> = options
            .producer(lane)
            .create_with_context(LaneContext::default())
            .map_err(|error| CommitError::Fatal(format!("the Kafka producer cannot be made: {error}")))?;
        let mut made = Self {
            producer,
            delivery: options.delivery,
            state: State::Ready,
            opened: Instant::now(),
            transactional_id: options.transactional_id(lane),
            partitions: Vec::new(),
        };
        match options.delivery {
            Delivery::AtLeastOnce => Ok(made),
            Delivery::ExactlyOnce => match made.producer.init_transactions(INIT_TIMEOUT) {
                Ok(()) => Ok(made),
                Err(error) => Err(made.explain("start", &error)),
            },
        }
    }

    /// Aborts what is open. `None` where the client is of no more use.
    pub fn abort(mut self) -> Option<Self> {
        match self.state {
            State::Ready => return Some(self),
            State::Spent => return None,
            State::Open => {}
        }
        match self.delivery {
            Delivery::AtLeastOnce => return None,
            Delivery::ExactlyOnce => {}
        }
        if let Err(error) = self.abort_open() {
            tracing::warn!(%error, "a transaction could not be aborted; a new producer takes over");
            return None;
        }
        let _ = self.producer.context().take_failed_delivery();
        self.state = State::Ready;
        Some(self)
    }

    /// Aborts in slices: the purged records are delivery errors, which only a poll takes from the client's queue.
    fn abort_open(&self) -> Result<(), KafkaError> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            match self.producer.abort_transaction(ABORT_SLICES.0) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(inner)) if inner.is_retriable() && Instant::now() < deadline => {
                    self.producer.poll(ABORT_SLICES.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a batch visible, with its offsets.
    ///
    /// # Errors
    /// It is not, or may be: [`LaneProducer::abort`] comes next.
    pub fn commit(
        &mut self,
        job: &Job<MessageBatch<LaneContext>, Membership>,
        topics: &OutputTopics,
    ) -> Result<CommitTimes, CommitError> {
        self.opened = Instant::now();
        self.state = State::Open;
        if self.delivery == Delivery::ExactlyOnce {
            self.producer.begin_transaction().map_err(|error| self.spent("begin a transaction", &error))?;
        }
        self.produce(job, topics)?;
        let produced = Instant::now();
        if let Err(error) = self.flush() {
            return Err(self.behind(job, topics, error));
        }
        let flushed = Instant::now();
        let offsets = offsets(job, topics)?;
        match self.delivery {
            Delivery::ExactlyOnce => {
                self.producer
                    .send_offsets_to_transaction(&offsets, &job.membership.metadata, STEP_TIMEOUT)
                    .map_err(|error| self.explain("send the offsets", &error))?;
                // A commit whose answer is lost may have happened: only another producer's start tells.
                self.producer.commit_transaction(STEP_TIMEOUT).map_err(|error| self.spent("commit", &error))?;
            }
            Delivery::AtLeastOnce => job
                .membership
                .consumer
                .commit(&offsets, CommitMode::Sync)
                .map_err(|error| self.explain("commit the offsets", &error))?,
        }
        self.state = State::Ready;
        Ok(CommitTimes { produce: produced - self.opened, flush: flushed - produced, commit: flushed.elapsed() })
    }

    /// Why records were not delivered. A transaction that failed gives its records up as purged; its next step says why.
    fn behind(
        &mut self,
        job: &Job<MessageBatch<LaneContext>, Membership>,
        topics: &OutputTopics,
        error: CommitError,
    ) -> CommitError {
        let failed = matches!(error, CommitError::Failed(_)) && self.state == State::Open;
        match (self.delivery, offsets(job, topics)) {
            (Delivery::ExactlyOnce, Ok(offsets)) if failed => {
                let metadata = &job.membership.metadata;
                match self.producer.send_offsets_to_transaction(&offsets, metadata, Duration::from_secs(1)) {
                    // Only an abort follows, so the offsets go nowhere.
                    Ok(()) => error,
                    Err(cause) => self.explain("write the outputs", &cause),
                }
            }
            (Delivery::ExactlyOnce | Delivery::AtLeastOnce, _) => error,
        }
    }

    /// Hands all output records to the client; where its queue is full, waits for the broker.
    fn produce(
        &mut self,
        job: &Job<MessageBatch<LaneContext>, Membership>,
        topics: &OutputTopics,
    ) -> Result<(), CommitError> {
        let deadline = self.opened + STEP_TIMEOUT;
        for (index, output) in job.outputs.iter().enumerate() {
            let Some(topic) = topics.of(output.to) else { continue };
            let record = job.records.get(index);
            let partition = match record.key {
                Some(_) => Partition::ByKey,
                None => Partition::Number(record.partition % self.partitions_of(topic)?),
            };
            let value = match &output.value {
                OutputValue::AsItCame => None,
                OutputValue::Ours(bytes) => Some(bytes.as_slice()),
            };
            let outgoing = Outgoing { topic, partition, value, headers: &output.headers };
            while let Err(code) = native::produce(self.producer.client(), &job.records, index, outgoing) {
                if code != RDKafkaErrorCode::QueueFull || Instant::now() >= deadline {
                    let place = format!("partition {} offset {}", record.partition, record.offset);
                    return Err(self.undelivered(code, &format!("the record for {place} of {}", topics.intents)));
                }
                self.producer.poll(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// How many partitions a topic has, asked once a producer.
    fn partitions_of(&mut self, topic: &CStr) -> Result<i32, CommitError> {
        if let Some((_, count)) = self.partitions.iter().find(|(known, _)| known.as_c_str() == topic) {
            return Ok(*count);
        }
        let name = topic.to_string_lossy();
        let metadata = self
            .producer
            .client()
            .fetch_metadata(Some(&name), STEP_TIMEOUT)
            .map_err(|error| CommitError::Failed(format!("the partitions of {name} are not known: {error}")))?;
        let count = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        if count == 0 {
            return Err(CommitError::Fatal(format!(
                "the topic {name} does not exist: create it (`weir check` lists them)"
            )));
        }
        self.partitions.push((topic.to_owned(), count));
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), CommitError> {
        let deadline = self.opened + STEP_TIMEOUT;
        loop {
            let done = native::flush(self.producer.client(), FLUSH_SLICE);
            self.producer.poll(Duration::ZERO);
            if let Some(failed) = self.producer.context().take_failed_delivery() {
                return Err(self.undelivered(failed.code, &format!("a record for {}", failed.topic)));
            }
            if done {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waiting = self.producer.in_flight_count();
                return Err(CommitError::Failed(format!("{waiting} records are not acknowledged after 10 s")));
            }
        }
    }

    fn spent(&mut self, what: &str, error: &KafkaError) -> CommitError {
        self.state = State::Spent;
        self.explain(what, error)
    }

    /// What a record that was not delivered means. A client that failed as a whole gives its records up with codes that
    /// do not tell why.
    fn undelivered(&mut self, code: RDKafkaErrorCode, what: &str) -> CommitError {
        match self.producer.client().fatal_error() {
            Some((
                RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch,
                _,
            )) => self.fenced(),
            Some((_, message)) => {
                self.state = State::Spent;
                CommitError::Failed(format!("the producer failed as a whole: {message}"))
            }
            None => refused(code, what),
        }
    }

    /// The broker takes nothing from this producer any more.
    fn fenced(&mut self) -> CommitError {
        self.state = State::Spent;
        let id = &self.transactional_id;
        // A broker also fences a producer whose transaction it timed out: then nobody else is there.
        if self.opened.elapsed() >= TRANSACTION_TIMEOUT - Duration::from_secs(1) {
            CommitError::Failed(format!("the transaction of {id} timed out on the broker"))
        } else {
            CommitError::Fenced(format!(
                "another instance took over the transactional id {id}: give each instance a kafka.instance of its own. \
                 This one stops"
            ))
        }
    }

    /// What an error of the transactional client means for the lane.
    fn explain(&mut self, what: &str, error: &KafkaError) -> CommitError {
        let fatal = matches!(error, KafkaError::Transaction(inner) if inner.is_fatal());
        if fatal {
            self.state = State::Spent;
        }
        let id = &self.transactional_id;
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch,
            ) => self.fenced(),
            Some(
                RDKafkaErrorCode::TransactionalIdAuthorizationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed,
            ) => CommitError::Fatal(format!(
                "not allowed to {what} as {id} ({error}): grant WRITE on the output topics and on the transactional \
                 id, and READ on the group"
            )),
            _ => CommitError::Failed(format!("could not {what}: {error}")),
        }
    }
}

/// What a refused record means for the lane.
#[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
fn refused(code: RDKafkaErrorCode, what: &str) -> CommitError {
    match code {
        RDKafkaErrorCode::MessageSizeTooLarge => CommitError::Fatal(format!(
            "{what} is larger than its topic or broker takes: raise max.message.bytes of the approved, suppressed and \
             dead-letter topics above that of the intents (the envelope is larger than the intent)"
        )),
        RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownPartition => {
            CommitError::Fatal(format!("{what} has no topic to go to ({code}): create it (`weir check` lists them)"))
        }
        RDKafkaErrorCode::TopicAuthorizationFailed => {
            CommitError::Fatal(format!("{what} may not be written ({code}): grant WRITE on the output topics"))
        }
        other => CommitError::Failed(format!("{what} was not taken: {other}")),
    }
}

fn offsets(
    job: &Job<MessageBatch<LaneContext>, Membership>,
    topics: &OutputTopics,
) -> Result<TopicPartitionList, CommitError> {
    let mut list = TopicPartitionList::with_capacity(job.progress.len());
    for progress in &job.progress {
        list.add_partition_offset(&topics.intents, progress.partition, rdkafka::Offset::Offset(progress.next_offset))
            .map_err(|error| CommitError::Failed(format!("an offset was refused: {error}")))?;
    }
    Ok(list)
}
