//! Record batches that cannot be inflated.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{Offset, TopicPartitionList, error::RDKafkaErrorCode};
use weir_core::{batch::record::Records as _, ports::SourceError};

use super::{KafkaSource, temporary};
use crate::{lane_context::LaneContext, native::MessageBatch};

impl KafkaSource {
    /// Takes at most `most` messages into a batch, and waits at most so long for them.
    pub(super) fn take(
        &mut self,
        batch: &mut MessageBatch<LaneContext>,
        most: usize,
        wait: Duration,
    ) -> Result<(), SourceError> {
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
    fn pass_over(
        &mut self,
        batch: &mut MessageBatch<LaneContext>,
        refused: &BTreeMap<i32, i64>,
    ) -> Result<(), SourceError> {
        let mut to = TopicPartitionList::with_capacity(refused.len());
        for (&partition, &begin) in refused {
            let offset = self.reads_from.get(&partition).map_or(begin, |from| begin.max(*from));
            tracing::warn!(
                topic = self.topic,
                partition,
                offset,
                "a record is passed over: its batch cannot be decompressed, or inflates to more than receive.message.max.bytes"
            );
            batch.stand_in(partition, offset, self.options.inflated_bytes());
            self.reads_from.insert(partition, offset + 1);
            to.add_partition_offset(&self.topic, partition, Offset::Offset(offset + 1))
                .map_err(|error| temporary("an offset was refused", &error))?;
        }
        self.earlier.begin(Instant::now());
        self.go_to(to)
    }
}
