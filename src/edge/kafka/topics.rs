//! The topics that a worker needs: looked at before the start, made where the user allows it.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};

use super::client::KafkaOptions;

/// How long one answer of a broker may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest record of an output topic that is made here, in bytes: twice the default of a topic of intents.
const OUTPUT_MAX_BYTES: &str = "2097152";

/// What is wrong with the topics, or why that is not known.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// No broker answered.
    #[error(
        "no answer from Kafka at {brokers}: {error}. Check kafka.brokers, the network, and TLS and SASL in [kafka.properties]"
    )]
    Unreachable {
        /// Where.
        brokers: String,
        /// What the client says.
        error: KafkaError,
    },
    /// Topics are missing.
    #[error("the topics {} do not exist at {brokers}: create them, or set kafka.create_topics = true for development", topics.join(", "))]
    Missing {
        /// Where.
        brokers: String,
        /// Which.
        topics: Vec<String>,
    },
    /// A topic could not be made.
    #[error("the topic {topic} could not be created: {reason}")]
    NotMade {
        /// Which.
        topic: String,
        /// Why.
        reason: String,
    },
    /// The client could not be made.
    #[error("the Kafka client cannot be made: {0}. Check [kafka.properties]")]
    Client(KafkaError),
}

/// Partitions of each topic.
pub type Partitions = BTreeMap<String, usize>;

/// The topics that must exist, with their number of partitions.
///
/// # Errors
/// A broker cannot be asked, or topics are missing.
pub fn verify(options: &KafkaOptions) -> Result<Partitions, TopicError> {
    let consumer: BaseConsumer = options.client().create().map_err(TopicError::Client)?;
    let unreachable = |error| TopicError::Unreachable { brokers: options.brokers.clone(), error };
    let metadata = consumer.fetch_metadata(None, ANSWER_TIMEOUT).map_err(unreachable)?;
    let known: Partitions =
        metadata.topics().iter().map(|topic| (topic.name().to_owned(), topic.partitions().len())).collect();
    let (mut found, mut missing) = (Partitions::new(), Vec::new());
    for topic in options.topics().into_iter().chain(options.refunds.as_deref()) {
        match known.get(topic) {
            Some(&partitions) if partitions > 0 => {
                found.insert(topic.to_owned(), partitions);
            }
            Some(_) | None => missing.push(topic.to_owned()),
        }
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(TopicError::Missing { brokers: options.brokers.clone(), topics: missing })
    }
}

/// Whether the group has decided intents before: it has committed an offset of a partition of the intents.
///
/// # Errors
/// A broker cannot be asked.
pub fn has_progress(options: &KafkaOptions) -> Result<bool, TopicError> {
    let unreachable = |error| TopicError::Unreachable { brokers: options.brokers.clone(), error };
    // Not read_committed: what a killed worker left pending would hold up the answer, and so the start that ends it.
    let mut config = options.consumer();
    config.set("isolation.level", "read_uncommitted");
    let consumer: BaseConsumer = config.create().map_err(TopicError::Client)?;
    let metadata = consumer.fetch_metadata(Some(&options.intents), ANSWER_TIMEOUT).map_err(unreachable)?;
    let mut partitions = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        partitions.add_partition(&options.intents, partition.id());
    }
    if partitions.count() == 0 {
        return Err(TopicError::Missing { brokers: options.brokers.clone(), topics: vec![options.intents.clone()] });
    }
    let committed = consumer.committed_offsets(partitions, ANSWER_TIMEOUT).map_err(unreachable)?;
    // What is not known is not "never": an error of one partition is one of all.
    for element in committed.elements() {
        element.error().map_err(unreachable)?;
    }
    Ok(committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
}

fn admin(options: &KafkaOptions) -> Result<AdminClient<DefaultClientContext>, TopicError> {
    options.client().create().map_err(TopicError::Client)
}

/// Makes the topics that are missing, with the broker's default replication.
///
/// # Errors
/// A topic could not be made.
pub async fn create(options: &KafkaOptions, topics: &[String], partitions: i32) -> Result<(), TopicError> {
    let new = |topic| NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    let wanted: Vec<NewTopic<'_>> = topics
        .iter()
        .map(|topic| {
            // An output is larger than its intent.
            if *topic == options.intents { new(topic) } else { new(topic).set("max.message.bytes", OUTPUT_MAX_BYTES) }
        })
        .collect();
    let settings = AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT));
    let results = admin(options)?
        .create_topics(&wanted, &settings)
        .await
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), error })?;
    for result in results {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => return Err(TopicError::NotMade { topic, reason: code.to_string() }),
        }
    }
    Ok(())
}

/// The largest record that each topic takes, in bytes, as far as the broker tells.
///
/// # Errors
/// The broker cannot be asked, or does not allow it.
pub async fn max_message_bytes(options: &KafkaOptions) -> Result<BTreeMap<String, u64>, TopicError> {
    let topics = options.topics();
    let resources: Vec<ResourceSpecifier<'_>> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let settings = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
    let answers = admin(options)?
        .describe_configs(&resources, &settings)
        .await
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), error })?;
    let mut sizes = BTreeMap::new();
    for (topic, answer) in topics.iter().zip(answers) {
        let value = answer.ok().and_then(|config| {
            config.entries.into_iter().find(|entry| entry.name == "max.message.bytes").and_then(|entry| entry.value)
        });
        if let Some(bytes) = value.and_then(|value| value.parse().ok()) {
            sizes.insert((*topic).to_owned(), bytes);
        }
    }
    Ok(sizes)
}
