//! Topics are made where the user allows it. The controller accepts a new topic before brokers learn of it: it is waited until all of
//! them know it.

use std::{
    ffi::CString,
    time::{Duration, Instant},
};

use rdkafka::{
    admin::{AdminOptions, NewTopic, TopicReplication},
    consumer::Consumer as _,
    error::RDKafkaErrorCode,
};

use super::{
    client::KafkaOptions,
    native::answers::Answers,
    rights::Right,
    topic_settings,
    topics::{ANSWER_TIMEOUT, TopicError, admin, asking, blocking, metadata, not_allowed},
    wheel_topics,
};

/// The largest record of an output topic that is made here, in bytes: twice the default of a topic of intents.
const OUTPUT_MAX_BYTES: &str = "2097152";

/// How long brokers may take to learn of a new topic. On a busy machine it is seconds.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// The pause before a broker that does not know a topic is asked again.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Whether a broker says that it does not know a topic, which it may learn of yet.
pub(super) fn is_not_known_yet(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::LeaderNotAvailable
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Configured,
    Waiting,
}

/// Partitions of a topic of waiting intents, at least: two campaigns of many then seldom share one.
const WAITING_PARTITIONS: i32 = 32;

#[derive(Debug, Clone, Copy)]
pub struct NewTopics {
    pub partitions: i32,
    /// Partitions of a bucket, of topics that intents are deferred to.
    pub shares: u16,
    /// How long the topics that a rebuild reads keep their records at the least, in milliseconds: `redis.history`.
    pub retention_ms: i64,
}

/// Makes the topics that are missing, with the broker's default replication, and waits until all brokers know them.
pub async fn create(
    options: &KafkaOptions,
    (topics, holds): (&[String], Holds),
    how: NewTopics,
) -> Result<(), TopicError> {
    let (retention, deferred) = (how.retention_ms.to_string(), wheel_topics::RETENTION_MS.to_string());
    let rebuilt_from = topic_settings::rebuilt_from(options);
    let wanted: Vec<NewTopic<'_>> = topics
        .iter()
        .map(|topic| {
            let of_wheel = wheel_topics::partitions(options, topic, how.shares);
            let partitions = match holds {
                Holds::Configured => of_wheel.unwrap_or(how.partitions),
                Holds::Waiting => how.partitions.max(WAITING_PARTITIONS),
            };
            let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
            if of_wheel.is_some() || holds == Holds::Waiting {
                new = new.set(topic_settings::RETENTION_MS, &deferred).set("cleanup.policy", "delete");
                new = new.set("retention.bytes", "-1");
            }
            // An output is larger than its intent.
            if *topic != options.intents {
                new = new.set("max.message.bytes", OUTPUT_MAX_BYTES);
            }
            if rebuilt_from.contains(&topic.as_str()) {
                new = new.set(topic_settings::RETENTION_MS, &retention);
            }
            new
        })
        .collect();
    let settings = AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT));
    let results = admin(options)?
        .create_topics(&wanted, &settings)
        .await
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), reason: error.to_string() })?;
    for result in results {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed)) => {
                return Err(not_allowed(options, vec![Right::CreateTopic(topic)]));
            }
            Err((topic, code)) => return Err(TopicError::NotMade { topic, reason: not_made(code) }),
        }
    }
    known_by_all(options, topics).await
}

/// Why a topic was not made, and what to do where that is known: the client hands on the broker's code without its words.
fn not_made(code: RDKafkaErrorCode) -> String {
    let advice = if code == RDKafkaErrorCode::InvalidReplicationFactor {
        ". The cluster has fewer brokers than its default.replication.factor: wait until all have started and run the command again, or lower it"
    } else if code == RDKafkaErrorCode::PolicyViolation {
        ". A policy of the cluster refuses it, such as one for numbers of partitions (kafka.create_partitions): ask its operators, or create \
         the topic by their rules"
    } else if code == RDKafkaErrorCode::NotController {
        ". The cluster is choosing its controller: run the command again"
    } else {
        ""
    };
    format!("{code}{advice}")
}

/// Waits until every broker that answers knows these topics.
async fn known_by_all(options: &KafkaOptions, topics: &[String]) -> Result<(), TopicError> {
    let begun = Instant::now();
    loop {
        let (asked, wanted) = (options.clone(), topics.to_vec());
        let unknown = blocking(move || unknown(&asked, &wanted)).await?;
        if unknown.is_empty() {
            return Ok(());
        }
        if begun.elapsed() >= KNOWN_WITHIN {
            let brokers = options.brokers.clone();
            return Err(TopicError::NotKnown { brokers, topics: unknown, within: KNOWN_WITHIN });
        }
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
}

/// Those of these topics that a broker does not know. Blocks.
fn unknown(options: &KafkaOptions, topics: &[String]) -> Result<Vec<String>, TopicError> {
    let consumer = asking(options, &options.client())?;
    let metadata = metadata(options, &consumer, None)?;
    let mut asked = Vec::new();
    for topic in topics {
        let name = CString::new(topic.as_str()).map_err(|error| TopicError::Client(error.to_string()))?;
        for broker in metadata.brokers() {
            let answers = Answers::new(consumer.client()).map_err(TopicError::Client)?;
            answers.ask_topic_id(consumer.client(), &name, Some(broker.id()), ANSWER_TIMEOUT);
            asked.push((topic, answers));
        }
    }
    let mut unknown: Vec<String> = Vec::new();
    for (topic, answers) in asked {
        // No broker that is unavailable or refuses is waited for.
        let answer = answers.topic_id(ANSWER_TIMEOUT);
        if answer.and_then(Result::err).is_some_and(is_not_known_yet) && unknown.last() != Some(topic) {
            unknown.push(topic.clone());
        }
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster that is starting, as in <https://github.com/wurstmeister/kafka-docker/issues/399>, or too small, as in
    /// <https://github.com/strimzi/strimzi-kafka-operator/issues/990>.
    #[test]
    fn a_topic_that_a_cluster_does_not_make_is_told_with_what_to_do() {
        for (code, advice) in [
            (RDKafkaErrorCode::InvalidReplicationFactor, "wait until all have started"),
            (RDKafkaErrorCode::PolicyViolation, "kafka.create_partitions"),
            (RDKafkaErrorCode::NotController, "run the command again"),
        ] {
            let told = not_made(code);
            assert!(told.starts_with(&code.to_string()) && told.contains(advice), "{told}");
        }
        assert_eq!(not_made(RDKafkaErrorCode::InvalidRequest), RDKafkaErrorCode::InvalidRequest.to_string());
    }
}
