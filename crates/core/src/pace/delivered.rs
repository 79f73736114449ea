//! What a consumer group has delivered, from the offsets that it commits in each partition.

use std::collections::BTreeMap;

use super::Lag;

/// How far a group is in one partition of an approved topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLag {
    /// The offset that it has committed; `None`: none that is of this topic.
    pub committed: Option<u64>,
    /// Records behind that, or all of them.
    pub undelivered: u64,
}

/// Adds up what the group commits from one look to the next, over all partitions.
///
/// The first offset that it commits in a partition says nothing of how much it has delivered: with `auto.offset.reset=latest` that is
/// the partition's end. Nor does an offset that was deleted or went back, nor one that retention has overtaken. So the first look finds
/// 0, whatever is committed by then: a controller that goes on over a change of its route takes that for offsets that went back.
#[derive(Debug, Clone, Default)]
pub struct Delivered<P> {
    committed: BTreeMap<P, u64>,
    sum: u64,
}

impl<P: Ord> Delivered<P> {
    pub fn look(&mut self, partitions: impl IntoIterator<Item = (P, PartitionLag)>) -> Lag {
        let (mut committed, mut undelivered) = (BTreeMap::new(), 0);
        for (partition, lag) in partitions {
            undelivered += lag.undelivered;
            let Some(next) = lag.committed else { continue };
            self.sum += self.committed.get(&partition).map_or(0, |before| next.saturating_sub(*before));
            committed.insert(partition, next);
        }
        self.committed = committed;
        Lag { end: self.sum + undelivered, committed: self.sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_from_one_look_to_the_next_was_delivered_and_nothing_else() {
        let mut delivered = Delivered::default();
        let mut look = |partitions: [(Option<u64>, u64); 2]| {
            let lags = partitions.map(|(committed, undelivered)| PartitionLag { committed, undelivered });
            let lag = delivered.look([0, 1].into_iter().zip(lags));
            (lag.committed, lag.undelivered())
        };
        assert_eq!(look([(Some(100), 50), (None, 9_000)]), (0, 9_050), "where nothing is committed, all of it is left");
        assert_eq!(look([(Some(120), 30), (None, 9_000)]), (20, 9_030));
        assert_eq!(look([(Some(120), 30), (None, 4_000)]), (20, 4_030), "retention has deleted some");
        assert_eq!(look([(Some(130), 20), (Some(9_000), 0)]), (30, 20), "the first offset may be the end");
        assert_eq!(look([(Some(130), 20), (Some(9_007), 0)]), (37, 20));
        assert_eq!(look([(None, 150), (Some(9_007), 0)]), (37, 150), "an offset was deleted");
        assert_eq!(look([(Some(150), 0), (Some(9_000), 7)]), (37, 7), "and another one went back");
        assert_eq!(look([(Some(151), 0), (Some(9_001), 6)]), (39, 6));
    }
}
