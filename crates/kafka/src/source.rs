//! One member of the consumer group, as the lane's source.

mod first_start;
mod holding;
mod places;
mod queues;
mod rejoin;
mod starts;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{Consumer, ConsumerGroupMetadata},
    error::KafkaError,
};
use weir_core::{
    basis::origin::{Topic, TopicId},
    batch::record::{Progress, ReadBefore, Records},
    ports::{CommitTable, GroupEvent, Source, SourceError},
};

use self::{queues::Queues, starts::OnDeleted};
use super::{
    broker_watchdog::BrokerWatchdog,
    client::KafkaOptions,
    context::{KafkaConsumer, Pending},
    identity::Identity,
    native::{self, MessageBatch, answers::Generation},
    read_before::Earlier,
    tokens::make,
};

/// A lane that has not served the group for so long may have been frozen, and replaced meanwhile: less than the shortest
/// session that a group has as a rule.
const FROZEN_AFTER: Duration = Duration::from_secs(3);
/// How long it then waits for the group's events before it reads: librdkafka looks once a second whether the session has
/// ended, by its own clock.
const FINDS_OUT_WITHIN: Duration = Duration::from_millis(1_500);
/// How long messages are waited for between two looks at the group's events.
const SLICE: Duration = Duration::from_millis(50);

/// Records taken in one call, at most. More gain nothing: a call costs less than a record.
const TAKE: usize = 128;
/// How large the next record is taken to be, at the least, where a batch is nearly full: a batch goes over its bound by
/// one call's records, and the larger they are the fewer are taken.
const LEAST_RECORD_BYTES: usize = 128 * 1024;

/// What a commit must carry: the consumer, and its membership when the partitions were taken up, which `holding.rs` compares with the
/// coordinator. Not the one at the time of the commit: the group may have moved on, and what was read under one generation is not for
/// the next one.
pub struct Membership {
    pub(super) consumer: Arc<KafkaConsumer>,
    pub(super) metadata: Arc<ConsumerGroupMetadata>,
    pub(super) topic: TopicId,
}

/// A group member that reads in batches.
pub struct KafkaSource {
    // Dropped before the consumer: fields go in their order.
    watchdog: BrokerWatchdog,
    queues: Queues,
    identity: Identity,
    consumer: Arc<KafkaConsumer>,
    topic: String,
    topic_name: CString,
    options: KafkaOptions,
    /// The edition of the files that the client was created from.
    edition: u64,
    /// The bytes after which a batch is full, however few records it has.
    batch_bytes: usize,
    assigned: TopicPartitionList,
    membership: Option<Arc<ConsumerGroupMetadata>>,
    /// The generation that the partitions were given in.
    generation: Generation,
    starts: Vec<Progress>,
    earlier: Earlier,
    polled_at: Instant,
    /// Where each partition was last told to go on: a record batch that cannot be read begins before it, where it is in the
    /// middle of one.
    reads_from: BTreeMap<i32, i64>,
    /// Where it is noted what the group has committed; `None`: nowhere.
    table: Option<Arc<dyn CommitTable>>,
    /// Since when partitions have no committed offset that had one before.
    missed_since: Option<Instant>,
    /// Partitions that could not be read on where they were.
    out_of_range: BTreeSet<i32>,
    /// The last seek failed: partitions have to be assigned anew.
    cannot_seek: bool,
    /// Partitions that were put back, and are not read.
    paused: BTreeSet<i32>,
    /// Where partitions ended when they were read to their end, and where they go on that were put back; until more of them is read.
    ends_read: BTreeMap<i32, i64>,
    on_deleted: Option<OnDeleted>,
}

impl KafkaSource {
    /// Joins the group.
    pub fn join(options: &KafkaOptions) -> Result<Self, SourceError> {
        let edition = options.files.edition();
        let consumer: KafkaConsumer = make(&options.consumer(), options, Consumer::client)
            .map_err(|reason| SourceError::Fatal(format!("the Kafka consumer cannot be made: {reason}")))?;
        native::inflate::bound(options.inflated_bytes(), options.answer_bytes());
        let topic_name = CString::new(options.intents.as_str())
            .map_err(|_| SourceError::Fatal("kafka.intents holds a NUL".to_owned()))?;
        let queues = Queues::new(consumer.client(), options.read_order).map_err(SourceError::Fatal)?;
        consumer
            .subscribe(&[&options.intents])
            .map_err(|error| SourceError::Fatal(format!("cannot subscribe to {}: {error}", options.intents)))?;
        let consumer = Arc::new(consumer);
        let watchdog = BrokerWatchdog::of(&consumer, &options.intents).map_err(SourceError::Fatal)?;
        let identity = Identity::new(consumer.client(), topic_name.clone()).map_err(SourceError::Fatal)?;
        Ok(Self {
            watchdog,
            queues,
            identity,
            consumer,
            topic: options.intents.clone(),
            topic_name,
            options: options.clone(),
            edition,
            batch_bytes: usize::try_from(options.memory.batch_bytes).unwrap_or(usize::MAX),
            assigned: TopicPartitionList::new(),
            membership: None,
            generation: Generation::NONE,
            starts: Vec::new(),
            earlier: Earlier::new(),
            polled_at: Instant::now(),
            reads_from: BTreeMap::new(),
            table: None,
            missed_since: None,
            out_of_range: BTreeSet::new(),
            cannot_seek: false,
            paused: BTreeSet::new(),
            ends_read: BTreeMap::new(),
            on_deleted: None,
        })
    }

