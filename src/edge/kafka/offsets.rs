//! Which partitions a topic has, and where a time begins in each: for what reads outside of the group.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};

use super::rights::Right;
use crate::domain::time::Time;

/// The partitions of a topic; none where there is no such topic, and an error where it may not be seen. Waits so long for
/// an answer.
pub(super) fn partitions_of(consumer: &BaseConsumer, topic: &str, wait: Duration) -> Result<Vec<i32>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), wait)?;
    // Else a topic that may not be seen would be one that is not there.
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    if metadata.topics().iter().any(|found| found.error() == Some(denied)) {
        return Err(KafkaError::MetadataFetch(denied.into()));
    }
    Ok(metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id()).collect())
}

/// The right that is missing where a topic cannot be read, if that is why.
pub(super) fn right_to_read(error: &KafkaError, topic: &str) -> Option<Right> {
    let denied = error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed);
    denied.then(|| Right::ReadTopic(topic.to_owned()))
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
