//! Records on their way through the worker: what came in, and what is to go out for it.

use std::{collections::BTreeMap, sync::Arc};

pub use crate::{basis::header::OurHeaders, limit::route::routes::WaitingTopic};
use crate::{
    basis::{clocks::Append, origin::Topic, time::Time},
    decision::room::header_bytes,
    deferral::{DeferReason, Deferral, wheel::Bucket},
};

/// The headers of one record, in order; keys may repeat and need not be UTF-8.
pub trait Headers {
    /// Key and value of header `index`, from 0; `None` behind the last one.
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)>;
}

#[derive(Debug, Clone, Copy)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn header(&self, _: usize) -> Option<(&[u8], Option<&[u8]>)> {
        None
    }
}

/// One consumed record, borrowed from its batch.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    /// The key; an empty one is not a null one.
    pub key: Option<&'a [u8]>,
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The partition of the intents topic.
    pub partition: i32,
    pub offset: i64,
    pub timestamp: Option<Time>,
    /// Its headers, without those that weir wrote when it deferred the intent.
    pub headers: &'a dyn Headers,
    /// The intent's deferral, where it comes from a topic of weir's.
    pub deferral: Option<&'a Deferral>,
}

impl<'a> RecordView<'a> {
    pub(crate) fn value_bytes(&self) -> usize {
        self.value.map_or(0, <[u8]>::len)
    }

    /// The headers, in order.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let headers = self.headers;
        (0..).map_while(move |index| headers.header(index))
    }
}

// How the intent of a record is deferred stands here: a deferral knows nothing of records.
impl Deferral {
    /// The deferral of this record's intent, which may have been deferred before. `topic` is the record's, `now` the time of the
    /// decision to defer it.
    #[must_use]
    pub fn after(record: &RecordView<'_>, topic: &Topic, (why, due): (DeferReason, Time), now: Time) -> Self {
        match record.deferral {
            Some(before) => Self { due, why, count: before.count.saturating_add(1), ..before.clone() },
            None => Self {
                due,
                topic: topic.clone(),
                partition: record.partition,
                offset: record.offset,
                first_at: record.timestamp.map_or(now, |at| at.min(now)),
                why,
                count: 1,
            },
        }
    }

    /// That this record's intent waits for its route to take it. It is due at any time. A retry stays one.
    #[must_use]
    pub fn until_capacity(record: &RecordView<'_>, topic: &Topic, now: Time) -> Self {
        let after = match record.deferral {
            Some(before) if before.is_until_retry() => before.clone(),
            Some(_) | None => Self::after(record, topic, (DeferReason::Capacity, now), now),
        };
        Self { due: after.first_at, ..after }
    }
}

/// A batch of consumed records, in order of offset within each partition.
pub trait Records {
    fn len(&self) -> usize;
    /// Record `index`, below [`Records::len`].
    fn get(&self, index: usize) -> RecordView<'_>;
    /// What key and headers of record `index` take of an output record, at most.
    fn bytes_beside_value(&self, index: usize) -> usize {
        let record = self.get(index);
        let headers = record.header_pairs().map(|(name, value)| header_bytes(name, value));
        record.key.map_or(0, <[u8]>::len) + headers.sum::<usize>()
    }
    /// Why record `index` was not read, though its offset is known: its batch inflates to more than so many bytes.
    fn not_inflated(&self, _index: usize) -> Option<u64> {
        None
    }
    /// Whether record `index` is on a topic of weir's deferred intents, but not written by weir.
    fn is_foreign(&self, _index: usize) -> bool {
        false
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The newest record of each broker, where brokers stamp them with their own clock.
    fn appends(&self) -> &[Append] {
        &[]
    }
}

/// Which records may have been read before: the admission of such an intent may be recorded although its output was never
/// committed.
#[derive(Debug, Clone)]
pub enum ReadBefore {
    All,
    /// In each partition those before this offset; none in a partition that is not here.
    Below(Arc<BTreeMap<i32, i64>>),
}

impl ReadBefore {
    pub fn none() -> Self {
        Self::Below(Arc::default())
    }

