//! Intents from a topic, in the order of their times.

use weir_kafka::{
    client::KafkaOptions,
    range::{Between, RangeReader},
};

use super::{
    Input,
    past::{Batch, Past},
};

pub(super) fn input(kafka: &KafkaOptions, topic: &str, between: Between) -> anyhow::Result<Input> {
    let mut reader = RangeReader::open(kafka, topic, between)?;
    // The first batch is read ahead to know the first time.
    let mut ahead = Batch::default();
    fill(&mut reader, between, &mut ahead)?;
    let first = ahead.all().records.iter().filter_map(|record| record.timestamp).min();
    let (records, mut ahead) = (reader.records, Some(ahead));
    let next = move |batch: &mut Batch| match ahead.take() {
        Some(ahead) => {
            *batch = ahead;
            Ok(())
        }
        None => fill(&mut reader, between, batch),
    };
    Ok(Input { first, records, next: Box::new(next) })
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
