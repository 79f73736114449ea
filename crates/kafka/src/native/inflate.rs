//! What record batches may inflate to. The crate in crates/kafka/inflate, which the binary alone links, keeps to it.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

pub const LIBRDKAFKA_VERSION: i32 = rdkafka::bindings::RD_KAFKA_VERSION;

/// What one answer of a broker may inflate to before the rest of it is left for the next one, in bytes: the least.
pub const LEAST_ANSWER_BYTES: u64 = 32 * 1024 * 1024;

/// For all clients of this process, in bytes.
static BATCH_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
static ANSWER_BYTES: AtomicU64 = AtomicU64::new(LEAST_ANSWER_BYTES);

/// Sets the bounds: of a batch, and of the batches of one answer, after which no further batch of it is inflated. For an answer the
/// largest `answer_bytes` of all clients counts.
pub fn bound(batch_bytes: u64, answer_bytes: u64) {
    BATCH_BYTES.store(batch_bytes, Ordering::Relaxed);
    ANSWER_BYTES.fetch_max(answer_bytes, Ordering::Relaxed);
}

/// Whether so many bytes are too many for a batch.
pub fn is_beyond(bytes: u64) -> bool {
    bytes > BATCH_BYTES.load(Ordering::Relaxed)
}

/// Whether batches of so many bytes are enough for an answer.
pub fn is_enough(bytes: u64) -> bool {
    bytes >= ANSWER_BYTES.load(Ordering::Relaxed)
}

/// After how many answers without it a partition is given up whose turn it is: it is not read now.
const MOST_UNSEEN: u32 = 16;

/// Whose batches are inflated though enough of an answer was: those of one partition after the other, so that none that inflates to much
/// in each answer keeps the others from being read. Partitions are told apart by a number that is not 0.
#[derive(Debug, Default)]
pub struct Turns {
    /// The partition whose batches come now, and whether none of them has come yet.
    now: Cell<usize>,
    is_first: Cell<bool>,
    /// The partition whose first batch of an answer was left, and of the next one is not; 0: none.
    owed: Cell<usize>,
    /// How many answers were without it since.
    unseen: Cell<u32>,
}

impl Turns {
    pub const fn new() -> Self {
        Self { now: Cell::new(0), is_first: Cell::new(false), owed: Cell::new(0), unseen: Cell::new(0) }
    }

    /// A broker was asked for records: what it answers is another answer.
    pub fn asked(&self) {
        if self.owed.get() != 0 && self.unseen.replace(self.unseen.get() + 1) >= MOST_UNSEEN {
            self.owed.set(0);
        }
    }

    /// The batches of a partition come.
    pub fn begins(&self, partition: usize) {
        self.now.set(partition);
        self.is_first.set(true);
        if self.owed.get() == partition {
            self.unseen.set(0);
        }
    }

    /// Whether the next batch is left, where enough of the answer was inflated or not.
    pub fn leaves(&self, has_enough: bool) -> bool {
        let (is_first, now) = (self.is_first.replace(false), self.now.get());
        if is_first && self.owed.get() == now {
            self.owed.set(0);
            return false;
        }
        if has_enough && is_first && self.owed.get() == 0 {
            self.owed.set(now);
            self.unseen.set(0);
        }
        has_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inflates an answer in which each partition has a batch that reaches the bound, and one more. Returns the partitions of which a
    /// batch was inflated.
    fn answer(turns: &Turns, partitions: &[usize]) -> Vec<usize> {
        let (mut has_enough, mut inflated) = (false, Vec::new());
        for &partition in partitions {
            turns.begins(partition);
            let left = [turns.leaves(has_enough), turns.leaves(true)];
            assert!(left[1], "of one partition one at the most, where that is enough");
            has_enough = true;
            inflated.extend((!left[0]).then_some(partition));
        }
        turns.asked();
        inflated
    }

    #[test]
    fn every_partition_has_its_turn_whatever_those_before_it_inflate_to() {
        let turns = Turns::new();
        let answers: Vec<Vec<usize>> = (0..5).map(|_| answer(&turns, &[1, 2, 3])).collect();
        // The third has its turn behind the second, whose turn ends in an answer that also leaves the third.
        assert_eq!(answers, [vec![1], vec![1, 2], vec![1, 3], vec![1], vec![1, 2]]);
    }

    #[test]
    fn a_partition_that_is_not_read_any_more_keeps_the_turn_for_a_while_only() {
        let turns = Turns::new();
        assert_eq!(answer(&turns, &[1, 2, 3]), [1], "the second is next");
        // Answers without it, as those to a fetch of some of the partitions.
        assert_eq!(answer(&turns, &[1, 3]), [1]);
        assert_eq!(answer(&turns, &[1, 2, 3]), [1, 2]);
        assert_eq!(answer(&turns, &[1, 2]), [1], "the third is next");
        let waits = (0..100).take_while(|_| answer(&turns, &[1, 2]) == [1]).count();
        assert!((1..=MOST_UNSEEN as usize + 1).contains(&waits), "{waits}");
    }

    #[test]
    fn nothing_is_left_before_there_was_enough() {
        let turns = Turns::new();
        for partition in [1, 2] {
            turns.begins(partition);
            assert!(!turns.leaves(false) && !turns.leaves(false));
        }
    }
}
