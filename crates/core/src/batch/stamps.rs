//! When the records of a batch were published, by their Kafka timestamps.

use std::collections::BTreeMap;

use crate::{basis::time::Time, batch::record::Records};

/// The timestamps of a batch's records. Records without one are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps {
    /// A timestamp, and how many records in a row have it.
    runs: Vec<(Time, u64)>,
    partitions: BTreeMap<i32, Bounds>,
}

/// The oldest and the newest timestamp of a partition's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    oldest: Time,
    newest: Time,
}

impl Bounds {
    fn with(self, other: Self) -> Self {
        Self { oldest: self.oldest.min(other.oldest), newest: self.newest.max(other.newest) }
    }
}

impl Stamps {
    pub fn of(records: &impl Records) -> Self {
        let mut stamps = Self::default();
        // Records come in runs of one partition; a run needs one look at the map.
        let mut run: Option<(i32, Bounds)> = None;
        for index in 0..records.len() {
            let record = records.get(index);
            let Some(at) = record.timestamp else { continue };
            match stamps.runs.last_mut() {
                Some((time, count)) if *time == at => *count += 1,
                Some(_) | None => stamps.runs.push((at, 1)),
            }
            let bounds = Bounds { oldest: at, newest: at };
            run = Some(match run {
                Some((partition, before)) if partition == record.partition => (partition, before.with(bounds)),
                Some((partition, before)) => {
                    stamps.note(partition, before);
                    (record.partition, bounds)
                }
                None => (record.partition, bounds),
            });
        }
        if let Some((partition, bounds)) = run {
            stamps.note(partition, bounds);
        }
        stamps
    }

    fn note(&mut self, partition: i32, bounds: Bounds) {
        self.partitions.entry(partition).and_modify(|known| *known = known.with(bounds)).or_insert(bounds);
    }

    /// Timestamps, each with a number of records that have it.
    pub fn counts(&self) -> impl Iterator<Item = (Time, u64)> {
        self.runs.iter().copied()
    }

    pub fn oldest(&self, partition: i32) -> Option<Time> {
        self.partitions.get(&partition).map(|bounds| bounds.oldest)
    }

    pub fn oldest_of_each(&self) -> impl Iterator<Item = (i32, Time)> {
        self.partitions.iter().map(|(partition, bounds)| (*partition, bounds.oldest))
    }

    pub fn newest_of_each(&self) -> impl Iterator<Item = (i32, Time)> {
        self.partitions.iter().map(|(partition, bounds)| (*partition, bounds.newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::{Row, Rows};

    #[test]
    fn every_record_with_a_timestamp_is_counted_and_each_partition_has_its_oldest() {
        let row = |(partition, millis): (i32, Option<i64>)| {
            let timestamp = millis.and_then(Time::from_millis);
            Row { partition, timestamp, ..Row::default() }
        };
        let all = [(1, Some(30)), (1, Some(30)), (2, Some(30)), (2, None), (1, Some(10)), (1, Some(20))];
        let stamps = Stamps::of(&Rows(all.map(row).into()));
        let time = |millis| Time::from_millis(millis).unwrap();
        assert_eq!(stamps.counts().collect::<Vec<_>>(), [(time(30), 3), (time(10), 1), (time(20), 1)]);
        assert_eq!(stamps.oldest_of_each().collect::<Vec<_>>(), [(1, time(10)), (2, time(30))]);
        assert_eq!(stamps.newest_of_each().collect::<Vec<_>>(), [(1, time(30)), (2, time(30))]);
        assert_eq!((stamps.oldest(1), stamps.oldest(3)), (Some(time(10)), None));
        assert_eq!(Stamps::of(&row((1, None))), Stamps::default());
    }
}
