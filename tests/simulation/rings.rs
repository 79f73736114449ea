//! The fake topics of the wheel, and what a lane can read.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use weir_core::wheel::{Bucket, Ring};

use super::broker::{Broker, Intent};

/// The partitions of both rings: one share.
pub const SHARES: u16 = 1;

/// A topic that lanes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// The intents, or the refunds.
    Input,
    /// Deferred intents.
    Ring(Ring),
}

impl Log {
    /// The bucket of a partition of a ring.
    pub fn bucket(self, partition: i32) -> Option<Bucket> {
        match self {
            Self::Input => None,
            Self::Ring(ring) => Some(Bucket { ring, partition }),
        }
    }
}

/// A record of a ring, and the transaction that it was written in.
#[derive(Debug)]
pub struct Stored {
    pub record: Arc<Intent>,
    pub transaction: usize,
}

/// The records of both rings.
#[derive(Debug, Default)]
pub struct Rings(BTreeMap<Bucket, Vec<Stored>>);

impl Rings {
    /// Appends what `record` makes of the next offset.
    pub fn append(&mut self, bucket: Bucket, transaction: usize, record: impl FnOnce(i64) -> Intent) {
        let log = self.0.entry(bucket).or_default();
        // Each transaction leaves a control record.
        let next = log.last().map_or(0, |last| last.record.offset + 1 + i64::from(last.transaction != transaction));
        log.push(Stored { record: Arc::new(record(next)), transaction });
    }

    /// The records of a bucket.
    pub fn of(&self, bucket: Bucket) -> &[Stored] {
        self.0.get(&bucket).map_or(&[], Vec::as_slice)
    }

    /// The buckets that ever had a record.
    pub fn all(&self) -> impl Iterator<Item = (Bucket, &[Stored])> {
        self.0.iter().map(|(bucket, log)| (*bucket, log.as_slice()))
    }
}

impl Broker {
    /// Adds a record to a partition, now.
    pub fn append(&mut self, partition: i32, key: String, value: String) {
        let log = &mut self.intents[usize::try_from(partition).unwrap()];
        let offset = i64::try_from(log.len()).unwrap();
        log.push(Arc::new(Intent::new((partition, offset), key, value, self.env.passed())));
    }

    /// The records of a partition from an offset on that can be read now at read_committed.
    pub fn readable(&self, log: Log, partition: i32, from: i64) -> Box<dyn Iterator<Item = &Arc<Intent>> + '_> {
        let now = self.env.passed();
        let Some(bucket) = log.bucket(partition) else {
            let log = &self.intents[usize::try_from(partition).unwrap()];
            let from = log.partition_point(|intent| intent.offset < from);
            return Box::new(log[from..].iter().take_while(move |intent| intent.at <= now));
        };
        let log = self.rings.of(bucket);
        let log = &log[log.partition_point(|stored| stored.record.offset < from)..];
        let stable = log.iter().take_while(move |stored| !self.is_open(stored.transaction));
        Box::new(stable.filter(move |stored| self.is_committed(stored.transaction)).map(|stored| &stored.record))
    }

    /// The offset after the last record of a partition that was written until then.
    pub fn end_at(&self, log: Log, partition: i32, at: Duration) -> i64 {
        let end = |record: &Arc<Intent>| record.offset + 1;
        match log.bucket(partition) {
            None => {
                let log = &self.intents[usize::try_from(partition).unwrap()];
                log[..log.partition_point(|intent| intent.at <= at)].last().map_or(0, end)
            }
            Some(bucket) => {
                let log = self.rings.of(bucket);
                log[..log.partition_point(|stored| stored.record.at <= at)].last().map_or(0, |last| end(&last.record))
            }
        }
    }

    /// The deferred intents that are in the wheel.
    pub fn deferred(&mut self) -> Vec<Arc<Intent>> {
        self.pass_time();
        let mut waiting = Vec::new();
        for (bucket, log) in self.rings.all() {
            let done = self.committed.get(&(Log::Ring(bucket.ring), bucket.partition));
            let next = done.map_or(0, |done| done.next_offset);
            let log = log.iter().filter(|stored| stored.record.offset >= next && self.is_committed(stored.transaction));
            waiting.extend(log.map(|stored| Arc::clone(&stored.record)));
        }
        waiting
    }

    /// The offsets of the visible records of a partition.
    pub fn records(&self, log: Log, partition: i32, offsets: Range<i64>) -> Vec<i64> {
        match log.bucket(partition) {
            None => {
                let log = self.intents[usize::try_from(partition).unwrap()].iter();
                log.map(|intent| intent.offset).filter(|offset| offsets.contains(offset)).collect()
            }
            Some(bucket) => {
                let visible = self.rings.of(bucket).iter().filter(|stored| self.is_committed(stored.transaction));
                visible.map(|stored| stored.record.offset).filter(|offset| offsets.contains(offset)).collect()
            }
        }
    }
}
