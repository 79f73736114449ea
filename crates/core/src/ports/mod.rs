//! What the worker needs of the outside world, as traits. The edges and the simulation implement them.

pub mod embedded;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, ready},
    pin::Pin,
    time::Duration,
};

use serde::Serialize;

pub use crate::{
    basis::{
        clocks::Clock,
        store_error::{StoreError, in_short},
    },
    intent::fields::schemas::{
        Content, HeldSchemas, Preparing, SchemaFields, SchemaId, SchemaValue, Schemas, SchemasUnavailable,
    },
    limit::share::Share,
};
use crate::{
    basis::{
        origin::{Topic, TopicId},
        shard::UserHash,
        time::Time,
    },
    batch::record::{Job, Progress, ReadBefore, Records},
    history::{
        admit::AdmitBatch,
        decide::Answer,
        deferred_send::DeferredSend,
        named::NamedHistory,
        refund::{Refund, RefundOutcome},
    },
    intent::class::{ClassNames, ClassNumbers},
};

/// How a node of a store is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeHealth {
    /// `host:port`.
    pub node: String,
    /// What is wrong; `None` where it answers.
    pub trouble: Option<String>,
    pub answered_ms: f64,
    /// used_memory, in bytes; `None` where the node does not tell.
    pub used_bytes: Option<u64>,
    /// maxmemory, in bytes; `None` where there is none or the node does not tell.
    pub limit_bytes: Option<u64>,
    pub replicas: Option<u64>,
    pub commands_per_s: Option<u64>,
}

/// What a look at the store has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardsFound {
    /// The shards that do not answer, ascending.
    pub unavailable: Vec<u16>,
    /// The shards that have lost their history, ascending.
    pub lost: Vec<u16>,
    /// Why the first one does not answer.
    pub why: Option<String>,
}

