//! In which order a batch's outputs are handed to the producer's client, and which of them may be on their way together.
//!
//! While five records of a partition or more are on their way, the client sends no others for it. Where some wait behind them, its
//! thread does not sleep but asks whether the answer has come, over and over, which took an eighth of the worker's samples
//! (benches/NOTEBOOK.md). So what of a partition does not fit into one request waits here, and a partition's records are handed
//! over without others in between.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use weir_core::batch::record::Destination;

/// Records of a partition that the client has on its way at a time, though in several requests.
const SENT_TOGETHER: usize = 5;

/// What of a partition is handed over at a time, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundSize {
    /// In bytes. Five records may have more.
    pub bytes: u64,
    pub records: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    round: u32,
    pub partition: i32,
    pub to: Destination,
    /// Of the record, and of its output.
    pub index: usize,
}

impl Addressed {
    fn place(&self) -> (u32, i32, Destination) {
        (self.round, self.partition, self.to)
    }
}

/// The outputs of a batch, round by round, and in each partition by partition.
#[derive(Debug)]
pub struct ProduceRounds {
    most: RoundSize,
    addressed: Vec<Addressed>,
    last: HashMap<(Destination, i32), Last, RandomState>,
}

/// The last round of a partition so far.
#[derive(Debug, Default)]
struct Last {
    /// Its number, from 0.
    round: u32,
    bytes: u64,
    records: usize,
}

impl ProduceRounds {
    pub fn new(most: RoundSize, outputs: usize) -> Self {
        Self { most, addressed: Vec::with_capacity(outputs), last: HashMap::default() }
    }

    /// Adds output `index`, of so many bytes, behind those that have gone to the same partition.
    pub fn add(&mut self, (to, partition): (Destination, i32), index: usize, bytes: u64) {
        let last = self.last.entry((to, partition)).or_default();
        let full = last.bytes.saturating_add(bytes) > self.most.bytes && last.records >= SENT_TOGETHER;
        if full || last.records >= self.most.records {
            *last = Last { round: last.round + 1, ..Last::default() };
        }
        last.bytes = last.bytes.saturating_add(bytes);
        last.records += 1;
        self.addressed.push(Addressed { round: last.round, partition, to, index });
    }

    /// Nothing is added any more: the rounds in their order.
    pub fn in_order(&mut self) -> impl Iterator<Item = ProduceRound<'_>> {
        // Stable: outputs of one partition stay in their order.
        self.addressed.sort_by_key(Addressed::place);
        self.addressed.chunk_by(|one, other| one.round == other.round).map(ProduceRound)
    }
}

/// Outputs that may be on their way to the brokers together. All of them must have been answered before those of the next.
#[derive(Debug, Clone, Copy)]
pub struct ProduceRound<'w>(&'w [Addressed]);

impl<'w> ProduceRound<'w> {
    /// Those for one partition after the other, in the order of the batch within each.
    pub fn partitions(self) -> impl Iterator<Item = &'w [Addressed]> {
        self.0.chunk_by(|one, other| one.place() == other.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds of outputs for these places, of so many bytes each: topic, partition and indexes of each group.
    fn rounds(most: RoundSize, outputs: &[(Destination, i32, u64)]) -> Vec<Vec<(Destination, i32, Vec<usize>)>> {
        let mut rounds = ProduceRounds::new(most, outputs.len());
        for (index, (to, partition, bytes)) in outputs.iter().enumerate() {
            rounds.add((*to, *partition), index, *bytes);
        }
        let group = |group: &[Addressed]| (group[0].to, group[0].partition, group.iter().map(|at| at.index).collect());
        rounds.in_order().map(|round| round.partitions().map(group).collect()).collect()
    }

    #[test]
    fn a_partition_has_at_most_so_many_bytes_a_round_and_stays_in_order() {
        use Destination::Suppressed;
        const APPROVED: Destination = Destination::APPROVED;
        let most = RoundSize { bytes: 100, records: 100 };
        // By turns: 7 of 20 bytes for the one, one of 40 for another, 2 of 60 for the third.
        let [one, another, third] = [(APPROVED, 1, 20), (APPROVED, 0, 40), (Suppressed, 1, 60)];
        let outputs = [one, another, third, one, one, one, third, one, one, one];
        let expected = [
            vec![(APPROVED, 0, vec![1]), (APPROVED, 1, vec![0, 3, 4, 5, 7]), (Suppressed, 1, vec![2, 6])],
            vec![(APPROVED, 1, vec![8, 9])],
        ];
        assert_eq!(rounds(most, &outputs), expected);
    }

    #[test]
    fn a_round_has_at_most_so_many_records_and_five_large_outputs_go_together() {
        let few_bytes = RoundSize { bytes: 100, records: 100 };
        // The client does not wait between five.
        let five: [&[usize]; 3] = [&[0, 1, 2, 3, 4], &[5, 6, 7, 8, 9], &[10, 11]];
        let cases: [(RoundSize, u64, &[&[usize]]); 3] = [
            (few_bytes, 500, &five),
            (RoundSize { bytes: u64::MAX, records: 2 }, u64::MAX, &[&[0, 1], &[2]]),
            (few_bytes, 500, &[]),
        ];
        for (most, bytes, expected) in cases {
            let outputs = vec![(Destination::APPROVED, -1, bytes); expected.concat().len()];
            let one = |indexes: &&[usize]| vec![(Destination::APPROVED, -1, indexes.to_vec())];
            assert_eq!(rounds(most, &outputs), expected.iter().map(one).collect::<Vec<_>>());
        }
    }
}
