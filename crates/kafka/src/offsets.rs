//! Which partitions a topic has, where they begin and end, where a time begins in each; and offsets as they are committed.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use weir_core::{
    basis::{origin::TopicId, time::Time},
    batch::record::Progress,
};

use super::context::KafkaConsumer;

/// The partitions of a topic; none where there is no such topic, and an error where it may not be seen. Waits so long for
/// an answer.
pub(super) fn partitions_of(consumer: &KafkaConsumer, topic: &str, wait: Duration) -> Result<Vec<i32>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), wait)?;
    // Else a topic that may not be seen would be one that is not there.
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    if metadata.topics().iter().any(|found| found.error() == Some(denied)) {
        return Err(KafkaError::MetadataFetch(denied.into()));
    }
    Ok(metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id()).collect())
}

/// The first offset of each partition whose record is of this time or later, where there is one.
pub(super) fn offsets_at(
    consumer: &KafkaConsumer,
    topic: &str,
    partitions: &[i32],
    time: Time,
    wait: Duration,
) -> Result<Vec<Option<i64>>, KafkaError> {
    list_offsets(consumer, topic, partitions, Offset::Offset(time.millis().max(0)), wait)
}

/// `Beginning`: the first offset of each partition that is still there; `End`: the one behind the last record that a reader sees.
pub(super) fn ends(
    consumer: &KafkaConsumer,
    topic: &str,
    partitions: &[i32],
    which: Offset,
    wait: Duration,
) -> Result<Vec<i64>, KafkaError> {
    let found = list_offsets(consumer, topic, partitions, which, wait)?;
    let found: Option<Vec<i64>> = found.into_iter().collect();
    // A broker that does not say has no leader for it now.
    found.ok_or(KafkaError::OffsetFetch(RDKafkaErrorCode::LeaderNotAvailable))
}

/// Asks brokers for an offset of each partition: a time's in milliseconds, or an end.
fn list_offsets(
    consumer: &KafkaConsumer,
    topic: &str,
    partitions: &[i32],
    of: Offset,
    wait: Duration,
) -> Result<Vec<Option<i64>>, KafkaError> {
    let mut asked = TopicPartitionList::with_capacity(partitions.len());
    for &partition in partitions {
        asked.add_partition_offset(topic, partition, of)?;
    }
    offsets_in(&consumer.offsets_for_times(asked, wait)?, topic, partitions)
}

/// The offset that an answer has of each partition.
pub(super) fn offsets_in(
    answer: &TopicPartitionList,
    topic: &str,
    partitions: &[i32],
) -> Result<Vec<Option<i64>>, KafkaError> {
    let of = |&partition: &i32| match answer.find_partition(topic, partition) {
        None => Ok(None),
        Some(element) => element.error().map(|()| next(element.offset())),
    };
    partitions.iter().map(of).collect()
}

/// Partitions of a topic, without offsets.
pub(super) fn bare_list(topic: &str, partitions: &[i32]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    partitions.iter().for_each(|partition| _ = list.add_partition(topic, *partition));
    list
}

/// Partitions of a topic, each with an offset.
pub(super) fn placed_list(topic: &str, places: &[(i32, i64)]) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for &(partition, offset) in places {
        list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    }
    Ok(list)
}

/// The number of an offset, which has none where there is nothing.
pub(super) fn next(offset: Offset) -> Option<i64> {
    match offset {
        Offset::Offset(next) => Some(next),
        Offset::Beginning | Offset::End | Offset::Stored | Offset::Invalid | Offset::OffsetTail(_) => None,
    }
}

/// Offsets as they are committed: partition and next offset. The topic's id comes beside each, as its metadata.
pub(super) fn list(topic: &str, id: TopicId, progress: &[Progress]) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    for done in progress {
        let mut element = list.add_partition(topic, done.partition);
        element.set_offset(Offset::Offset(done.next_offset))?;
        element.set_metadata(metadata_text(id));
    }
    Ok(list)
}

/// What stands before the id of a topic in the metadata of an offset.
const TOPIC_ID: &str = "topic-id=";

fn metadata_text(id: TopicId) -> String {
    if id == TopicId::UNKNOWN { String::new() } else { format!("{TOPIC_ID}{id}") }
}

/// The other topic that an offset was committed for, if that is what stands beside it. Kafka's own tools commit nothing there:
/// such an offset is of any topic.
pub(super) fn of_other_topic(text: Option<&str>, id: TopicId) -> Option<TopicId> {
    let committed = TopicId::of_text(text?.strip_prefix(TOPIC_ID)?)?;
    (committed != id && id != TopicId::UNKNOWN).then_some(committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_tells_of_which_topic_it_is_unless_somebody_else_has_committed_it() {
        let (one, other) = (TopicId(1), TopicId(2));
        let text = metadata_text(one);
        let of = |id| of_other_topic(Some(&text), id);
        assert_eq!([of(one), of(TopicId::UNKNOWN), of(other)], [None, None, Some(one)]);
        assert_eq!(metadata_text(TopicId::UNKNOWN), "");
        assert_eq!([of_other_topic(None, one), of_other_topic(Some("somebody's"), one)], [None, None]);
    }
}