    /// Notes what the group has committed in this table, and does not read from the beginning what is noted there.
    #[must_use]
    pub fn noting_in(mut self, table: Option<Arc<dyn CommitTable>>) -> Self {
        self.table = table;
        self
    }

    /// Reads these partitions from their committed offsets.
    async fn start(&mut self, partitions: &TopicPartitionList) -> Result<(), SourceError> {
        // Where the topic grows before an assignment is answered, the client joins anew without taking it back. The next
        // assignment would end the answered one, and with it the forwarding of partitions that are in both. The client has
        // done so before it can tell the committed offsets.
        if self.assigned.count() > 0 {
            self.resume_all()?;
            self.unassign()?;
        }
        let from = self.positions(partitions).await?;
        for element in from.elements() {
            self.queues
                .take_over(self.consumer.client(), element.topic(), element.partition())
                .map_err(SourceError::Temporary)?;
        }
        self.earlier.begin(Instant::now());
        self.consumer.assign(&from).map_err(|error| temporary("the assignment was refused", &error))?;
        self.assigned = partitions.clone();
        self.ends_read.clear();
        self.out_of_range.clear();
        self.cannot_seek = false;
        Ok(())
    }

    /// Reads nothing any more.
    fn give_up(&mut self) -> Result<(), SourceError> {
        self.resume_all()?;
        self.assigned = TopicPartitionList::new();
        self.membership = None;
        self.starts.clear();
        self.ends_read.clear();
        self.out_of_range.clear();
        self.unassign()?;
        self.queues.clear();
        Ok(())
    }

    fn unassign(&self) -> Result<(), SourceError> {
        self.consumer.unassign().map_err(|error| temporary("partitions cannot be given up", &error))
    }

    /// Serves one round of group events, and waits so long for one.
    fn serve(&mut self, wait: Duration) -> Result<Option<GroupEvent>, SourceError> {
        match self.consumer.poll(wait) {
            None => {}
            Some(Ok(message)) => {
                // All partitions are forwarded to our queue before they are assigned; a message here would be
                // out of order with those there.
                return Err(SourceError::Temporary(format!(
                    "a message of partition {} took a side way",
                    message.partition()
                )));
            }
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                return Err(SourceError::Fatal(format!("the consumer failed for good: {code}")));
            }
            Some(Err(error)) => {
                if let Some(code) = error.rdkafka_error_code() {
                    self.judge(code, None)?;
                }
            }
        }
        if self.assigned.count() > 0 && self.identity.is_another(self.consumer.client()) {
            return Err(SourceError::Temporary(format!("{} was deleted and recreated", self.topic)));
        }
        Ok(match *self.consumer.context().pending() {
            Pending::Nothing => None,
            Pending::Assign { .. } => Some(GroupEvent::Assigned),
            Pending::Revoke => Some(GroupEvent::Revoked),
        })
    }
}

fn temporary(what: &str, error: &KafkaError) -> SourceError {
    SourceError::Temporary(format!("{what}: {error}"))
}

impl Source for KafkaSource {
    type Batch = MessageBatch;
    type Membership = Membership;

    fn batch(&self) -> Self::Batch {
        MessageBatch::new(Arc::clone(&self.consumer), self.options.reads)
    }