/// Where histories are: decides sends and records them, atomically a user.
pub trait Store: Send {
    /// Waits until this store can be asked about a user, where many share its connections: [`Store::admit`] then asks at once. Nothing is
    /// asked before. Safe to drop half way. Fails where it is known that nobody would answer, or too many wait.
    fn ready_for(&mut self, user: UserHash) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = user;
        ready(Ok(()))
    }

    /// Gives back the place of [`Store::ready_for`], because the user is not asked about.
    fn not_asked(&mut self) {}

    /// Answers all requests of a batch whose place in `answers` (as long as `batch.requests`) is still empty.
    ///
    /// Safe to call again after an error, and to drop half way: a send that was recorded already is answered as
    /// [`crate::history::decide::AdmitVerdict::Replayed`]. After an error some places in `answers` are still empty; it says why.
    fn admit(
        &mut self,
        batch: &AdmitBatch<'_>,
        answers: &mut [Option<Answer>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The numbers that stand for a class in the histories, where the store has such and knows them. It asks nobody.
    fn numbers(&self, class: &ClassNames<'_>) -> Option<ClassNumbers> {
        let _ = class;
        None
    }

    /// The number of shards of histories, by [`UserHash::shard`]. A shard is available or unavailable as a whole.
    fn shards(&self) -> u16;

    /// Checks in the background whether unavailable shards, or shards with lost history, can be asked again. Returns the
    /// shards that became available since the last call. Call it repeatedly while there are any: it does not block, and it
    /// limits how often it asks a server.
    fn watch(&mut self, unavailable: &BTreeSet<u16>) -> Vec<u16>;

    /// Records sends that were approved while their history was unavailable, at the time at which each was decided. Skips a
    /// send whose id and time are recorded already. `now` is the clock.
    ///
    /// Safe to call again after an error, and to drop half way. After an error some may not be there.
    fn record(&mut self, sends: &[DeferredSend], now: Time) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Where histories are, to be read and to be forgotten.
pub trait Histories: Send {
    /// The history of a user, with the names that its numbers stand for; empty for one who was never written to. Fails where it cannot be
    /// read now, or is lost.
    fn history_of(&mut self, user: UserHash) -> impl Future<Output = Result<NamedHistory, StoreError>> + Send;

    /// Deletes the history of a user, and gives how many entries it had. A send that is decided afterwards begins a new one. After an
    /// error it may still be there: call again.
    fn forget(&mut self, user: UserHash) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

pub trait TakeBack: Send {
    /// Takes the refunds of a topic whose place in `outcomes` (as long as `refunds`) is still empty, in order of offset within each
    /// partition. Safe to call again, and to drop half way: what was taken is passed over. Behind one that waits, all of its shard do.
    /// After an error some places are still empty; it says why.
    fn take_back(
        &mut self,
        topic: &Topic,
        refunds: &[Refund],
        outcomes: &mut [Option<RefundOutcome>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether one of the shards for which refunds wait has its history again. Then they have to be taken again. Safe to drop half way.
    fn any_back(&mut self) -> impl Future<Output = bool> + Send;
}

/// The keyspace's record of the partitions for which a group has committed an offset. It distinguishes a group whose offsets
/// Kafka has deleted from a group that has never read.
pub trait CommitTable: Send + Sync {
    /// Notes these partitions with their committed offsets, in the background, until it is done.
    fn note(&self, topic: &Topic, offsets: Vec<(i32, i64)>);

    /// What was noted first of each of these partitions, in words; `None` where nothing is.
    fn noted<'t>(&'t self, topic: &'t Topic, partitions: &'t [i32]) -> CommitTableAnswer<'t, Vec<Option<String>>>;

    /// Whether a partition of another topic of this name is noted: one that was deleted.
    fn has_predecessor<'t>(&'t self, topic: &'t Topic) -> CommitTableAnswer<'t, bool>;
}

/// What comes of a question to a [`CommitTable`].
pub type CommitTableAnswer<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

/// A change of the partitions that a lane reads, waiting to be taken up by [`Source::settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEvent {
    Assigned,
    /// All partitions are to be given up.
    Revoked,
}

/// Why a source cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It may work later: brokers unavailable, coordinator moving.
    #[error("{0}")]
    Temporary(String),
    /// It never will: not allowed, an offset that is gone, a fatal client error.
    #[error("{0}")]
    Fatal(String),
}

/// How long an earlier reader of a partition can go on admitting after the partition was given to another member. By then its
/// session has ended, librdkafka has noticed that by its own clock (within a second), and the lane has heard of it where it
/// waits and dropped its batch (within another); a call under way is no older than answers may become (20 s). What remains
/// is a process that is frozen between the reading of the clock and the request of the same answer, for longer than this.
pub const EARLIER_READERS_END: Duration = Duration::from_secs(30);

/// Where intents come from: one member of the consumer group. Its futures may block the thread for a while: a lane
/// has one of its own.
pub trait Source {
    /// Its batches, which can be committed on another thread.
    type Batch: Records + Send + 'static;
    /// What a commit must carry to prove the membership.
    type Membership: Send + 'static;

    /// An empty batch.
    fn batch(&self) -> Self::Batch;

    /// Serves the group and adds to `batch` until it is full or `wait` has passed and no more is there, whichever is first. It returns
    /// early with an event, which stays pending (nothing more is read) until [`Source::settle`]. Fails where the group or a partition
    /// cannot be read.
    fn poll(
        &mut self,
        batch: &mut Self::Batch,
        max: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<GroupEvent>, SourceError>>;

    /// Whether a batch holds so many records, or as many bytes as the source allows.
    fn is_full(&self, batch: &Self::Batch, max: usize) -> bool {
        batch.len() >= max
    }

    /// Takes up the pending event: starts at the committed offsets, or gives the partitions up. To be called when nothing read before is
    /// being committed any more. After an error the event stays pending; call again later.
    fn settle(&mut self) -> impl Future<Output = Result<(), SourceError>>;

    /// Goes back to the committed offsets and forgets the records read since. After an error the position is undefined until a call
    /// succeeds.
    fn rewind(&mut self) -> impl Future<Output = Result<(), SourceError>>;

    /// Takes records of these partitions, from these offsets on, out of a batch, and reads the partitions no further until
    /// [`Source::resume`] (or [`Source::settle`], [`Source::rewind`]): they go on at these offsets then. After an error the position is
    /// undefined until [`Source::rewind`].
    fn put_back(
        &mut self,
        batch: &mut Self::Batch,
        from: &[(i32, i64)],
    ) -> impl Future<Output = Result<(), SourceError>>;

    /// Reads on in partitions that were put back. After an error the position is undefined until [`Source::rewind`].
    fn resume(&mut self, partitions: &[i32]) -> impl Future<Output = Result<(), SourceError>>;

    /// The membership now, for a batch read just before. Fails where there is none: the member has not joined.
    fn membership(&self) -> Result<Self::Membership, SourceError>;

    fn partitions(&self) -> usize;

    /// The id of the topic that is read, as of the last [`Source::settle`] or [`Source::rewind`].
    fn topic_id(&self) -> TopicId {
        TopicId::UNKNOWN
    }

    /// What was committed at the last [`Source::settle`] or [`Source::rewind`], where something is.
    fn starts(&self) -> &[Progress];

    /// Partitions that were read to their end, or put back, and the offset there, where the source knows it: all records before it were
    /// given out since the last [`Source::settle`] or [`Source::rewind`], or were committed by then. Aborted records are before it, too.
    /// No record behind it was given out.
    fn ends_read(&self) -> Vec<Progress>;

    /// Which records of the assigned partitions may have been read before, by whoever: by an earlier reader of the partition
    /// (a member that was replaced may go on for a while), or by this one before [`Source::rewind`].
    /// What a batch holds that was read just before is judged by it.
    fn read_before(&self) -> ReadBefore;

    /// How many records of each assigned partition are not done, as far as it is known without asking; `done` has the
    /// next offset of the partitions that something is known of. What cannot be read yet, behind an end that is done, does not count.
    fn lag(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)>;
}

/// The longest a transaction may stay open: brokers abort it then. Short, so that what a dead instance left open holds up readers
/// of the output (and its successor's read of the committed offsets) only so long.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a batch was not committed, and so what has to be done before the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Nothing of it is visible, or it may be: the sink must recover, then the source rewinds.
    #[error("{0}")]
    Failed(String),
    /// As `Failed`, because time ran out: a smaller batch may be committed.
    #[error("{0}")]
    TooSlow(String),
    /// Another instance with the same transactional id has taken over.
    #[error("{0}")]
    Fenced(String),
    /// No batch will ever be committed: not allowed, no such topic.
    #[error("{0}")]
    Fatal(String),
}

/// How a sink stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Nothing is being committed, and the next job may be handed over.
    Idle,
    /// Still at it, or not ready for the next job.
    Busy,
    /// The job handed over last is committed; the time it took, in the sink's own stages.
    Committed(CommitTimes),
    /// It is not. [`Sink::recover`] comes next.
    Failed(CommitError),
}

/// How long the stages of a commit took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitTimes {
    /// Handing the records to the client.
    pub produce: Duration,
    /// Waiting until the brokers have them.
    pub flush: Duration,
    /// Sending the offsets and committing.
    pub commit: Duration,
}

/// Where decided batches go: commits one at a time, while the next one is being decided.
pub trait Sink<B, M> {
    /// Starts committing; to be called when [`Sink::wait`] said the one before is done.
    fn submit(&mut self, job: Job<B, M>);

    /// How it stands, after at most `wait`. Each `Committed` and `Failed` is told once. Safe to drop half way.
    fn wait(&mut self, wait: Duration) -> impl Future<Output = Settled>;

    /// Makes the sink usable again after a failure: nothing of the failed job becomes visible afterwards that is not by the time this
    /// returns. Safe to drop half way; the next call goes on. After an error it is not usable yet; `Failed` means call again later.
    fn recover(&mut self) -> impl Future<Output = Result<(), CommitError>>;
}
