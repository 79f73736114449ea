//! How far each partition is committed, and since when its oldest record that is not has waited.
//!
//! Offsets without a record (the end of a transaction, records of an aborted one) are no work that is left, but a group that does not
//! commit them seems to lag for ever. So the ends of partitions that were read are committed, too.
//!
//! invariant: an end is committed as a record before it would be: by the sink, when all that was read is committed with it or before.
//! invariant: a partition is committed no further than to a record that is held, which is read again.

use std::collections::BTreeMap;

use weir_core::{
    basis::time::Time,
    batch::{
        record::{Job, Progress, Records, progress_of},
        stamps::Stamps,
    },
    ports::Source,
};

use crate::observer::{BesideTopic, Observer};

/// What the lag of a group member is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LagOf {
    /// That of the intents topic, by partition.
    Intents,
    /// That of a topic beside it, of all partitions.
    Beside(BesideTopic),
}

/// What a group member knows of its partitions.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// The next offset of each partition that something is known of.
    next: BTreeMap<i32, i64>,
    /// The first record of each partition that has to be read again.
    held: BTreeMap<i32, i64>,
    /// The timestamps of the batch that is being decided, where they are noted.
    decided: Stamps,
    pub(crate) in_flight: InFlight,
    /// No record of the partition that is not committed was published before, as far as is known: the newest record that is
    /// committed, or the last moment when there was nothing to read.
    since: BTreeMap<i32, Time>,
}

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) progress: Vec<Progress>,
    pub(crate) records: usize,
    /// The timestamps of the records, where they were noted.
    pub(crate) stamps: Stamps,
}

impl Committed {
    pub(super) fn starts(&mut self, starts: &[Progress]) {
        self.failed();
        self.held.clear();
        self.next = starts.iter().map(|start| (start.partition, start.next_offset)).collect();
    }

