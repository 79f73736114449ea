//! The fake topics of the wheel, and what a lane can read.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::wheel::{Bucket, Ring};

use super::broker::Intent;

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
