//! The topics that a worker needs: looked at before the start.

use std::{collections::BTreeMap, ffi::CString, time::Duration};

use rdkafka::{
    ClientConfig,
    admin::AdminClient,
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode},
    metadata::Metadata,
};
use weir_core::{basis::origin::Topic, deferral::wheel::Ring};

use super::{
    client::KafkaOptions,
    context::{KafkaConsumer, KafkaContext},
    identity::Identity,
    offsets::partitions_of,
    rights::Right,
    tokens::make,
    topic_settings::KeepsTooLittle,
};

pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many lines of its log a client that failed is asked for.
const MAX_EVENTS: usize = 128;

#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    #[error(
        "no answer from Kafka at {brokers}: {reason}. Check kafka.brokers, the network, and TLS and SASL in [kafka.properties]"
    )]
    Unreachable {
        brokers: String,
        /// What the client says, and why the last connection failed.
        reason: String,
    },
    #[error(
        "Kafka at {brokers} and weir do not trust each other: {cause}. Check security.protocol, sasl.mechanism, \
         sasl.username and sasl.password, or ssl.ca.location, ssl.certificate.location and ssl.key.location, in \
         [kafka.properties]; or with kafka.aws_iam_region the rights and the clock (docs/clouds.md)"
    )]
    NotLetIn { brokers: String, cause: String },
    #[error(
        "Kafka at {brokers} does not let weir do what it has to: grant {} (docs/security.md)",
        rights.iter().map(ToString::to_string).collect::<Vec<_>>().join(", and ")
    )]
    NotAllowed { brokers: String, rights: Vec<Right> },
    #[error(
        "the topics {} do not exist at {brokers}. weir check --create creates those that weir owns (all but the intents topic); the intents topic belongs to its publishers: create it with kafka-topics.sh --create. For \
         development, kafka.create_topics = true lets weir run create all of them",
        topics.join(", ")
    )]
    Missing { brokers: String, topics: Vec<String> },
    #[error(
        "{topic} has {partitions} partitions, and must have {buckets}, or a multiple of that: a bucket is one partition or more \
         (docs/operations.md). Topics of another prefix can be created by weir check --create"
    )]
    Partitions { topic: String, partitions: usize, buckets: i64 },
    #[error(
        "{hours} has {} partitions a bucket and {minutes} {}: both must have the same number", shares[0], shares[1]
    )]
    Shares {
        hours: String,
        minutes: String,
        /// Partitions a bucket of each.
        shares: [u16; 2],
    },
    #[error("{topic}: {} is {}, and must be {}: {}. Run: {command}", wrong.setting, wrong.value, wrong.must_be(), wrong.because)]
    Keeps { topic: String, wrong: Box<KeepsTooLittle>, command: String },
    #[error(
        "up to {intents} deferred intents wait in {}, which no setting names: nothing would read them. Set kafka.deferred to the prefix that it had, or list that prefix in kafka.deferred_before, until they are decided (docs/operations.md). To give them up, delete these topics", topics.join(" and ")
    )]
    LeftBehind {
        topics: Vec<String>,
        /// How many intents at the most.
        intents: u64,
    },
    #[error(
        "up to {intents} intents wait for their routes in {}, which kafka.waiting does not name: nothing would read them. Set kafka.waiting as \
         it was until they are decided (docs/delivery.md). To give them up, delete these topics",
        topics.join(" and ")
    )]
    WaitElsewhere {
        topics: Vec<String>,
        /// How many intents at the most.
        intents: u64,
    },
    #[error(
        "the topic of a route's waiting intents would be {topic}, which the configuration names for something else: rename the route \
         in the policy, or set another kafka.waiting"
    )]
    Taken { topic: String },
    #[error("the topic {topic} could not be created: {reason}")]
    NotMade { topic: String, reason: String },
    #[error(
        "no transaction can be opened at {brokers}: {reason}. Check the broker's log and transaction.state.log.replication.factor: a \
         cluster with fewer brokers than that cannot have transactions"
    )]
    NoTransaction { brokers: String, reason: String },
    #[error(
        "the topics {} were created, and a broker of {brokers} did not know them within {} s. Run the command again; if that does \
         not help, look into the brokers' logs",
        topics.join(", "), within.as_secs()
    )]
    NotKnown { brokers: String, topics: Vec<String>, within: Duration },
    #[error("Kafka at {brokers} does not tell the settings of the topic {topic}: {reason}. Look into the broker's log")]
    NotTold { brokers: String, topic: String, reason: String },
    #[error("the Kafka client cannot be made: {0}. Check [kafka.properties]")]
    Client(String),
}

