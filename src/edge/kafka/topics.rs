//! The topics that a worker needs: looked at before the start, made where the user allows it.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};

use super::{
    client::{KafkaOptions, not_made},
    rights::{Right, Rights},
    witness::Witness,
};

/// How long one answer of a broker may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many lines of its log a client that failed is asked for.
const MAX_EVENTS: usize = 128;

/// The largest record of an output topic that is made here, in bytes: twice the default of a topic of intents.
const OUTPUT_MAX_BYTES: &str = "2097152";

/// What is wrong with the topics, or why that is not known.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// No broker answered.
    #[error(
        "no answer from Kafka at {brokers}: {reason}. Check kafka.brokers, the network, and TLS and SASL in [kafka.properties]"
    )]
    Unreachable {
        /// Where.
        brokers: String,
        /// What the client says, and why the last connection failed.
        reason: String,
    },
    /// The broker does not know who asks, or one of the two does not trust the other.
    #[error(
        "Kafka at {brokers} and weir do not trust each other: {cause}. Check security.protocol, sasl.mechanism, \
         sasl.username and sasl.password, or ssl.ca.location, ssl.certificate.location and ssl.key.location, in \
         [kafka.properties]"
    )]
    NotLetIn {
        /// Where.
        brokers: String,
        /// What the client says.
        cause: String,
    },
    /// Rights are missing.
    #[error(
        "Kafka at {brokers} does not let weir do what it has to: grant {} (docs/security.md)",
        rights.iter().map(ToString::to_string).collect::<Vec<_>>().join(", and ")
    )]
    NotAllowed {
        /// Where.
        brokers: String,
        /// Which.
        rights: Vec<Right>,
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
    Client(String),
}

/// Partitions of each topic.
pub type Partitions = BTreeMap<String, usize>;

/// The topics that must exist, with their number of partitions.
///
/// # Errors
/// A broker cannot be asked, or topics are missing.
pub fn verify(options: &KafkaOptions) -> Result<Partitions, TopicError> {
    let consumer = asking(&options.client())?;
    let metadata =
        consumer.fetch_metadata(None, ANSWER_TIMEOUT).map_err(|error| unanswered(options, &consumer, error))?;
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
    let hidden = hidden(options, &consumer, &missing)?;
    if !hidden.is_empty() {
        return Err(not_allowed(options, hidden));
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(TopicError::Missing { brokers: options.brokers.clone(), topics: missing })
    }
}

/// The rights on those of these topics that are not listed because this user may not see them.
fn hidden(options: &KafkaOptions, consumer: &Asking, topics: &[String]) -> Result<Vec<Right>, TopicError> {
    let mut rights = Vec::new();
    for topic in topics {
        let metadata = consumer
            .fetch_metadata(Some(topic), ANSWER_TIMEOUT)
            .map_err(|error| unanswered(options, consumer, error))?;
        let error = metadata.topics().first().and_then(|topic| topic.error()).map(RDKafkaErrorCode::from);
        if error == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
            let reads = *topic == options.intents || Some(topic) == options.refunds.as_ref();
            rights.push(if reads { Right::ReadTopic(topic.clone()) } else { Right::WriteTopics(vec![topic.clone()]) });
        }
    }
    Ok(rights)
}

type Asking = BaseConsumer<Witness>;

fn asking(config: &ClientConfig) -> Result<Asking, TopicError> {
    config.create_with_context(Witness::default()).map_err(|error| TopicError::Client(not_made(&error)))
}

/// Why there is no answer.
fn unanswered(options: &KafkaOptions, consumer: &Asking, error: KafkaError) -> TopicError {
    // What librdkafka logs waits in a queue until somebody polls.
    for _ in 0..MAX_EVENTS {
        let _ = consumer.poll(Duration::ZERO);
    }
    let (brokers, witness) = (options.brokers.clone(), consumer.context());
    let denied = [error.rdkafka_error_code(), witness.denied()].into_iter().flatten();
    if let Some(right) = denied.into_iter().find_map(|code| Rights::of(options, 0).to_read(code)) {
        return TopicError::NotAllowed { brokers, rights: vec![right] };
    }
    match witness.refusal() {
        Some(cause) => TopicError::NotLetIn { brokers, cause },
        None => {
            let cause = witness.cause().map(|cause| format!(" ({cause})")).unwrap_or_default();
            TopicError::Unreachable { brokers, reason: format!("{error}{cause}") }
        }
    }
}

fn not_allowed(options: &KafkaOptions, rights: Vec<Right>) -> TopicError {
    TopicError::NotAllowed { brokers: options.brokers.clone(), rights }
}

/// Whether the group has decided intents before: it has committed an offset of a partition of the intents.
///
/// # Errors
/// A broker cannot be asked.
pub fn has_progress(options: &KafkaOptions) -> Result<bool, TopicError> {
    // Not read_committed: what a killed worker left pending would hold up the answer, and so the start that ends it.
    let mut config = options.consumer();
    config.set("isolation.level", "read_uncommitted");
    let consumer = asking(&config)?;
    let unreachable = |error| unanswered(options, &consumer, error);
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
    options.client().create().map_err(|error| TopicError::Client(not_made(&error)))
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
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), reason: error.to_string() })?;
    for result in results {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed)) => {
                return Err(not_allowed(options, vec![Right::CreateTopic(topic)]));
            }
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
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), reason: error.to_string() })?;
    let (mut sizes, mut hidden) = (BTreeMap::new(), Vec::new());
    for (topic, answer) in topics.iter().zip(answers) {
        // A refusal comes as a topic without settings.
        if answer.as_ref().map_or(true, |config| config.entries.is_empty()) {
            hidden.push(Right::DescribeConfigs((*topic).to_owned()));
        }
        let value = answer.ok().and_then(|config| {
            config.entries.into_iter().find(|entry| entry.name == "max.message.bytes").and_then(|entry| entry.value)
        });
        if let Some(bytes) = value.and_then(|value| value.parse().ok()) {
            sizes.insert((*topic).to_owned(), bytes);
        }
    }
    if hidden.is_empty() { Ok(sizes) } else { Err(not_allowed(options, hidden)) }
}
