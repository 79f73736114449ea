//! Which partitions a topic has, where they begin and end, where a time begins in each; and offsets as they are committed.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use weir_core::{origin::TopicId, time::Time};

use super::rights::Right;

/// The partitions of a topic; none where there is no such topic, and an error where it may not be seen. Waits so long for
/// an answer.
pub(super) fn partitions_of<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    wait: Duration,
) -> Result<Vec<i32>, KafkaError> {
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
    list_offsets(consumer, topic, partitions, Offset::Offset(time.millis().max(0)), wait)
}

/// An end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logical {
    /// The first offset that is still there.
    Earliest,
    /// The offset behind the last record that a reader sees.
    Latest,
}

/// This end of each partition.
pub(super) fn ends<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partitions: &[i32],
    which: Logical,
    wait: Duration,
) -> Result<Vec<i64>, KafkaError> {
    let asked = match which {
        Logical::Earliest => Offset::Beginning,
        Logical::Latest => Offset::End,
    };
    let found = list_offsets(consumer, topic, partitions, asked, wait)?;
    let found: Option<Vec<i64>> = found.into_iter().collect();
    // A broker that does not say has no leader for it now.
    found.ok_or(KafkaError::OffsetFetch(RDKafkaErrorCode::LeaderNotAvailable))
}

/// Asks brokers for an offset of each partition: a time's in milliseconds, or an end.
fn list_offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partitions: &[i32],
    of: Offset,
    wait: Duration,
) -> Result<Vec<Option<i64>>, KafkaError> {
    let mut asked = TopicPartitionList::with_capacity(partitions.len());
    for &partition in partitions {
        asked.add_partition_offset(topic, partition, of)?;
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

/// Offsets as they are committed: partition, offset, and what waits before it. The topic's id comes beside each.
pub(super) fn list<'o>(
    topic: &str,
    id: TopicId,
    offsets: impl Iterator<Item = (i32, i64, Option<&'o str>)>,
) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (partition, next_offset, metadata) in offsets {
        let mut element = list.add_partition(topic, partition);
        element.set_offset(Offset::Offset(next_offset))?;
        element.set_metadata(metadata_text(id, metadata));
    }
    Ok(list)
}

/// What stands before the id of a topic in the metadata of an offset; the rest comes behind a blank.
const TOPIC_ID: &str = "topic-id=";

fn metadata_text(id: TopicId, rest: Option<&str>) -> String {
    match (id, rest) {
        (TopicId::UNKNOWN, rest) => rest.unwrap_or_default().to_owned(),
        (id, None) => format!("{TOPIC_ID}{id}"),
        (id, Some(rest)) => format!("{TOPIC_ID}{id} {rest}"),
    }
}

/// What is committed beside an offset, without the topic's id. Kafka's own tools commit none: such an offset is of any topic.
///
/// # Errors
/// It was committed for the topic of this other id.
pub(super) fn metadata_of_topic(text: Option<&str>, id: TopicId) -> Result<Option<String>, TopicId> {
    let Some(tagged) = text.and_then(|text| text.strip_prefix(TOPIC_ID)) else { return Ok(text.map(str::to_owned)) };
    let (tag, rest) = tagged.split_once(' ').map_or((tagged, None), |(tag, rest)| (tag, Some(rest)));
    match TopicId::of_text(tag) {
        Some(other) if other != id && id != TopicId::UNKNOWN => Err(other),
        Some(_) | None => Ok(rest.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_tells_of_which_topic_it_is_unless_somebody_else_has_committed_it() {
        let (one, other) = (TopicId(1), TopicId(2));
        for rest in [None, Some("{\"weir\":\"parked/1\", \"x\": 1}")] {
            let text = metadata_text(one, rest);
            let rest = rest.map(str::to_owned);
            assert_eq!(metadata_of_topic(Some(&text), one), Ok(rest.clone()));
            assert_eq!(metadata_of_topic(Some(&text), TopicId::UNKNOWN), Ok(rest));
            assert_eq!(metadata_of_topic(Some(&text), other), Err(one));
        }
        assert_eq!(metadata_text(TopicId::UNKNOWN, None), "");
        assert_eq!(metadata_of_topic(None, one), Ok(None));
        assert_eq!(metadata_of_topic(Some("somebody's"), one), Ok(Some("somebody's".to_owned())));
    }
}
