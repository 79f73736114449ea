//! The lanes of a worker, and the wheels that some of them read.

use std::sync::Arc;

use backon::Retryable as _;

use weir_core::{
    deferral::wheel::{Ring, Wheel},
    ports::CommitTable,
};
use weir_kafka::{
    client::{KafkaOptions, WheelTopics},
    topics::{self, TopicError},
    wheel_topics,
};
use weir_redis::RedisStore;
use weir_worker::lane::Task;

use super::{ask_kafka, patience, redis::OpenRedis};
use crate::cli::{exit::UsageError, worker::LaneEnds};

/// The wheels: the one that intents are deferred to, then those before it. Makes sure that their topics are as they must be, and
/// that no wheel is left out that still has intents.
pub(super) async fn wheels(kafka: &Arc<KafkaOptions>, max_ms: i64) -> anyhow::Result<Vec<(WheelTopics, Wheel)>> {
    let mut wheels = Vec::new();
    ask_kafka(kafka, wheel_topics::none_left_behind).await.map_err(|error| match error.downcast() {
        Ok(error @ TopicError::LeftBehind { .. }) => UsageError(error.to_string()).into(),
        Ok(error) => error.into(),
        Err(error) => error,
    })?;
    if kafka.deferred.is_none() {
        return Ok(wheels);
    }
    // Topics that have just been created are not known to every broker yet.
    let partitions = (|| ask_kafka(kafka, topics::verify))
        .retry(patience())
        .when(|error: &anyhow::Error| matches!(error.downcast_ref(), Some(TopicError::Missing { .. })))
        .await?;
    let usage = |error: TopicError| UsageError(error.to_string());
    for topics in kafka.wheels() {
        wheels.push((topics.clone(), wheel_topics::wheel(topics, &partitions).map_err(usage)?));
    }
    // Also those before it: nothing new is deferred to them, but what is there may have as long to wait.
    for topics in kafka.wheels() {
        let verified = (|| wheel_topics::verify(kafka, topics, max_ms))
            .retry(patience())
            .when(|error| matches!(error, TopicError::Unreachable { .. }));
        match verified.await {
            Ok(()) => {}
            Err(error @ TopicError::Keeps { .. }) => return Err(usage(error).into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(wheels)
}

/// The lanes: those of the intents; of each wheel those that decide what is due and the one that moves what is deferred on; and
/// the one that defers deliveries that failed.
pub(super) fn lane_ends(
    kafka: &Arc<KafkaOptions>,
    (intents, due): (usize, &[usize]),
    wheels: &[(WheelTopics, Wheel)],
    redis: &OpenRedis,
) -> Vec<LaneEnds<RedisStore>> {
    let table = redis.commits(&kafka.group);
    let ends = |task, kafka: &Arc<KafkaOptions>, number, table: &Arc<dyn CommitTable>| LaneEnds {
        task,
        kafka: Arc::clone(kafka),
        number,
        commits: Some(Arc::clone(table)),
        store: redis.store(),
    };
    let mut lanes: Vec<_> = (0..intents).map(|number| ends(Task::Intents, kafka, number, &table)).collect();
    if wheels.is_empty() {
        return lanes;
    }
    let table = redis.commits(&kafka.later_group());
    let mut number = 0;
    for ((topics, wheel), due) in wheels.iter().zip(due) {
        let [hours, minutes] = Ring::ALL.map(|ring| Arc::new(kafka.for_ring(topics, ring)));
        let tasks = std::iter::repeat_n((Task::Due(*wheel), minutes), *due).chain([(Task::Move(*wheel), hours)]);
        for (task, kafka) in tasks {
            lanes.push(ends(task, &kafka, number, &table));
            number += 1;
        }
    }
    if let (Some(retries), Some((_, wheel))) = (kafka.for_retries().map(Arc::new), wheels.first()) {
        lanes.push(ends(Task::Retry(*wheel), &retries, 0, &redis.commits(&retries.group)));
    }
    lanes
}