    pub fn has(&self, partition: i32, offset: i64) -> bool {
        match self {
            Self::All => true,
            Self::Below(ends) => ends.get(&partition).is_some_and(|end| offset < *end),
        }
    }
}

/// An approved topic, by its place in the settings: `kafka.approved` is the first, then those of `[kafka.approved_by_channel]` in
/// order of their names, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ApprovedTopic(pub u16);

impl ApprovedTopic {
    /// `kafka.approved`.
    pub const MAIN: Self = Self(0);
}

/// The approved topics of channels that have their own: `[kafka.approved_by_channel]`.
pub type ApprovedByChannel = Arc<[(String, ApprovedTopic)]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    Approved(ApprovedTopic),
    Suppressed,
    DeadLetters,
    Deferred(Bucket),
    /// A partition of the topic of a route's waiting intents.
    Waiting {
        topic: WaitingTopic,
        partition: i32,
    },
    Undelivered,
    /// None: nothing goes out for it.
    Nowhere,
}

impl Destination {
    pub const APPROVED: Self = Self::Approved(ApprovedTopic::MAIN);

    pub const fn is_approved(self) -> bool {
        matches!(self, Self::Approved(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputValue {
    /// The consumed value, byte for byte (null stays null).
    AsItCame,
    /// The same, without the last consumed `weir-decision`: ours stands for it.
    WithoutDecision,
    Ours(Vec<u8>),
    /// None: the record with its value does not fit. What is left of it stands in front of our headers.
    Dropped(Kept),
}

/// What is kept of a record whose value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    KeyAndHeaders,
    /// The key, but not the consumed headers.
    Key,
    /// Neither key nor headers.
    Nothing,
}

/// The output record of one consumed record; key and consumed headers are taken from that.
#[derive(Debug, Clone)]
pub struct Output {
    pub to: Destination,
    pub value: OutputValue,
    /// What is put after the consumed headers.
    pub headers: OurHeaders,
}

/// The offset up to which a partition is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub partition: i32,
    /// The first offset that is not done.
    pub next_offset: i64,
}

impl Output {
    /// What its key, value and headers take of a batch, at most; `bytes_beside` are those of the record's key and headers.
    pub fn content_bytes(&self, record: &RecordView<'_>, bytes_beside: usize) -> usize {
        let ours: usize =
            self.headers.iter().map(|(name, value)| header_bytes(name.as_bytes(), Some(value.as_bytes()))).sum();
        let theirs = match &self.value {
            OutputValue::AsItCame | OutputValue::WithoutDecision => record.value_bytes() + bytes_beside,
            OutputValue::Ours(value) => value.len() + bytes_beside,
            OutputValue::Dropped(Kept::KeyAndHeaders) => bytes_beside,
            OutputValue::Dropped(Kept::Key) => record.key.map_or(0, <[u8]>::len),
            OutputValue::Dropped(Kept::Nothing) => 0,
        };
        ours + theirs
    }
}

/// One batch, decided: what is committed together.
pub struct Job<B, M> {
    pub records: B,
    /// One output a record, in the same order.
    pub outputs: Vec<Output>,
    /// How far the batch brings each of its partitions.
    pub progress: Vec<Progress>,
    /// The membership under which the records were read; a commit by a member that has been replaced is refused.
    pub membership: M,
}

/// How far a batch brings each of its partitions: behind the last record there.
pub fn progress_of(records: &impl Records) -> Vec<Progress> {
    let mut next = BTreeMap::new();
    // Records come in runs of one partition; a run needs one look at the map.
    let mut run: Option<(i32, i64)> = None;
    for index in 0..records.len() {
        let RecordView { partition, offset, .. } = records.get(index);
        if let Some((before, end)) = run.replace((partition, offset + 1))
            && before != partition
        {
            next.insert(before, end);
        }
    }
    next.extend(run);
    next.into_iter().map(|(partition, next_offset)| Progress { partition, next_offset }).collect()
}
