//! In which order a batch's outputs are handed to the producer's client, and which of them may be on their way together.
//!
//! The client has one request a partition on its way at a time. While records wait behind it, its thread does not sleep but
//! asks whether the answer has come, over and over, which took an eighth of the worker's samples (docs/performance.md). So what
//! of a partition does not fit into one request waits here, and a partition's records are handed over without others in between.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::worker::record::Destination;

/// Where an output goes, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    wave: u32,
    /// The partition.
    pub partition: i32,
    /// The topic.
    pub to: Destination,
    /// Of the record, and of its output.
    pub index: usize,
}

impl Addressed {
    fn place(&self) -> (u32, i32, Destination) {
        (self.wave, self.partition, self.to)
    }
}

/// The outputs of a batch, wave by wave, and in each partition by partition.
#[derive(Debug)]
pub struct Waves {
    most_bytes: u64,
    addressed: Vec<Addressed>,
    /// How many waves each partition has had, from 0, and how full the last one is.
    full: HashMap<(Destination, i32), (u32, u64), RandomState>,
}

impl Waves {
    /// None yet, of a batch of so many outputs. A wave has at most so many bytes for a partition, or one output.
    #[must_use]
    pub fn new(most_bytes: u64, outputs: usize) -> Self {
        Self { most_bytes, addressed: Vec::with_capacity(outputs), full: HashMap::default() }
    }

    /// Adds output `index`, of so many bytes, behind those that have gone to the same partition.
    pub fn add(&mut self, (to, partition): (Destination, i32), index: usize, bytes: u64) {
        let (wave, taken) = self.full.entry((to, partition)).or_default();
        if *taken > 0 && taken.saturating_add(bytes) > self.most_bytes {
            (*wave, *taken) = (*wave + 1, 0);
        }
        *taken = taken.saturating_add(bytes);
        self.addressed.push(Addressed { wave: *wave, partition, to, index });
    }

    /// Nothing is added any more: the waves in their order.
    pub fn in_order(&mut self) -> impl Iterator<Item = Wave<'_>> {
        // Stable: outputs of one partition stay in their order.
        self.addressed.sort_by_key(Addressed::place);
        self.addressed.chunk_by(|one, other| one.wave == other.wave).map(Wave)
    }
}

/// Outputs that may be on their way to the brokers together. All of them must have been answered before those of the next.
#[derive(Debug, Clone, Copy)]
pub struct Wave<'w>(&'w [Addressed]);

impl<'w> Wave<'w> {
    /// Those for one partition after the other, in the order of the batch within each.
    pub fn partitions(self) -> impl Iterator<Item = &'w [Addressed]> {
        self.0.chunk_by(|one, other| one.place() == other.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Topic, partition and indexes of each group, wave by wave.
    fn groups(waves: &mut Waves) -> Vec<Vec<(Destination, i32, Vec<usize>)>> {
        let group = |group: &[Addressed]| (group[0].to, group[0].partition, group.iter().map(|at| at.index).collect());
        waves.in_order().map(|wave| wave.partitions().map(group).collect()).collect()
    }

    #[test]
    fn a_partition_has_at_most_so_many_bytes_a_wave_and_stays_in_order() {
        use Destination::{Approved, Suppressed};
        let mut waves = Waves::new(100, 8);
        let outputs = [
            (Approved, 1, 60),
            (Approved, 0, 40),
            (Suppressed, 1, 40),
            (Approved, 1, 40),
            (Approved, 0, 10),
            (Approved, 1, 1),
            (Suppressed, 1, 60),
            (Approved, 1, 99),
        ];
        for (index, (to, partition, bytes)) in outputs.into_iter().enumerate() {
            waves.add((to, partition), index, bytes);
        }
        let expected = [
            vec![(Approved, 0, vec![1, 4]), (Approved, 1, vec![0, 3]), (Suppressed, 1, vec![2, 6])],
            vec![(Approved, 1, vec![5, 7])],
        ];
        assert_eq!(groups(&mut waves), expected);
    }

    #[test]
    fn an_output_that_is_too_large_for_a_wave_has_one_of_its_own() {
        let mut waves = Waves::new(100, 4);
        for (index, bytes) in [500, 10, 500, 500].into_iter().enumerate() {
            waves.add((Destination::Approved, 3), index, bytes);
        }
        let one = |index| vec![(Destination::Approved, 3, vec![index])];
        assert_eq!(groups(&mut waves), [one(0), one(1), one(2), one(3)]);
    }

    #[test]
    fn what_goes_nowhere_is_no_wave() {
        assert!(Waves::new(100, 0).in_order().next().is_none());
    }
}