pub type Partitions = BTreeMap<String, usize>;

/// Which of the topics that a worker needs are there.
#[derive(Debug, Default)]
pub struct Inventory {
    pub found: Partitions,
    pub missing: Vec<String>,
}

/// Looks for the topics that a worker needs: see [`verify`].
pub fn look(options: &KafkaOptions) -> Result<Inventory, TopicError> {
    let consumer = asking(options, &options.client())?;
    let known = all_known(options, &consumer)?;
    let mut inventory = Inventory::default();
    for topic in all(options) {
        match known.get(topic) {
            Some(&partitions) if partitions > 0 => {
                inventory.found.insert(topic.to_owned(), partitions);
            }
            Some(_) | None => inventory.missing.push(topic.to_owned()),
        }
    }
    let hidden = hidden(options, &consumer, &inventory.missing)?;
    if hidden.is_empty() { Ok(inventory) } else { Err(not_allowed(options, hidden)) }
}

pub(super) fn is_named(options: &KafkaOptions, topic: &str) -> bool {
    all(options).contains(&topic)
}

/// All topics that a worker needs: intents, outputs, refunds, reports, activity, retries and deferred intents.
fn all(options: &KafkaOptions) -> Vec<&str> {
    let wheels = options.wheels().flat_map(|wheel| Ring::ALL.map(|ring| wheel.topic(ring)));
    let beside = read_beside(options).into_iter().chain([&options.undelivered]).filter_map(Option::as_deref);
    let approved = options.approved_topics().into_iter().skip(1);
    options.topics().into_iter().chain(approved).chain(beside).chain(wheels).collect()
}

const fn read_beside(options: &KafkaOptions) -> [&Option<String>; 4] {
    [&options.refunds, &options.activity, &options.delivery_reports, &options.retries]
}

pub(super) fn visible(options: &KafkaOptions) -> Result<Partitions, TopicError> {
    all_known(options, &asking(options, &options.client())?)
}

fn all_known(options: &KafkaOptions, consumer: &KafkaConsumer) -> Result<Partitions, TopicError> {
    let metadata = metadata(options, consumer, None)?;
    Ok(metadata.topics().iter().map(|topic| (topic.name().to_owned(), topic.partitions().len())).collect())
}

/// What brokers know of themselves, and of a topic or of all that this user may see.
pub(super) fn metadata(
    options: &KafkaOptions,
    consumer: &KafkaConsumer,
    topic: Option<&str>,
) -> Result<Metadata, TopicError> {
    consumer.fetch_metadata(topic, ANSWER_TIMEOUT).map_err(|error| unanswered(options, consumer, error))
}

/// How many partitions each of these topics has, 0: there is none.
pub(super) fn partitions_of_each(options: &KafkaOptions, topics: &[String]) -> Result<Vec<usize>, TopicError> {
    let consumer = asking(options, &options.client())?;
    let count = |topic: &String| {
        let partitions = partitions_of(&consumer, topic, ANSWER_TIMEOUT);
        Ok(partitions.map_err(|error| unseen(options, &consumer, topic, error))?.len())
    };
    topics.iter().map(count).collect()
}

/// The topics that must exist, with their number of partitions.
pub fn verify(options: &KafkaOptions) -> Result<Partitions, TopicError> {
    let Inventory { found, missing: topics } = look(options)?;
    if topics.is_empty() { Ok(found) } else { Err(missing(options, topics)) }
}

