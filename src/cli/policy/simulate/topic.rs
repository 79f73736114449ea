//! Intents from a topic, in the order of their times.

use weir_core::basis::time::Time;
use weir_kafka::{
    client::KafkaOptions,
    range::{Between, RangeReader},
};

use super::{
    Input,
    past::{Batch, Past},
};

pub(super) struct TopicInput {
    reader: RangeReader,
    between: Between,
    first: Option<Time>,
    /// The first batch, which is read ahead to know the first time.
    ahead: Option<Batch>,
}

impl TopicInput {
    pub(super) fn open(kafka: &KafkaOptions, topic: &str, between: Between) -> anyhow::Result<Self> {
        let mut reader = RangeReader::open(kafka, topic, between)?;
        let mut ahead = Batch::default();
        fill(&mut reader, between, &mut ahead)?;
        let first = ahead.all().records.iter().filter_map(|record| record.timestamp).min();
        Ok(Self { reader, between, first, ahead: Some(ahead) })
    }
}

impl Input for TopicInput {
    fn first(&self) -> Option<Time> {
        self.first
    }

    fn records(&self) -> u64 {
        self.reader.records
    }

    fn next(&mut self, batch: &mut Batch) -> anyhow::Result<()> {
        match self.ahead.take() {
            Some(ahead) => *batch = ahead,
            None => fill(&mut self.reader, self.between, batch)?,
        }
        Ok(())
    }
}

fn fill(reader: &mut RangeReader, between: Between, batch: &mut Batch) -> anyhow::Result<()> {
    batch.clear();
    while !batch.is_full()
        && let Some(record) = reader.read()?
    {
        batch.taken += 1;
        // Where a producer names the times, a record between two of the range need not be of it.
        if record.timestamp.is_none_or(|time| between.covers(time)) {
            batch.push(Past::of(&record));
        }
    }
    Ok(())
}
