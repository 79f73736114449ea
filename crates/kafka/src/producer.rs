//! A lane's producer: one batch, one transaction.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseProducer, Producer},
};
use weir_core::ports::{CommitError, CommitTimes};

use super::{
    client::{Delivery, KafkaOptions, TRANSACTION_TIMEOUT},
    context::{FailedDelivery, KafkaContext},
    limits, native, offsets,
    output_topics::{OutputTopics, Unsent},
    sink::KafkaJob,
    tokens::make,
};

/// How long one step (offsets, commit, abort) may take: below the transaction's own time-out.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long writing the outputs may take: all that the broker leaves a transaction, but for what offsets and commit need. What
/// takes longer is aborted by the broker, so waiting longer would be in vain.
const WRITE_TIMEOUT: Duration = Duration::from_secs(TRANSACTION_TIMEOUT.as_secs() - 3);
/// How long the first contact with the transaction coordinator may take. It waits for what a predecessor left open.
pub(super) const INIT_TIMEOUT: Duration = Duration::from_secs(25);
/// How long delivery errors may stay unseen while flushing.
const FLUSH_SLICE: Duration = Duration::from_millis(200);
/// How long an abort waits at a time, and how long the reports of what it gave up are taken in between.
const ABORT_SLICES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// What has to happen before the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// A transaction is open and has to be aborted.
    Open,
    /// The client is of no more use, or what it did is unclear: another one has to take over its id.
    Spent,
}

/// A producer that has its transactional id to itself.
pub struct LaneProducer {
    // Dropped before the producer: fields go in their order.
    output_topics: OutputTopics,
    producer: BaseProducer<KafkaContext>,
    lane: usize,
    state: State,
    opened: Instant,
    options: KafkaOptions,
    /// What the output topics took when the client was made, which batches by it.
    made_for: BTreeMap<String, u64>,
    /// The edition of the files that the client was created from.
    edition: u64,
}

impl LaneProducer {
    /// Creates the client; [`Self::start`] makes it usable.
    pub fn make(options: &KafkaOptions, lane: usize) -> Result<Self, String> {
        let edition = options.files.edition();
        let made_for = options.written().into_iter().map(|(to, topic)| (topic, options.limits.get(to))).collect();
        let producer: BaseProducer<KafkaContext> = make(&options.producer(lane), options, Producer::client)
            .map_err(|reason| format!("the Kafka producer cannot be made: {reason}"))?;
        Ok(Self {
            output_topics: OutputTopics::new(&producer, options)?,
            producer,
            lane,
            state: State::Ready,
            opened: Instant::now(),
            options: options.clone(),
            made_for,
            edition,
        })
    }

    /// Takes the transactional id over, and waits until what a predecessor left open has ended.
    ///
    /// # Errors
    /// `Failed` where it may work later, `Fatal` where it is not allowed.
    pub fn start(mut self) -> Result<Self, CommitError> {
        if self.options.delivery == Delivery::ExactlyOnce {
            self.producer.init_transactions(INIT_TIMEOUT).map_err(|error| self.explain("start", &error))?;
        }
        Ok(self)
    }

    /// Whether files of properties were replaced since the client was created.
    pub fn is_outdated(&self) -> bool {
        self.edition != self.options.files.edition()
    }

