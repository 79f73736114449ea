//! The ends of partitions that were read. Offsets without a record (the end of a transaction, records of an aborted one) are no work that
//! is left, but a group that does not commit them seems to lag for ever.
//!
//! invariant: an end is committed as a record before it would be: by the sink, when all that was read is committed with it or before.

use std::{collections::BTreeMap, time::Duration};

use weir_core::record::Progress;

/// How long after a commit an idle member commits ends: each such commit costs the brokers as much as that of a batch.
pub(crate) const COMMIT_AFTER: Duration = Duration::from_secs(1);

/// Those of these ends that are not committed; `done` has the next offset of each partition.
pub(crate) fn not_committed(done: &BTreeMap<i32, i64>, mut ends: Vec<Progress>) -> Vec<Progress> {
    ends.retain(|end| done.get(&end.partition).is_some_and(|next| end.next_offset > *next));
    ends
}

/// How far a batch and these ends bring their partitions. The batch has all that was read and is not committed.
pub(crate) fn with_batch(mut batch: Vec<Progress>, ends: Vec<Progress>) -> Vec<Progress> {
    for end in ends {
        match batch.iter_mut().find(|done| done.partition == end.partition) {
            Some(done) => done.next_offset = done.next_offset.max(end.next_offset),
            None => batch.push(end),
        }
    }
    batch
}

/// How far each partition is done, where all that was read is committed: to its end, if that was read.
pub(crate) fn reached(done: &BTreeMap<i32, i64>, ends: Vec<Progress>) -> BTreeMap<i32, i64> {
    let ends = not_committed(done, ends).into_iter().map(|end| (end.partition, end.next_offset));
    done.iter().map(|(partition, next)| (*partition, *next)).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(partition: i32, next_offset: i64) -> Progress {
        Progress { partition, next_offset }
    }

    #[test]
    fn an_end_is_committed_once_and_a_batch_never_goes_back_to_one() {
        let done = BTreeMap::from([(1, 10), (2, 10), (3, 10)]);
        assert_eq!(not_committed(&done, vec![at(1, 10), at(2, 11), at(3, 9), at(4, 12)]), [at(2, 11)]);
        let brought = with_batch(vec![at(1, 12), at(2, 11)], vec![at(1, 11), at(2, 13), at(3, 14)]);
        assert_eq!(brought, [at(1, 12), at(2, 13), at(3, 14)]);
    }

    #[test]
    fn ends_that_were_read_count_as_done_and_ends_of_before_change_nothing() {
        let done = BTreeMap::from([(1, 10), (2, 10), (3, 10)]);
        let reached = reached(&done, vec![at(1, 30), at(2, 9), at(4, 5)]);
        assert_eq!(reached, BTreeMap::from([(1, 30), (2, 10), (3, 10)]));
    }
}
