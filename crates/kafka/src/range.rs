//! Reads what a topic holds between two times, merged by time over its partitions: outside of the group, and without
//! committing anything.

use std::time::Duration;

use weir_core::{
    basis::time::Time,
    batch::record::{RecordView, Records as _},
};

use super::{
    client::KafkaOptions,
    extents::{ReadError, spans_between},
    partition_reader::{PartitionBatch, PartitionReader},
};

/// How long records of one partition are waited for at a time.
const SLICE: Duration = Duration::from_millis(100);
/// Records of one partition that are taken together.
const TAKE: usize = 500;

/// From a time until before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Between {
    /// `None`: from the beginning.
    pub from: Option<Time>,
    /// `None`: up to what is there now.
    pub to: Option<Time>,
}

impl Between {
    pub fn covers(&self, time: Time) -> bool {
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }
}

/// Records of one partition, and which of them comes next.
struct PartitionPart {
    batch: PartitionBatch,
    next: usize,
}

pub struct RangeReader {
    parts: Vec<PartitionPart>,
    reader: PartitionReader,
    /// How many records it gives in all, at most: transactions' markers are among the offsets.
    pub records: u64,
}

impl RangeReader {
    /// Looks up the offsets and starts to read, in each partition from the first record of the time or later. Blocks.
    pub fn open(options: &KafkaOptions, topic: &str, between: Between) -> Result<Self, ReadError> {
        let spans = spans_between(options, topic, (between.from, between.to))?;
        let reader = PartitionReader::apart(options, topic, &spans)?;
        let parts = spans.iter().map(|_| PartitionPart { batch: reader.batch(), next: 0 }).collect();
        let records = spans.iter().map(|span| (span.to - span.from).unsigned_abs()).sum();
        Ok(Self { parts, reader, records })
    }

    /// The next record: of the partitions' next ones the earliest. `None` at the end. Blocks.
    pub fn read(&mut self) -> Result<Option<RecordView<'_>>, ReadError> {
        let mut earliest: Option<(Option<Time>, usize)> = None;
        for place in 0..self.parts.len() {
            if !self.fill(place)? {
                continue;
            }
            let part = &self.parts[place];
            let time = part.batch.get(part.next).timestamp;
            if earliest.is_none_or(|(other, _)| time < other) {
                earliest = Some((time, place));
            }
        }
        let Some((_, place)) = earliest else { return Ok(None) };
        let part = &mut self.parts[place];
        part.next += 1;
        Ok(Some(part.batch.get(part.next - 1)))
    }

    /// Makes sure that a partition has a next record; `false` where it has ended.
    fn fill(&mut self, place: usize) -> Result<bool, ReadError> {
        let part = &mut self.parts[place];
        while part.next >= part.batch.len() {
            let Some(batch) = self.reader.read_queue(place, (1, TAKE), SLICE)? else { return Ok(false) };
            *part = PartitionPart { batch, next: 0 };
        }
        Ok(true)
    }
}
