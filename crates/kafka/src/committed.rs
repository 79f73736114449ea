//! What a group has committed, asked for without being a member of it. Blocks.

use std::time::{Duration, Instant};

use rdkafka::{
    TopicPartitionList,
    consumer::Consumer as _,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};

use super::{
    client::KafkaOptions,
    context::KafkaConsumer,
    offsets::next,
    topics::{ANSWER_TIMEOUT, TopicError, asking, metadata, missing, unanswered},
};

/// How long to wait before a group that has no coordinator yet is asked about again.
const COORDINATOR_WAIT: Duration = Duration::from_millis(200);

/// The partitions of the intents of which the group has committed an offset.
pub fn partitions(options: &KafkaOptions) -> Result<Vec<i32>, TopicError> {
    let consumer = reader(options)?;
    let all = partitions_of(options, &consumer, Some(&options.intents))?;
    if all.count() == 0 {
        return Err(missing(options, vec![options.intents.clone()]));
    }
    committed(options, &consumer, all)
}

/// Whether the group has committed an offset of the intents.
pub fn has_progress(options: &KafkaOptions) -> Result<bool, TopicError> {
    Ok(!partitions(options)?.is_empty())
}

/// Whether the group has decided intents before: it has committed an offset of the intents, or of any other topic that this user may
/// see. A topic may have been the intents before, or its name is mistyped now.
pub fn has_decided(options: &KafkaOptions) -> Result<bool, TopicError> {
    let consumer = reader(options)?;
    // The intents first: after the first start, there is no need to ask for more.
    for topic in [Some(options.intents.as_str()), None] {
        let asked = partitions_of(options, &consumer, topic)?;
        if asked.count() > 0 && !committed(options, &consumer, asked)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn reader(options: &KafkaOptions) -> Result<KafkaConsumer, TopicError> {
    // Not read_committed: what a killed worker left pending would hold up the answer, and so the start that ends it.
    let mut config = options.consumer();
    config.set("isolation.level", "read_uncommitted");
    asking(options, &config)
}

/// The partitions of a topic, or of all topics that this user may see.
fn partitions_of(
    options: &KafkaOptions,
    consumer: &KafkaConsumer,
    topic: Option<&str>,
) -> Result<TopicPartitionList, TopicError> {
    let metadata = metadata(options, consumer, topic)?;
    let mut partitions = TopicPartitionList::new();
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            partitions.add_partition(topic.name(), partition.id());
        }
    }
    Ok(partitions)
}

fn committed(
    options: &KafkaOptions,
    consumer: &KafkaConsumer,
    partitions: TopicPartitionList,
) -> Result<Vec<i32>, TopicError> {
    let unreachable = |error| unanswered(options, consumer, error);
    let found = offsets(consumer, &partitions).map_err(unreachable)?;
    let mut committed = Vec::new();
    for element in found.elements() {
        // What is not known is not "never": an error of one partition is one of all.
        element.error().map_err(unreachable)?;
        if next(element.offset()).is_some() {
            committed.push(element.partition());
        }
    }
    Ok(committed)
}

/// What the group has committed of these partitions. Asked again, up to [`ANSWER_TIMEOUT`], while no broker is the group's coordinator:
/// a new cluster makes its topic of offsets when it is asked for the first time, and librdkafka hands on what the broker says
/// meanwhile.
pub(super) fn offsets(consumer: &KafkaConsumer, partitions: &TopicPartitionList) -> KafkaResult<TopicPartitionList> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match consumer.committed_offsets(partitions.clone(), left) {
            Err(error) if left > COORDINATOR_WAIT && has_no_coordinator(&error) => {
                let _ = consumer.poll(COORDINATOR_WAIT);
            }
            outcome => return outcome,
        }
    }
}

fn has_no_coordinator(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotCoordinator
                | RDKafkaErrorCode::CoordinatorNotAvailable
                | RDKafkaErrorCode::CoordinatorLoadInProgress
        )
    )
}