    async fn poll(
        &mut self,
        batch: &mut Self::Batch,
        max: usize,
        wait: Duration,
    ) -> Result<Option<GroupEvent>, SourceError> {
        if self.watchdog.is_lost() {
            tracing::warn!("no broker answers the consumer any more: joining the group with a new one");
            self.rejoin()?;
            // What the lost one had.
            self.consumer.context().revoke();
            return Ok(Some(GroupEvent::Revoked));
        }
        if self.is_outdated() {
            // The lane takes it up as a change of the group, when nothing of this consumer is being committed; then another one joins.
            self.consumer.context().revoke();
        }
        if self.earlier.is_due(Instant::now()) {
            let partitions: Vec<i32> = self.assigned.elements().iter().map(|element| element.partition()).collect();
            let ends = self.ends(&partitions, Offset::End).map(|ends| partitions.into_iter().zip(ends).collect());
            self.earlier.note(ends, Instant::now());
        }
        if self.polled_at.elapsed() >= FROZEN_AFTER
            && let Some(event) = self.serve(FINDS_OUT_WITHIN)?
        {
            self.polled_at = Instant::now();
            return Ok(Some(event));
        }
        let deadline = Instant::now() + wait;
        let mut served_at: Option<Instant> = None;
        loop {
            self.polled_at = Instant::now();
            if served_at.is_none_or(|at| at.elapsed() >= SLICE) {
                served_at = Some(self.polled_at);
                if let Some(event) = self.serve(Duration::ZERO)? {
                    return Ok(Some(event));
                }
            }
            if self.is_full(batch, max) {
                return Ok(None);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let room = max.saturating_sub(batch.len());
            let fitting =
                self.batch_bytes.saturating_sub(batch.bytes()) / batch.largest_bytes().max(LEAST_RECORD_BYTES);
            let most = room.min(TAKE).min(fitting.max(1));
            let before = batch.len();
            self.take(batch, most, left.min(SLICE))?;
            // Where the time is over, what is there is taken still: a call that got all that it asked for may have left some.
            let more = batch.len() - before >= most;
            if !more && Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    fn is_full(&self, batch: &Self::Batch, max: usize) -> bool {
        batch.len() >= max || batch.bytes() >= self.batch_bytes
    }

    async fn settle(&mut self) -> Result<(), SourceError> {
        let context = Arc::clone(self.consumer.context());
        match &*context.pending() {
            Pending::Nothing => {}
            Pending::Assign { partitions, membership, generation } => {
                self.check_holding(partitions)?;
                self.generation = *generation;
                self.start(partitions).await?;
                self.membership.clone_from(membership);
            }
            Pending::Revoke => {
                self.give_up()?;
                if self.is_outdated() {
                    self.rejoin()?;
                    let group = &self.options.group;
                    tracing::info!(%group, "joining the group with a new consumer: files of its properties were replaced");
                }
            }
        }
        context.taken_up();
        Ok(())
    }

    async fn rewind(&mut self) -> Result<(), SourceError> {
        if self.assigned.count() == 0 {
            return Ok(());
        }
        let partitions = self.assigned.clone();
        // librdkafka has stopped a partition whose offset is not there.
        if self.cannot_seek || !self.out_of_range.is_empty() {
            return self.start(&partitions).await;
        }
        let from = self.positions(&partitions).await?;
        self.earlier.begin(Instant::now());
        self.go_to(from)?;
        self.resume_all()
    }

    async fn put_back(&mut self, batch: &mut Self::Batch, from: &[(i32, i64)]) -> Result<(), SourceError> {
        self.put_back_now(batch, from)
    }

    async fn resume(&mut self, partitions: &[i32]) -> Result<(), SourceError> {
        self.read_on(partitions)
    }

    fn membership(&self) -> Result<Membership, SourceError> {
        let metadata = self
            .membership
            .clone()
            .ok_or_else(|| SourceError::Temporary("the consumer is in no group yet".to_owned()))?;
        Ok(Membership { consumer: Arc::clone(&self.consumer), metadata, topic: self.identity.known() })
    }

    fn partitions(&self) -> usize {
        self.assigned.count()
    }

    fn topic_id(&self) -> TopicId {
        self.identity.known()
    }

    fn starts(&self) -> &[Progress] {
        &self.starts
    }

    fn ends_read(&self) -> Vec<Progress> {
        let ends = self.ends_read.iter();
        ends.map(|(&partition, &next_offset)| Progress { partition, next_offset }).collect()
    }

    fn read_before(&self) -> ReadBefore {
        self.earlier.read_before()
    }

    fn lag(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        self.not_done(done)
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        // A rebalance that nobody takes up any more would keep the consumer's close waiting for ever.
        self.consumer.context().close();
        // Nor would the close of a consumer whose partitions are paused come to an end.
        if let Err(error) = self.resume_all() {
            tracing::warn!(%error, "could not read on in partitions while closing");
        }
        if let Err(error) = self.consumer.unassign() {
            tracing::warn!(%error, "could not give partitions up while closing");
        }
    }
}
