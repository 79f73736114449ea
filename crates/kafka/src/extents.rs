//! How far the partitions of a topic reach: asked without a group.

use std::{
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset,
    error::{KafkaError, RDKafkaErrorCode},
};
use weir_core::basis::time::Time;

use super::{
    client::KafkaOptions,
    context::KafkaConsumer,
    offsets::{ends, offsets_at, partitions_of},
    topics::{ANSWER_TIMEOUT, TopicError, asking, unseen},
};

/// How long offsets are waited for: a broker may have to fetch the files in which it looks a time up.
const OFFSETS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a topic is asked again while a partition changes its leader, and the pause between two questions.
const LEADER_PATIENCE: Duration = Duration::from_secs(15);
const LEADER_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No broker answers, or weir may not ask.
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("the topic {topic} does not exist at {brokers}: check its name")]
    Missing { brokers: String, topic: String },
    #[error("partition {partition} of {topic} cannot be read: {reason}")]
    Partition { topic: String, partition: i32, reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub partition: i32,
    pub from: i64,
    pub to: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub partition: i32,
    /// The first offset that is still there.
    pub low: i64,
    /// The first offset of a record of the time asked for, or later; `high` where there is none.
    pub since: i64,
    /// The next offset to be written, open transactions included.
    pub high: i64,
}

/// How far each partition of a topic reaches, ascending. Blocks.
pub fn extents(options: &KafkaOptions, topic: &str, since: Time) -> Result<Vec<Extent>, ReadError> {
    // Ends that open transactions do not hide.
    let found = bounds(options, (topic, "read_uncommitted"), (Some(since), None))?;
    Ok(found.into_iter().map(|(extent, _)| extent).collect())
}

/// From the first record of a time or later up to before the first one of another time or later: the spans of a topic's partitions,
/// ascending, without the empty ones. Without a time all that is there, up to the first open transaction. Blocks.
pub(super) fn spans_between(
    options: &KafkaOptions,
    topic: &str,
    between: (Option<Time>, Option<Time>),
) -> Result<Vec<Span>, ReadError> {
    let found = bounds(options, (topic, "read_committed"), between)?;
    let spans = found.into_iter().map(|(Extent { partition, since, .. }, to)| Span { partition, from: since, to });
    Ok(spans.filter(|span| span.from < span.to).collect())
}

/// Of each partition its extent since the first time, and the first offset of a record of the second one or later. Without a time it is
/// the first offset, or the end.
fn bounds(
    options: &KafkaOptions,
    (topic, isolation): (&str, &str),
    between: (Option<Time>, Option<Time>),
) -> Result<Vec<(Extent, i64)>, ReadError> {
    let mut config = options.client();
    config.set("isolation.level", isolation);
    let consumer = asking(options, &config)?;
    let found = while_leaders_change(|| bounds_now(&consumer, topic, between));
    let found = found.map_err(|error| unseen(options, &consumer, topic, error))?;
    if found.is_empty() {
        return Err(ReadError::Missing { brokers: options.brokers.clone(), topic: topic.to_owned() });
    }
    Ok(found)
}

fn bounds_now(
    consumer: &KafkaConsumer,
    topic: &str,
    (from, to): (Option<Time>, Option<Time>),
) -> Result<Vec<(Extent, i64)>, KafkaError> {
    let mut partitions = partitions_of(consumer, topic, ANSWER_TIMEOUT)?;
    partitions.sort_unstable();
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let ends_at = |which| ends(consumer, topic, &partitions, which, OFFSETS_TIMEOUT);
    let at = |time: Option<Time>| {
        time.map(|time| offsets_at(consumer, topic, &partitions, time, OFFSETS_TIMEOUT)).transpose()
    };
    // The ends before the times: a record that is written meanwhile may be the only one of its time, and is behind the end.
    let highs = ends_at(Offset::End)?;
    let (froms, tos) = (at(from)?, at(to)?);
    // The beginnings last: retention deletes records meanwhile.
    let lows = ends_at(Offset::Beginning)?;
    let of = |(place, &partition): (usize, &i32)| {
        let (low, high) = (lows[place], highs[place].max(lows[place]));
        let bound = |offsets: &Option<Vec<Option<i64>>>, none: i64| match offsets {
            None => none,
            // No record has that time or a later one.
            Some(offsets) => offsets[place].unwrap_or(high).clamp(low, high),
        };
        (Extent { partition, low, since: bound(&froms, low), high }, bound(&tos, high))
    };
    Ok(partitions.iter().enumerate().map(of).collect())
}

fn while_leaders_change<T>(mut ask: impl FnMut() -> Result<T, KafkaError>) -> Result<T, KafkaError> {
    let deadline = Instant::now() + LEADER_PATIENCE;
    loop {
        match ask() {
            Err(error) if is_of_a_change_of_leaders(&error) && Instant::now() < deadline => {
                tracing::debug!(%error, "a partition changes its leader");
                thread::park_timeout(LEADER_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Whether a partition has no leader now, or another one than its client or its broker knows, or one that does not know its end yet or
/// has lost its disk. Of a topic none of whose partitions has a leader librdkafka says that it does not know them.
fn is_of_a_change_of_leaders(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::FencedLeaderEpoch
                | RDKafkaErrorCode::UnknownLeaderEpoch
                | RDKafkaErrorCode::OffsetNotAvailable
                | RDKafkaErrorCode::ReplicaNotAvailable
                | RDKafkaErrorCode::KafkaStorageError
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_asked_again_while_a_partition_changes_its_leader_and_for_nothing_else() {
        let ask = |errors: &[RDKafkaErrorCode]| {
            let mut answers = errors.iter().map(|code| Err(KafkaError::OffsetFetch(*code))).chain([Ok(())]);
            let answer = while_leaders_change(|| answers.next().unwrap());
            (answer.map_err(|error| error.rdkafka_error_code()), answers.count())
        };
        assert_eq!(ask(&[RDKafkaErrorCode::NotLeaderForPartition, RDKafkaErrorCode::OffsetNotAvailable]), (Ok(()), 0));
        assert_eq!(ask(&[RDKafkaErrorCode::UnknownPartition, RDKafkaErrorCode::KafkaStorageError]), (Ok(()), 0));
        let denied = RDKafkaErrorCode::TopicAuthorizationFailed;
        assert_eq!(ask(&[denied]), (Err(Some(denied)), 1));
    }
}
