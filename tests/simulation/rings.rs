//! The fake topics that weir reads, and their records: those that others write; and those that it writes itself, of the wheel and of
//! waiting intents. What readers see of all that weir writes, and whether all is done.

use weir_core::batch::record::Headers;

use super::{broker::State, prelude::*};

/// A record of a topic that weir reads: an intent, deferred or not, or a refund.
#[derive(Debug)]
pub struct Intent {
    pub log: Log,
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: String,
    /// When it becomes readable; of a deferred intent, when it was written.
    pub at: Duration,
    /// Its headers, without those of its deferral.
    pub headers: Vec<Header>,
    /// What weir wrote beside a deferred intent.
    pub deferral: Option<Deferral>,
    /// Partition and offset of the record that the intent first came in.
    pub first: (i32, i64),
    /// Partition and offset of the record that came back because its delivery failed; `None`: it is no retry.
    pub retry: Option<(i32, i64)>,
}

pub type Header = (&'static str, String);

impl Intent {
    /// A record of an input topic.
    pub fn new((partition, offset): (i32, i64), key: String, value: String, at: Duration) -> Self {
        let first = (partition, offset);
        let (headers, deferral, retry) = (Vec::new(), None, None);
        Self { log: Log::Input, partition, offset, key, value, at, headers, deferral, first, retry }
    }

    /// The headers of an output of this record: those that it came with, and weir's behind them.
    pub fn headers_of(&self, Output { value, headers: ours, .. }: &Output) -> Vec<Header> {
        let mut headers = self.headers.clone();
        match value {
            OutputValue::AsItCame | OutputValue::Ours(_) => {}
            OutputValue::WithoutDecision => {
                let decision = headers.iter().rposition(|(name, _)| *name == HeaderName::Decision.as_str());
                if let Some(place) = decision {
                    headers.remove(place);
                }
            }
            OutputValue::Dropped(_) => headers.clear(),
        }
        headers.extend(ours.iter().cloned());
        headers
    }
}

impl Headers for Intent {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.headers.get(index).map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
    }
}

/// The partitions of both rings: one share.
pub const SHARES: u16 = 1;

/// A topic that lanes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// The intents, or the refunds.
    Input,
    /// Deferred intents.
    Ring(Ring),
    Waiting,
    Retries,
}

pub type Place = (Log, i32);

/// A record, and weir's transaction that it was written in; `None`: others have written it.
#[derive(Debug)]
pub struct Stored {
    pub record: Arc<Intent>,
    pub transaction: Option<usize>,
}

impl Broker {
    /// Appends what `record` makes of the next offset.
    pub fn write(
        &mut self,
        place: Place,
        transaction: Option<usize>,
        record: impl FnOnce(i64) -> Intent,
    ) -> Arc<Intent> {
        let log = self.topics.entry(place).or_default();
        // Each transaction leaves a control record.
        let next = log.last().map_or(0, |last| last.record.offset + 1 + i64::from(last.transaction != transaction));
        let record = Arc::new(record(next));
        log.push(Stored { record: Arc::clone(&record), transaction });
        record
    }

    /// Adds a record to a partition of the intents or refunds, now.
    pub fn append(&mut self, partition: i32, key: String, value: String) {
        let at = self.env.passed();
        self.write((Log::Input, partition), None, |offset| Intent::new((partition, offset), key, value, at));
    }

    /// The partitions of a topic that may have records, in order.
    pub fn with_records(&self, log: Log) -> impl Iterator<Item = i32> {
        self.topics.keys().filter(move |(of, _)| *of == log).map(|(_, partition)| *partition)
    }

    /// All records of a topic, visible or not, by partition.
    pub fn all(&self, log: Log) -> impl Iterator<Item = &Arc<Intent>> {
        let partitions = self.topics.iter().filter(move |((of, _), _)| *of == log);
        partitions.flat_map(|(_, records)| records).map(|stored| &stored.record)
    }

    /// The records of a partition from an offset on.
    pub fn records_from(&self, place: Place, offset: i64) -> &[Stored] {
        let log = self.topics.get(&place).map_or(&[][..], Vec::as_slice);
        &log[log.partition_point(|stored| stored.record.offset < offset)..]
    }

    fn is_visible(&self, stored: &Stored) -> bool {
        stored.transaction.is_none_or(|transaction| self.is_committed(transaction))
    }