    /// Takes what librdkafka asks (the next token) and tells. To be called where nothing is being committed.
    pub fn serve_events(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Aborts what is open. `None` where the client is of no more use.
    pub fn abort(mut self) -> Option<Self> {
        match (self.state, self.options.delivery) {
            (State::Ready, _) => return Some(self),
            (State::Spent, _) | (State::Open, Delivery::AtLeastOnce) => return None,
            (State::Open, Delivery::ExactlyOnce) => {}
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
    pub fn commit(&mut self, job: &KafkaJob) -> Result<CommitTimes, CommitError> {
        self.opened = Instant::now();
        self.state = State::Open;
        if self.options.delivery == Delivery::ExactlyOnce {
            self.producer.begin_transaction().map_err(|error| self.spent("begin a transaction", &error))?;
        }
        let mut times = CommitTimes::default();
        self.write(job, &mut times)?;
        let flushed = Instant::now();
        let offsets = self.offsets(job)?;
        match self.options.delivery {
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
        times.commit = flushed.elapsed();
        Ok(times)
    }

    /// Writes all outputs, and waits until the brokers have them.
    fn write(&mut self, job: &KafkaJob, times: &mut CommitTimes) -> Result<(), CommitError> {
        let deadline = self.opened + WRITE_TIMEOUT;
        let mut began = self.opened;
        let batch = (&job.records, job.outputs.as_slice());
        let mut rounds = self.output_topics.address(&self.producer, batch).map_err(|unsent| self.unsent(unsent))?;
        for round in rounds.in_order() {
            self.output_topics.put(&self.producer, batch, round, deadline).map_err(|unsent| self.unsent(unsent))?;
            let produced = Instant::now();
            if let Err(error) = self.flush(deadline) {
                return Err(self.behind(job, error));
            }
            let flushed = Instant::now();
            times.produce += produced - began;
            times.flush += flushed - produced;
            began = flushed;
        }
        Ok(())
    }

    /// Why records were not delivered. A transaction that failed gives its records up as purged; its next step says why.
    fn behind(&mut self, job: &KafkaJob, error: CommitError) -> CommitError {
        let failed = matches!(error, CommitError::Failed(_) | CommitError::TooSlow(_)) && self.state == State::Open;
        match (self.options.delivery, self.offsets(job)) {
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

    fn unsent(&mut self, unsent: Unsent) -> CommitError {
        match unsent {
            Unsent::Refused { failed, intent: (partition, offset) } => {
                self.output_topics.forget_partitions();
                if failed.code == RDKafkaErrorCode::UnknownPartition {
                    // Ours to count: it was made anew with fewer.
                    return CommitError::Failed(format!("the partitions of {} are others now", failed.topic));
                }
                let what = format!("the record for partition {partition} offset {offset} of {}", self.options.intents);
                self.undelivered(&failed, &what)
            }
            Unsent::PartitionsUnknown(reason) => CommitError::Failed(reason),
            Unsent::NotSet(setting) => CommitError::Fatal(format!(
                "{setting} is not set, and a record of {} has to be written to its topic: it was there when the record was deferred or had to wait. Set it as it was until weir_deferred_waiting is 0 (docs/operations.md)",
                self.options.intents
            )),
            Unsent::NoTopic(name) => {
                CommitError::Fatal(format!("the topic {name} does not exist: create it (`weir check` lists them)"))
            }
        }
    }

    fn flush(&mut self, deadline: Instant) -> Result<(), CommitError> {
        loop {
            let done = native::flush(self.producer.client(), FLUSH_SLICE);
            self.producer.poll(Duration::ZERO);
            if let Some(failed) = self.producer.context().take_failed_delivery() {
                return Err(self.undelivered(&failed, "a record"));
            }
            if done {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waiting = self.producer.in_flight_count();
                let after = WRITE_TIMEOUT.as_secs();
                return Err(CommitError::TooSlow(format!("{waiting} records are not acknowledged after {after} s")));
            }
        }
    }

    fn offsets(&self, job: &KafkaJob) -> Result<TopicPartitionList, CommitError> {
        offsets::list(&self.options.intents, job.membership.topic, &job.progress)
            .map_err(|error| CommitError::Failed(format!("an offset was refused: {error}")))
    }

    fn spent(&mut self, what: &str, error: &KafkaError) -> CommitError {
        self.state = State::Spent;
        self.explain(what, error)
    }

    /// What a record that was not delivered means. A client that failed as a whole gives its records up with codes that
    /// do not tell why.
    fn undelivered(&mut self, failed: &FailedDelivery, what: &str) -> CommitError {
        let fatal = self.producer.client().fatal_error();
        if let Some((code, _)) = &fatal
            && let Some(right) = self.options.right_to_write(self.lane, *code, None)
        {
            return CommitError::Fatal(format!("Kafka does not let weir write: grant {right}"));
        }
        match fatal {
            Some((
                RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch,
                _,
            )) => self.fenced(),
            Some((_, message)) => {
                self.state = State::Spent;
                CommitError::Failed(format!("the producer failed as a whole: {message}"))
            }
            None => match self.options.right_to_write(self.lane, failed.code, Some(&failed.topic)) {
                Some(right) => {
                    CommitError::Fatal(format!("{what} may not be written ({}): grant {right}", failed.code))
                }
                None if failed.code == RDKafkaErrorCode::MessageSizeTooLarge => self.too_large(failed, what),
                None => refused(failed, what),
            },
        }
    }

    /// A record, or a batch of them, is larger than its topic takes: a limit was lowered, or was not known. Where more is known now,
    /// a new client batches by it, and the intents are judged again by it.
    fn too_large(&mut self, failed: &FailedDelivery, what: &str) -> CommitError {
        self.state = State::Spent;
        if let Some((to, topic)) = self.options.written().into_iter().find(|(_, topic)| *topic == failed.topic) {
            // A topic of waiting intents may have been added since.
            let before = self.made_for.get(&topic).copied().unwrap_or(u64::MAX);
            let now = limits::after_refusal(&self.options, (to, &topic), before);
            if now < before {
                return CommitError::Failed(format!("{what} is larger than {topic} takes, which is {now} bytes now"));
            }
        }
        CommitError::Fatal(format!(
            "{what} is larger than {} takes, though without its value: raise max.message.bytes of the output topics",
            failed.topic
        ))
    }

    /// The broker takes nothing from this producer any more.
    fn fenced(&mut self) -> CommitError {
        self.state = State::Spent;
        let id = self.options.transactional_id(self.lane);
        // A broker also fences a producer whose transaction it timed out: then nobody else is there.
        if self.opened.elapsed() >= TRANSACTION_TIMEOUT - Duration::from_secs(1) {
            CommitError::TooSlow(format!("the transaction of {id} timed out on the broker"))
        } else {
            CommitError::Fenced(format!(
                "another instance took over the transactional id {id}: give each instance a kafka.instance of its own. \
                 This one stops"
            ))
        }
    }

    fn explain(&mut self, what: &str, error: &KafkaError) -> CommitError {
        let fatal = matches!(error, KafkaError::Transaction(inner) if inner.is_fatal());
        if fatal {
            self.state = State::Spent;
        }
        let id = self.options.transactional_id(self.lane);
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch,
            ) => self.fenced(),
            code => match code.and_then(|code| self.options.right_to_write(self.lane, code, None)) {
                Some(right) => CommitError::Fatal(format!("not allowed to {what} as {id} ({error}): grant {right}")),
                None if code.is_some_and(is_time) => CommitError::TooSlow(format!("could not {what} in time: {error}")),
                None => CommitError::Failed(format!("could not {what}: {error}")),
            },
        }
    }
}

fn is_time(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::RequestTimedOut
            | RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::QueueFull
    )
}

#[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
fn refused(failed: &FailedDelivery, what: &str) -> CommitError {
    let code = failed.code;
    match code {
        RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownPartition => CommitError::Fatal(format!(
            "{what} has no topic {} to go to ({code}): create it (`weir check` lists them)",
            failed.topic
        )),
        other if is_time(other) => {
            CommitError::TooSlow(format!("{what} was not taken by {} in time: {other}", failed.topic))
        }
        other => CommitError::Failed(format!("{what} was not taken by {}: {other}", failed.topic)),
    }
}
