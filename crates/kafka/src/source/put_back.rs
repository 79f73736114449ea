//! Partitions that are not read for a while: their records are not due.

use rdkafka::{Offset, TopicPartitionList, consumer::Consumer};
use weir_core::ports::SourceError;

use super::{KafkaSource, temporary};
use crate::{lane_context::LaneContext, native::MessageBatch};

impl KafkaSource {
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
        self.go_to(to)
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

    fn list(&self, partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        list
    }
}