/// The rights on those of these topics that are not listed because this user may not see them.
fn hidden(options: &KafkaOptions, consumer: &KafkaConsumer, topics: &[String]) -> Result<Vec<Right>, TopicError> {
    let mut rights = Vec::new();
    for topic in topics {
        let metadata = metadata(options, consumer, Some(topic))?;
        let error = metadata.topics().first().and_then(|topic| topic.error()).map(RDKafkaErrorCode::from);
        if error == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
            let of_wheel = options.wheels().any(|wheel| Ring::ALL.iter().any(|ring| wheel.topic(*ring) == topic));
            let beside = read_beside(options).into_iter().any(|beside| beside.as_ref() == Some(topic));
            let reads = *topic == options.intents || beside || of_wheel;
            rights.push(if reads { Right::ReadTopic(topic.clone()) } else { Right::WriteTopics(vec![topic.clone()]) });
        }
    }
    Ok(rights)
}

/// A client that asks. It fetches nothing, so its fetches are bounded as goes together with whatever the properties say of them.
pub(super) fn asking(options: &KafkaOptions, config: &ClientConfig) -> Result<KafkaConsumer, TopicError> {
    let mut config = config.clone();
    options.bound_fetches(&mut config, options.span_fetch_bytes());
    make(&config, options, Consumer::client).map_err(TopicError::Client)
}

/// Handles what librdkafka logs, which waits in a queue until somebody polls.
pub(super) fn handle_events(consumer: &KafkaConsumer) {
    for _ in 0..MAX_EVENTS {
        let _ = consumer.poll(Duration::ZERO);
    }
}

pub(super) fn unanswered(options: &KafkaOptions, consumer: &KafkaConsumer, error: KafkaError) -> TopicError {
    handle_events(consumer);
    let (brokers, capture) = (options.brokers.clone(), consumer.context());
    let denied = [error.rdkafka_error_code(), capture.denied()].into_iter().flatten();
    if let Some(right) = denied.into_iter().find_map(|code| options.right_to_read(code)) {
        return TopicError::NotAllowed { brokers, rights: vec![right] };
    }
    match capture.refusal() {
        Some(cause) => TopicError::NotLetIn { brokers, cause },
        None => {
            let cause = capture.cause().map(|cause| format!(" ({cause})")).unwrap_or_default();
            TopicError::Unreachable { brokers, reason: format!("{error}{cause}") }
        }
    }
}

pub(super) fn not_allowed(options: &KafkaOptions, rights: Vec<Right>) -> TopicError {
    TopicError::NotAllowed { brokers: options.brokers.clone(), rights }
}

pub(super) fn missing(options: &KafkaOptions, topics: Vec<String>) -> TopicError {
    TopicError::Missing { brokers: options.brokers.clone(), topics }
}

/// Asks on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, TopicError> + Send + 'static,
) -> Result<T, TopicError> {
    tokio::task::spawn_blocking(ask).await.unwrap_or_else(|error| Err(TopicError::Client(error.to_string())))
}

/// A topic with its id, and its partitions.
pub fn identify(options: &KafkaOptions, topic: &str) -> Result<(Topic, Vec<i32>), TopicError> {
    let consumer = asking(options, &options.client())?;
    let missing = || missing(options, vec![topic.to_owned()]);
    let name = CString::new(topic).map_err(|_| missing())?;
    let partitions = partitions_of(&consumer, topic, ANSWER_TIMEOUT);
    let partitions = partitions.map_err(|error| unseen(options, &consumer, topic, error))?;
    let id = Identity::new(consumer.client(), name)
        .map_err(TopicError::Client)?
        .ask(consumer.client())
        .map_err(|error| unseen(options, &consumer, topic, error))?;
    if partitions.is_empty() { Err(missing()) } else { Ok((Topic { id, ..topic.into() }, partitions)) }
}

pub(super) fn unseen(options: &KafkaOptions, consumer: &KafkaConsumer, topic: &str, error: KafkaError) -> TopicError {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
        return not_allowed(options, vec![Right::ReadTopic(topic.to_owned())]);
    }
    unanswered(options, consumer, error)
}

pub(super) fn admin(options: &KafkaOptions) -> Result<AdminClient<KafkaContext>, TopicError> {
    make(&options.client(), options, AdminClient::inner).map_err(TopicError::Client)
}