    /// A record has to be read again, once [`Source::rewind`] has gone back to it.
    pub(crate) fn hold(&mut self, partition: i32, offset: i64) {
        self.held.entry(partition).or_insert(offset);
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn not_committed(&self, mut ends: Vec<Progress>) -> Vec<Progress> {
        let is_behind = |end: &Progress| self.next.get(&end.partition).is_some_and(|next| end.next_offset > *next);
        ends.retain(|end| is_behind(end) && !self.held.contains_key(&end.partition));
        ends
    }

    /// How far a batch and these ends bring their partitions, and none back. The batch has all that was read and is not committed.
    pub(super) fn brought_by(&self, batch: &impl Records, ends: Vec<Progress>) -> Vec<Progress> {
        let mut brought = progress_of(batch);
        for Progress { partition, next_offset: next } in &mut brought {
            *next = self.held.get(partition).map_or(*next, |held| (*next).min(*held));
            *next = self.next.get(partition).map_or(*next, |before| (*next).max(*before));
        }
        for end in self.not_committed(ends) {
            match brought.iter_mut().find(|done| done.partition == end.partition) {
                Some(done) => done.next_offset = done.next_offset.max(end.next_offset),
                None => brought.push(end),
            }
        }
        brought
    }

    /// A batch is being decided, and its timestamps are wanted.
    pub(crate) fn deciding(&mut self, batch: &impl Records) {
        self.decided = Stamps::of(batch);
    }

    /// The batch that was decided is being committed, or ends alone are.
    pub(super) fn handed_over<B: Records, M>(&mut self, job: &Job<B, M>) {
        let stamps = std::mem::take(&mut self.decided);
        self.in_flight = InFlight { progress: job.progress.clone(), records: job.records.len(), stamps };
    }

    pub(super) fn committed(&mut self) {
        let InFlight { progress, stamps, .. } = std::mem::take(&mut self.in_flight);
        self.next.extend(progress.into_iter().map(|done| (done.partition, done.next_offset)));
        self.since.extend(stamps.newest_of_each());
    }

    /// What was read is not committed: it will be read again.
    fn failed(&mut self) {
        let in_flight = std::mem::take(&mut self.in_flight).stamps;
        for stamps in [in_flight, std::mem::take(&mut self.decided)] {
            for (partition, oldest) in stamps.oldest_of_each() {
                self.since.entry(partition).or_insert(oldest);
            }
        }
    }

    /// How many records of each partition are not committed. Where a poll has found nothing and no record is being committed, partitions
    /// that were read to their ends are done.
    fn lag(&self, source: &impl Source, found_nothing: bool) -> Vec<(i32, i64)> {
        let is_all_committed = found_nothing && self.in_flight.records == 0;
        source.lag(&self.reached(if is_all_committed { source.ends_read() } else { Vec::new() }))
    }

    /// The same of all partitions.
    pub(crate) fn lag_of_all(&self, source: &impl Source, found_nothing: bool) -> i64 {
        self.lag(source, found_nothing).into_iter().map(|(_, records)| records).sum()
    }

    /// How far each partition is, where those that were read to these ends are done.
    fn reached(&self, ends: Vec<Progress>) -> BTreeMap<i32, i64> {
        let mut reached = self.next.clone();
        reached.extend(self.not_committed(ends).into_iter().map(|end| (end.partition, end.next_offset)));
        reached
    }

    /// Reports the lag of each partition. Where a poll has found nothing, what lag there is cannot be read.
    pub(crate) fn report(&mut self, source: &impl Source, found_nothing: bool, metrics: &dyn Observer, now: Time) {
        let lag = self.lag(source, found_nothing);
        let done = lag.iter().filter(|(_, records)| found_nothing || *records == 0);
        self.since.extend(done.map(|(partition, _)| (*partition, now)));
        self.show(&lag, metrics);
    }

    /// Reports the lag while a batch waits to be decided.
    pub(crate) fn report_waiting(&self, of: LagOf, source: &impl Source, metrics: &dyn Observer) {
        match of {
            LagOf::Intents => self.show(&self.lag(source, false), metrics),
            LagOf::Beside(topic) => metrics.set_topic_lag(topic, self.lag_of_all(source, false)),
        }
    }

    fn show(&self, lag: &[(i32, i64)], metrics: &dyn Observer) {
        for &(partition, records) in lag {
            let since = if records == 0 { None } else { self.oldest(partition) };
            metrics.set_lag(partition, records, since);
        }
    }

    /// Removes the lags of these partitions, which another lane reports now.
    pub(crate) fn forget(&self, source: &impl Source, metrics: &dyn Observer) {
        for (partition, _) in self.lag(source, false) {
            metrics.forget_lag(partition);
        }
    }

    fn oldest(&self, partition: i32) -> Option<Time> {
        let read = [self.in_flight.stamps.oldest(partition), self.decided.oldest(partition)];
        read.into_iter().flatten().min().or_else(|| self.since.get(&partition).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Row, Rows};

    /// Partition, offset and timestamp of each record.
    fn rows(rows: impl IntoIterator<Item = (i32, i64, i64)>) -> Rows {
        let row = |(partition, offset, millis)| {
            let timestamp = Time::from_millis(millis);
            Row { partition, offset, timestamp, deferral: None }
        };
        Rows(rows.into_iter().map(row).collect())
    }

    /// A batch with the record before each of these.
    fn up_to(progress: &[Progress]) -> Rows {
        rows(progress.iter().map(|done| (done.partition, done.next_offset - 1, 0)))
    }

    fn hand_over(committed: &mut Committed, progress: Vec<Progress>) {
        let records = up_to(&progress);
        committed.handed_over(&Job { records, outputs: Vec::new(), progress, membership: () });
    }

    const fn at(partition: i32, next_offset: i64) -> Progress {
        Progress { partition, next_offset }
    }

    fn oldest_ms(committed: &Committed, partition: i32) -> Option<i64> {
        committed.oldest(partition).map(Time::millis)
    }

    #[test]
    fn the_oldest_record_is_that_of_the_batches_under_way_and_else_no_older_than_the_last_committed() {
        let mut committed = Committed::default();
        committed.deciding(&rows([(1, 0, 100), (1, 1, 90), (2, 0, 120)]));
        assert_eq!(oldest_ms(&committed, 1), Some(90));
        hand_over(&mut committed, Vec::new());
        committed.deciding(&rows([(1, 2, 300)]));
        assert_eq!(oldest_ms(&committed, 1), Some(90), "it is not committed yet");
        committed.committed();
        assert_eq!((oldest_ms(&committed, 1), oldest_ms(&committed, 2)), (Some(300), Some(120)));
        committed.starts(&[]);
        assert_eq!(oldest_ms(&committed, 1), Some(100), "it will be read again");
    }

    #[test]
    fn an_end_is_committed_once_and_a_batch_never_goes_back_to_one() {
        let mut committed = Committed::default();
        committed.starts(&[at(1, 10), at(2, 10), at(3, 10)]);
        let ends = vec![at(1, 10), at(2, 11), at(3, 9), at(4, 12)];
        assert_eq!(committed.not_committed(ends.clone()), [at(2, 11)]);
        let brought = committed.brought_by(&up_to(&[at(1, 12), at(2, 12)]), vec![at(1, 11), at(2, 13), at(3, 14)]);
        assert_eq!(brought, [at(1, 12), at(2, 13), at(3, 14)]);
        hand_over(&mut committed, brought);
        committed.committed();
        assert_eq!(committed.not_committed(ends), []);
    }

    #[test]
    fn ends_that_were_read_count_as_done_and_ends_of_before_change_nothing() {
        let mut committed = Committed::default();
        committed.starts(&[at(1, 10), at(2, 10), at(3, 10)]);
        committed.hold(3, 12);
        let reached = committed.reached(vec![at(1, 30), at(2, 9), at(3, 30), at(4, 5)]);
        assert_eq!(reached, BTreeMap::from([(1, 30), (2, 10), (3, 10)]));
    }

    #[test]
    fn a_partition_is_committed_up_to_a_record_that_is_held_until_reading_starts_again() {
        let mut committed = Committed::default();
        committed.starts(&[at(1, 10), at(2, 10)]);
        committed.hold(1, 12);
        committed.hold(1, 14);
        let (batch, ends) = (up_to(&[at(1, 20), at(2, 20)]), vec![at(1, 21), at(2, 21)]);
        let brought = committed.brought_by(&batch, ends.clone());
        assert_eq!(brought, [at(1, 12), at(2, 21)], "nor is its end");
        hand_over(&mut committed, brought);
        committed.committed();
        assert_eq!(committed.brought_by(&up_to(&[at(1, 30), at(2, 15)]), ends.clone()), [at(1, 12), at(2, 21)]);
        committed.starts(&[at(1, 12), at(2, 21)]);
        assert!(!committed.holds_any());
        assert_eq!(committed.brought_by(&batch, ends), [at(1, 21), at(2, 21)]);
    }
}
