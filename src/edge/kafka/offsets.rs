//! Which partitions a topic has, and where a time begins in each: for what reads outside of the group.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};

use crate::domain::time::Time;

/// The partitions of a topic; none where there is no such topic. Waits so long for an answer.
pub(super) fn partitions_of(consumer: &BaseConsumer, topic: &str, wait: Duration) -> Result<Vec<i32>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), wait)?;
    Ok(metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id()).collect())
}

/// The first offset of each partition whose record is of this time or later, where there is one.
pub(super) fn offsets_at(
    consumer: &BaseConsumer,
    topic: &str,
    partitions: &[i32],
    time: Time,
    wait: Duration,
) -> Result<Vec<Option<i64>>, KafkaError> {
    let mut asked = TopicPartitionList::with_capacity(partitions.len());
    for &partition in partitions {
        asked.add_partition_offset(topic, partition, Offset::Offset(time.millis().max(0)))?;
    }
    let answered = consumer.offsets_for_times(asked, wait)?;
    let of = |partition: i32| match answered.find_partition(topic, partition) {
        None => Ok(None),
        Some(element) => {
            element.error()?;
            Ok(match element.offset() {
                Offset::Offset(offset) => Some(offset),
                Offset::Beginning | Offset::End | Offset::Stored | Offset::Invalid | Offset::OffsetTail(_) => None,
            })
        }
    };
    partitions.iter().map(|&partition| of(partition)).collect()
}
