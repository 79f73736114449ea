//! The fake topics that weir both writes and reads: those of the wheel, and of waiting intents.

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

/// A partition of a topic.
pub type Place = (Log, i32);

/// A record that weir wrote, and the transaction that it was written in.
#[derive(Debug)]
pub struct Stored {
    pub record: Arc<Intent>,
    pub transaction: usize,
}

/// The records of these topics.
#[derive(Debug, Default)]
pub struct Rings(BTreeMap<Place, Vec<Stored>>);

impl Rings {
    /// Appends what `record` makes of the next offset.
    pub fn append(&mut self, place: Place, transaction: usize, record: impl FnOnce(i64) -> Intent) {
        let log = self.0.entry(place).or_default();
        // Each transaction leaves a control record.
        let next = log.last().map_or(0, |last| last.record.offset + 1 + i64::from(last.transaction != transaction));
        log.push(Stored { record: Arc::new(record(next)), transaction });
    }

    /// The records of a partition.
    pub fn of(&self, place: Place) -> &[Stored] {
        self.0.get(&place).map_or(&[], Vec::as_slice)
    }

    /// The partitions of a topic that ever had a record.
    fn partitions(&self, log: Log) -> impl Iterator<Item = i32> {
        self.0.keys().filter(move |(of, _)| *of == log).map(|(_, partition)| *partition)
    }
}

impl Broker {
    /// Adds a record to a partition, now.
    pub fn append(&mut self, partition: i32, key: String, value: String) {
        let log = &mut self.intents[usize::try_from(partition).unwrap()];
        let offset = i64::try_from(log.len()).unwrap();
        log.push(Arc::new(Intent::new((partition, offset), key, value, self.env.passed())));
    }

    /// The records of a topic that others write, by partition; `None`: weir writes it.
    pub fn published(&self, log: Log) -> Option<&[Vec<Arc<Intent>>]> {
        match log {
            Log::Input => Some(&self.intents),
            Log::Retries => Some(&self.retries),
            Log::Ring(_) | Log::Waiting => None,
        }
    }

    /// The partitions of a topic that may have records, in order.
    pub fn with_records(&self, log: Log) -> Vec<i32> {
        match self.published(log) {
            Some(partitions) => (0..i32::try_from(partitions.len()).unwrap()).collect(),
            None => self.rings.partitions(log).collect(),
        }
    }

    /// The records of a partition from an offset on that can be read now at read_committed.
    pub fn readable(&self, log: Log, partition: i32, from: i64) -> Box<dyn Iterator<Item = &Arc<Intent>> + '_> {
        let now = self.env.passed();
        if let Some(partitions) = self.published(log) {
            let log = &partitions[usize::try_from(partition).unwrap()];
            let from = log.partition_point(|intent| intent.offset < from);
            return Box::new(log[from..].iter().take_while(move |intent| intent.at <= now));
        }
        let log = self.rings.of((log, partition));
        let log = &log[log.partition_point(|stored| stored.record.offset < from)..];
        let stable = log.iter().take_while(move |stored| !self.is_open(stored.transaction));
        Box::new(stable.filter(move |stored| self.is_committed(stored.transaction)).map(|stored| &stored.record))
    }

    /// The offset after the last record of a partition that was written until then.
    pub fn end_at(&self, log: Log, partition: i32, at: Duration) -> i64 {
        let end = |record: &Arc<Intent>| record.offset + 1;
        match self.published(log) {
            Some(partitions) => {
                let log = &partitions[usize::try_from(partition).unwrap()];
                log[..log.partition_point(|intent| intent.at <= at)].last().map_or(0, end)
            }
            None => {
                let log = self.rings.of((log, partition));
                log[..log.partition_point(|stored| stored.record.at <= at)].last().map_or(0, |last| end(&last.record))
            }
        }
    }

    /// Where a partition ends at read_committed, for a reader that has taken all that it can read from this offset on: behind aborted
    /// records and the marks of transactions.
    pub fn stable_end(&self, log: Log, partition: i32, from: i64) -> i64 {
        if self.published(log).is_some() {
            return from;
        }
        let log = self.rings.of((log, partition));
        let left = &log[log.partition_point(|stored| stored.record.offset < from)..];
        match left.iter().find(|stored| self.is_open(stored.transaction)) {
            Some(open) => open.record.offset,
            None => log.last().map_or(from, |last| last.record.offset + 2),
        }
    }

    /// The deferred intents that are in the wheel.
    pub fn deferred(&mut self) -> Vec<Arc<Intent>> {
        self.pass_time();
        Ring::ALL.into_iter().flat_map(|ring| self.left(Log::Ring(ring))).collect()
    }

    /// The visible records of one of these topics that are not done.
    pub fn left(&self, log: Log) -> Vec<Arc<Intent>> {
        let mut left = Vec::new();
        for partition in self.rings.partitions(log) {
            let next = self.committed.get(&(log, partition)).map_or(0, |done| done.next_offset);
            let log = self.rings.of((log, partition)).iter();
            let log = log.filter(|stored| stored.record.offset >= next && self.is_committed(stored.transaction));
            left.extend(log.map(|stored| Arc::clone(&stored.record)));
        }
        left
    }

    /// The offsets of the visible records of a partition.
    pub fn records(&self, log: Log, partition: i32, offsets: Range<i64>) -> Vec<i64> {
        match self.published(log) {
            Some(partitions) => {
                let log = partitions[usize::try_from(partition).unwrap()].iter();
                log.map(|intent| intent.offset).filter(|offset| offsets.contains(offset)).collect()
            }
            None => {
                let visible =
                    self.rings.of((log, partition)).iter().filter(|stored| self.is_committed(stored.transaction));
                visible.map(|stored| stored.record.offset).filter(|offset| offsets.contains(offset)).collect()
            }
        }
    }
}
