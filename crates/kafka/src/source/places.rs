//! Where the member is in its partitions: records that are taken, passed over or put back, and how many are not done.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{TopicPartitionList, consumer::Consumer, error::RDKafkaErrorCode};
use weir_core::{
    batch::record::{RecordView, Records as _},
    ports::SourceError,
};

use super::{KafkaSource, temporary};
use crate::{
    native::{self, MessageBatch},
    offsets::{bare_list, placed_list},
};

/// How long going back may take: the brokers are asked only where there is no committed offset.
const SEEK_TIMEOUT: Duration = Duration::from_secs(4);

impl KafkaSource {
    /// Takes at most `most` messages into a batch, and waits at most so long for them.
    pub(super) fn take(&mut self, batch: &mut MessageBatch, most: usize, wait: Duration) -> Result<(), SourceError> {
        let (mut refused, before) = (BTreeMap::new(), batch.len());
        for error in self.queues.fill(batch, most, wait) {
            if error.code == RDKafkaErrorCode::BadCompression {
                refused.insert(error.partition, error.offset);
            } else if error.code == RDKafkaErrorCode::PartitionEOF {
                self.ends_read.insert(error.partition, error.offset);
            } else {
                self.judge(error.code, Some(error.partition))?;
            }
        }
        self.pass_ends(batch, before);
        if refused.is_empty() { Ok(()) } else { self.pass_over(batch, &refused) }
    }

    /// Passes over the next record of partitions whose record batch cannot be inflated: what stands in for it becomes a dead letter.
    /// How many records there are in the batch is not known, so the next one is tried then, until the batch ends.
    fn pass_over(&mut self, batch: &mut MessageBatch, refused: &BTreeMap<i32, i64>) -> Result<(), SourceError> {
        let mut to = Vec::with_capacity(refused.len());
        for (&partition, &begin) in refused {
            let offset = self.reads_from.get(&partition).map_or(begin, |from| begin.max(*from));
            tracing::warn!(
                topic = self.topic,
                partition,
                offset,
                "a record is passed over: its batch cannot be decompressed, or inflates to more than receive.message.max.bytes"
            );
            batch.stand_in(partition, offset, self.options.inflated_bytes());
            to.push((partition, offset + 1));
        }
        self.earlier.begin(Instant::now());
        self.go_to_places(&to)
    }

    pub(super) fn go_to(&mut self, from: TopicPartitionList) -> Result<(), SourceError> {
        // No second assignment: it would end the first one, and with it the forwarding to our queue, after we had set it
        // up again. A seek discards fetched records. It fails on a partition that librdkafka has stopped.
        self.cannot_seek = true;
        from.elements().iter().for_each(|element| _ = self.ends_read.remove(&element.partition()));
        let sought =
            self.consumer.seek_partitions(from, SEEK_TIMEOUT).map_err(|error| temporary("no way back", &error))?;
        for element in sought.elements() {
            element.error().map_err(|error| temporary("no way back in a partition", &error))?;
        }
        self.cannot_seek = false;
        Ok(())
    }

    /// Reads partitions on from these offsets.
    fn go_to_places(&mut self, places: &[(i32, i64)]) -> Result<(), SourceError> {
        self.reads_from.extend(places.iter().copied());
        let to = placed_list(&self.topic, places).map_err(|error| temporary("an offset was refused", &error))?;
        self.go_to(to)
    }

    /// Takes records of these partitions out of a batch, from these offsets on, and reads the partitions no further.
    pub(super) fn put_back_now(&mut self, batch: &mut MessageBatch, from: &[(i32, i64)]) -> Result<(), SourceError> {
        batch.take_out(from);
        let partitions: Vec<i32> = from.iter().map(|(partition, _)| *partition).collect();
        let list = bare_list(&self.topic, &partitions);
        self.consumer.pause(&list).map_err(|error| temporary("partitions cannot be put back", &error))?;
        self.paused.extend(partitions);
        self.go_to_places(from)?;
        self.ends_read.extend(from.iter().copied());
        Ok(())
    }

    /// Reads on in all partitions that were put back.
    pub(super) fn resume_all(&mut self) -> Result<(), SourceError> {
        let paused: Vec<i32> = self.paused.iter().copied().collect();
        self.read_on(&paused)
    }

    pub(super) fn read_on(&mut self, partitions: &[i32]) -> Result<(), SourceError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let list = bare_list(&self.topic, partitions);
        self.consumer.resume(&list).map_err(|error| temporary("partitions cannot be read on", &error))?;
        partitions.iter().for_each(|partition| _ = self.paused.remove(partition));
        Ok(())
    }

    /// Forgets the ends that records of a batch lie behind, from this place on.
    pub(super) fn pass_ends(&mut self, batch: &MessageBatch, from: usize) {
        if self.ends_read.is_empty() {
            return;
        }
        for index in from..batch.len() {
            let RecordView { partition, offset, .. } = batch.get(index);
            if self.ends_read.get(&partition).is_some_and(|end| *end <= offset) {
                self.ends_read.remove(&partition);
            }
        }
    }

    /// How many records of each partition are not done.
    pub(super) fn not_done(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        let of = |partition: i32| {
            let (low, high) = native::known_offsets(&self.consumer, &self.topic_name, partition)?;
            let next = done.get(&partition).copied().unwrap_or(low);
            // What lies behind an end that was read cannot be read yet: records of a transaction that is open, and those behind them.
            let is_at_end = self.ends_read.get(&partition) == Some(&next) && !self.paused.contains(&partition);
            Some((partition, if is_at_end { 0 } else { (high - next).max(0) }))
        };
        self.assigned.elements().iter().filter_map(|element| of(element.partition())).collect()
    }
}
