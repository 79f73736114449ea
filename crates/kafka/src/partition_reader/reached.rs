//! How far spans are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use crate::extents::Span;

pub(super) struct Reached {
    next: BTreeMap<i32, i64>,
    /// The ends of the spans that are not read to their end.
    open: BTreeMap<i32, i64>,
    /// The open ones that are read up to an open transaction.
    held_up: BTreeSet<i32>,
    /// Partitions whose spans have ended since [`Reached::take_ended`] was last called.
    ended: Vec<i32>,
}

impl Reached {
    pub(super) fn of(spans: &[Span]) -> Self {
        let full = spans.iter().filter(|span| span.from < span.to);
        Self {
            next: spans.iter().map(|span| (span.partition, span.from.max(0))).collect(),
            open: full.map(|span| (span.partition, span.to)).collect(),
            held_up: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn next(&self) -> &BTreeMap<i32, i64> {
        &self.next
    }

    pub(super) fn is_open(&self, partition: i32) -> bool {
        self.open.contains_key(&partition)
    }

    pub(super) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether nothing more comes of a partition before a transaction ends.
    pub(super) fn is_held_up(&self, partition: i32) -> bool {
        self.held_up.contains(&partition)
    }

    /// Notes that a partition was read up to before this offset; `false` where that is beyond its span.
    pub(super) fn advance(&mut self, partition: i32, next: i64) -> bool {
        let Some(&end) = self.open.get(&partition) else { return false };
        let known = self.next.entry(partition).or_insert(next);
        *known = next.min(end).max(*known);
        self.held_up.remove(&partition);
        if next >= end {
            self.open.remove(&partition);
            self.ended.push(partition);
        }
        next <= end
    }

    /// Notes that a partition is read up to this offset, and that nothing committed follows.
    pub(super) fn comes_to_an_end(&mut self, partition: i32, offset: i64) {
        self.advance(partition, offset);
        if self.is_open(partition) {
            self.held_up.insert(partition);
        }
    }

    /// The partitions whose spans have ended since this was last asked.
    pub(super) fn take_ended(&mut self) -> Vec<i32> {
        mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reached: &Reached, partition: i32) -> i64 {
        reached.next()[&partition]
    }

    #[test]
    fn a_span_ends_with_its_last_record_or_where_the_partition_goes_on_behind_it() {
        let span = |partition, from, to| Span { partition, from, to };
        let mut reached = Reached::of(&[span(0, 5, 8), span(1, 0, 4), span(2, 3, 3), span(3, 9, 7)]);
        let open = |reached: &Reached| reached.open.keys().copied().collect::<Vec<_>>();
        assert_eq!(open(&reached), [0, 1], "the others are empty");
        assert_eq!([2, 3].map(|partition| next(&reached, partition)), [3, 9]);

        assert!(reached.advance(0, 6) && next(&reached, 0) == 6);
        // The partition's end was reported before a record that came with it.
        assert!(reached.advance(0, 5) && next(&reached, 0) == 6);
        assert!(reached.advance(0, 8), "the last record");
        assert!(!reached.advance(0, 9) && next(&reached, 0) == 8, "a record behind the end");
        assert_eq!(open(&reached), [1]);
        assert_eq!((reached.take_ended(), reached.take_ended()), (vec![0], vec![]));

        // The last offsets are transactions' markers: the next record, or the partition's end, is behind them.
        assert!(reached.advance(1, 2) && !reached.advance(1, 6) && next(&reached, 1) == 4);
        assert!(!reached.is_any_open());
        assert!(!reached.advance(2, 4) && next(&reached, 2) == 3);
        assert_eq!(reached.take_ended(), [1]);
    }

    #[test]
    fn a_partition_is_held_up_from_an_end_before_its_spans_until_it_is_read_on() {
        let mut reached = Reached::of(&[Span { partition: 0, from: 0, to: 9 }]);
        assert!(!reached.is_held_up(0), "its broker may be down");
        reached.comes_to_an_end(0, 4);
        assert!(reached.is_held_up(0) && next(&reached, 0) == 4);
        assert!(reached.advance(0, 5) && !reached.is_held_up(0));
        reached.comes_to_an_end(0, 9);
        assert!(!reached.is_held_up(0) && !reached.is_any_open());
    }
}