    /// The records of a partition from an offset on that can be read now at read_committed.
    pub fn readable(&self, place: Place, from: i64) -> impl Iterator<Item = &Arc<Intent>> {
        let now = self.env.passed();
        let is_stable = move |stored: &&Stored| match stored.transaction {
            Some(transaction) => !self.is_open(transaction),
            None => stored.record.at <= now,
        };
        let stable = self.records_from(place, from).iter().take_while(is_stable);
        stable.filter(move |stored| self.is_visible(stored)).map(|stored| &stored.record)
    }

    /// The offset after the last record of a partition that was written until then.
    pub fn end_at(&self, place: Place, at: Duration) -> i64 {
        let log = self.records_from(place, 0);
        let written = &log[..log.partition_point(|stored| stored.record.at <= at)];
        written.last().map_or(0, |last| last.record.offset + 1)
    }

    /// Where a partition ends at read_committed, for a reader that has taken all that it can read from this offset on: behind aborted
    /// records and the marks of transactions.
    pub fn stable_end(&self, place: Place, from: i64) -> i64 {
        // Others write these.
        if matches!(place.0, Log::Input | Log::Retries) {
            return from;
        }
        let is_open = |stored: &&Stored| stored.transaction.is_some_and(|transaction| self.is_open(transaction));
        match self.records_from(place, from).iter().find(is_open) {
            Some(open) => open.record.offset,
            None => self.records_from(place, 0).last().map_or(from, |last| last.record.offset + 2),
        }
    }

    pub fn deferred(&mut self) -> Vec<Arc<Intent>> {
        self.pass_time();
        Ring::ALL.into_iter().flat_map(|ring| self.left(Log::Ring(ring))).collect()
    }

    /// The offset from which on the records of a partition are not done.
    pub fn next(&self, place: Place) -> i64 {
        self.committed.get(&place).map_or(0, |done| done.next_offset)
    }

    /// The records of a topic that are not done: of those that weir writes, the visible ones.
    pub fn left(&self, log: Log) -> Vec<Arc<Intent>> {
        let mut left = Vec::new();
        for partition in self.with_records(log) {
            let place = (log, partition);
            let visible = self.records_from(place, self.next(place)).iter().filter(|stored| self.is_visible(stored));
            left.extend(visible.map(|stored| Arc::clone(&stored.record)));
        }
        left
    }

    /// The offsets of the visible records of a partition.
    pub fn offsets(&self, place: Place, offsets: Range<i64>) -> impl Iterator<Item = i64> {
        let left = self.records_from(place, offsets.start).iter().filter(|stored| self.is_visible(stored));
        left.map(|stored| stored.record.offset).take_while(move |offset| *offset < offsets.end)
    }

    /// The outputs that a read_committed reader sees, in order.
    pub fn visible(&self) -> impl Iterator<Item = &Out> {
        self.outputs.iter().filter(|out| self.visible_at(out).is_some())
    }

    pub fn visible_at(&self, out: &Out) -> Option<Duration> {
        match self.transactions[out.transaction].state {
            State::Committed(at) => Some(at),
            State::Open(_) | State::Prepared(_) | State::Aborted => None,
        }
    }

    /// The records that a read_committed reader gets from an offset, up to the first open transaction; and the offset
    /// after them.
    pub fn stable(&mut self, from: usize) -> (Vec<&Out>, usize) {
        self.pass_time();
        // No transaction before is open: from there on a reader had read before.
        let open = self.outputs[from..].iter().position(|out| self.is_open(out.transaction));
        let end = open.map_or(self.outputs.len(), |open| from + open);
        (self.outputs[from..end].iter().filter(|out| self.visible_at(out).is_some()).collect(), end)
    }

    pub fn is_committed(&self, transaction: usize) -> bool {
        matches!(self.transactions[transaction].state, State::Committed(_))
    }

    pub fn is_open(&self, transaction: usize) -> bool {
        matches!(self.transactions[transaction].state, State::Open(_) | State::Prepared(_))
    }

    /// Visible approved records that an aborted transaction had written before.
    pub fn replays(&self) -> usize {
        let approved = || self.outputs.iter().filter(|out| out.is_approval());
        let aborted = approved().filter(|out| self.transactions[out.transaction].state == State::Aborted);
        let aborted: BTreeSet<(i32, i64)> = aborted.map(|out| out.intent.first).collect();
        self.visible().filter(|out| out.is_approval() && aborted.contains(&out.intent.first)).count()
    }

    /// Whether all intents are done and no transaction is open.
    pub fn is_drained(&mut self) -> bool {
        self.pass_time();
        let open = self.producers.values().any(|producer| producer.open.is_some());
        !open && [Log::Waiting, Log::Input, Log::Retries].into_iter().all(|log| self.left(log).is_empty())
    }
}
