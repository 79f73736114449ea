//! How far each partition is committed, and since when its oldest record that is not has waited.

use std::collections::BTreeMap;

use weir_core::{
    ports::Source,
    record::{Progress, Records},
    stamps::Stamps,
    time::Time,
};

use crate::{ends, observer::Observer};

/// What a lane knows of its partitions.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// The next offset of each partition that something is known of.
    next: BTreeMap<i32, i64>,
    /// The batch that is being decided, and the one that is being committed.
    decided: Stamps,
    in_flight: Stamps,
    /// When the one in flight was decided.
    decided_at: Option<Time>,
    /// No record of the partition that is not committed was published before, as far as is known: the newest record that is
    /// committed, or the last moment when there was nothing to read.
    since: BTreeMap<i32, Time>,
}

impl Committed {
    /// Forgets everything: the partitions are others.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reading starts at these offsets.
    pub(super) fn starts(&mut self, starts: &[Progress]) {
        self.failed();
        self.next = starts.iter().map(|start| (start.partition, start.next_offset)).collect();
    }

    /// Those of these ends that are not committed.
    pub(super) fn not_committed(&self, ends: Vec<Progress>) -> Vec<Progress> {
        ends::not_committed(&self.next, ends)
    }

    /// A batch is being decided.
    pub(super) fn deciding(&mut self, batch: &impl Records) {
        self.decided = Stamps::of(batch);
    }

    /// It is decided, and being committed.
    pub(super) fn handed_over(&mut self, decided_at: Time) {
        self.in_flight = std::mem::take(&mut self.decided);
        self.decided_at = Some(decided_at);
    }

    /// It is committed: the timestamps of its records, and when it was decided.
    pub(super) fn committed(&mut self, progress: impl Iterator<Item = Progress>) -> Option<(Stamps, Time)> {
        self.next.extend(progress.map(|done| (done.partition, done.next_offset)));
        let stamps = std::mem::take(&mut self.in_flight);
        self.since.extend(stamps.newest_of_each());
        Some((stamps, self.decided_at.take()?))
    }

    /// What was read is not committed: it will be read again.
    fn failed(&mut self) {
        for stamps in [std::mem::take(&mut self.in_flight), std::mem::take(&mut self.decided)] {
            for (partition, oldest) in stamps.oldest_of_each() {
                self.since.entry(partition).or_insert(oldest);
            }
        }
        self.decided_at = None;
    }

    /// Reports the lag of each partition.
    pub(super) fn report(&mut self, source: &impl Source, metrics: &dyn Observer, now: Time) {
        let lag = source.lag(&self.next);
        self.since.extend(lag.iter().filter(|(_, records)| *records == 0).map(|(partition, _)| (*partition, now)));
        self.show(&lag, metrics);
    }

    /// The same where a poll has found nothing: what lag there is cannot be read. `ends`: the ends of partitions that were read, where
    /// nothing is being committed.
    pub(super) fn report_idle(&mut self, source: &impl Source, ends: Vec<Progress>, metrics: &dyn Observer, now: Time) {
        let lag = source.lag(&ends::reached(&self.next, ends));
        self.since.extend(lag.iter().map(|(partition, _)| (*partition, now)));
        self.show(&lag, metrics);
    }

    /// The same while a batch waits to be decided.
    pub(super) fn report_waiting(&self, source: &impl Source, metrics: &dyn Observer) {
        self.show(&source.lag(&self.next), metrics);
    }

    fn show(&self, lag: &[(i32, i64)], metrics: &dyn Observer) {
        for &(partition, records) in lag {
            let since = if records == 0 { None } else { self.oldest(partition) };
            metrics.set_lag(partition, records, since);
        }
    }

    /// Removes the lags of these partitions, which another lane reports now.
    pub(super) fn forget(&self, source: &impl Source, metrics: &dyn Observer) {
        for (partition, _) in source.lag(&self.next) {
            metrics.forget_lag(partition);
        }
    }

    fn oldest(&self, partition: i32) -> Option<Time> {
        let read = [self.in_flight.oldest(partition), self.decided.oldest(partition)];
        read.into_iter().flatten().min().or_else(|| self.since.get(&partition).copied())
    }
}

#[cfg(test)]
mod tests {
    use weir_core::record::{NoHeaders, RecordView};

    use super::*;

    /// Partition and timestamp of each record.
    struct Batch(Vec<(i32, i64)>);

    impl Records for Batch {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn get(&self, index: usize) -> RecordView<'_> {
            let (partition, millis) = self.0[index];
            let timestamp = Time::from_millis(millis);
            RecordView { key: None, value: None, partition, offset: 0, timestamp, headers: &NoHeaders, deferral: None }
        }
    }

    fn oldest_ms(committed: &Committed, partition: i32) -> Option<i64> {
        committed.oldest(partition).map(Time::millis)
    }

    #[test]
    fn the_oldest_record_is_that_of_the_batches_under_way_and_else_no_older_than_the_last_committed() {
        let (mut committed, now) = (Committed::default(), Time::from_millis(500).unwrap());
        committed.deciding(&Batch(vec![(1, 100), (1, 90), (2, 120)]));
        assert_eq!(oldest_ms(&committed, 1), Some(90));
        committed.handed_over(now);
        committed.deciding(&Batch(vec![(1, 300)]));
        assert_eq!(oldest_ms(&committed, 1), Some(90), "it is not committed yet");
        let (stamps, decided_at) = committed.committed([].into_iter()).unwrap();
        assert_eq!((stamps.counts().count(), decided_at), (3, now));
        assert_eq!((oldest_ms(&committed, 1), oldest_ms(&committed, 2)), (Some(300), Some(120)));
        committed.starts(&[]);
        assert_eq!(oldest_ms(&committed, 1), Some(100), "it will be read again");
        committed.clear();
        assert_eq!(oldest_ms(&committed, 1), None);
    }
}
