//! Partitions that are not read for a while: their records are not due.

use std::time::Duration;

use rdkafka::{Offset, TopicPartitionList, consumer::Consumer};
use weir_core::ports::SourceError;

use super::{KafkaSource, temporary};
use crate::{lane_context::LaneContext, native::MessageBatch};

/// How long going back may take: the brokers are asked only where there is no committed offset.
const SEEK_TIMEOUT: Duration = Duration::from_secs(4);

impl KafkaSource {
    pub(super) fn go_to(&mut self, from: TopicPartitionList) -> Result<(), SourceError> {
        // Not a second assignment: its end of the first one would also end the forwarding to our queue, after we had
        // set it up anew. A seek discards fetched records. It fails on a partition that librdkafka has stopped.
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

    /// Takes records of these partitions out of a batch, from these offsets on, and reads the partitions no further.
    pub(super) fn put_back_now(
        &mut self,
        batch: &mut MessageBatch<LaneContext>,
        from: &[(i32, i64)],
    ) -> Result<(), SourceError> {
        batch.take_out(from);
        let partitions: Vec<i32> = from.iter().map(|(partition, _)| *partition).collect();
        let list = self.list(&partitions);
        self.consumer.pause(&list).map_err(|error| temporary("partitions cannot be put back", &error))?;
        self.paused.extend(partitions);
        let mut to = TopicPartitionList::with_capacity(from.len());
        for &(partition, offset) in from {
            to.add_partition_offset(&self.topic, partition, Offset::Offset(offset))
                .map_err(|error| temporary("an offset was refused", &error))?;
            self.reads_from.insert(partition, offset);
        }
        self.go_to(to)?;
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
        let list = self.list(partitions);
        self.consumer.resume(&list).map_err(|error| temporary("partitions cannot be read on", &error))?;
        partitions.iter().for_each(|partition| _ = self.paused.remove(partition));
        Ok(())
    }

    pub(super) fn list(&self, partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        list
    }
}
