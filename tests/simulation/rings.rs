//! The fake topics that weir reads: those that others write; and those that it writes itself, of the wheel and of waiting intents.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use weir_core::deferral::wheel::Ring;

use super::{broker::Broker, records::Intent};

/// The partitions of both rings: one share.
pub const SHARES: u16 = 1;

/// A topic that lanes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// The intents, or the refunds.
    Input,
    /// Deferred intents.
    Ring(Ring),
    /// Intents that wait for the route.
    Waiting,
    /// Approved records whose delivery failed.
    Retries,
}

impl Log {
    /// Whether others write it, and not weir.
    const fn is_published(self) -> bool {
        matches!(self, Self::Input | Self::Retries)
    }
}

/// A partition of a topic.
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
        if place.0.is_published() {
            return from;
        }
        let is_open = |stored: &&Stored| stored.transaction.is_some_and(|transaction| self.is_open(transaction));
        match self.records_from(place, from).iter().find(is_open) {
            Some(open) => open.record.offset,
            None => self.records_from(place, 0).last().map_or(from, |last| last.record.offset + 2),
        }
    }

    /// The deferred intents that are in the wheel.
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
}
