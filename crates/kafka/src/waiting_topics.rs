//! The topics of intents that wait for a route's capacity.

use std::collections::BTreeSet;

use weir_core::{
    memory::LaneMemory,
    record::{Destination, WaitingTopic},
    route::MAX_WAIT_MS,
    wheel::KEPT_BEYOND_MS,
};

use super::{
    client::{KafkaOptions, ReadOrder, Reads},
    new_topics::{self, NewTopics},
    topic_settings::{self, KeepsTooLittle, TopicSettings},
    topics::{self, TopicError},
};

/// Partitions of a topic that is made here, at least: two campaigns of many then seldom share one.
pub(super) const PARTITIONS: i32 = 32;

/// How long a record is kept at the least, in milliseconds: as long as an intent waits, and a day in which it is suppressed.
const KEPT_MS: i64 = MAX_WAIT_MS + KEPT_BEYOND_MS;

/// Partitions that are read by turns, about: their queues share a lane's memory.
const PARTITIONS_READ_BY_TURNS: u64 = 16;

impl KafkaOptions {
    /// The topic of intents that wait, by its number.
    #[must_use]
    pub fn waiting_on(&self, topic: WaitingTopic) -> Option<String> {
        self.waiting_topic(&self.routes.waiting_on(topic)?.name)
    }

    /// All topics that lanes write to: the outputs, and those of intents that wait for any route that a policy has had.
    #[must_use]
    pub fn written(&self) -> Vec<(Destination, String)> {
        let waiting = |number| {
            let topic = WaitingTopic(number);
            Some((Destination::Waiting { topic, partition: 0 }, self.waiting_on(topic)?))
        };
        let outputs = self.outputs().into_iter().map(|(to, topic)| (to, topic.to_owned()));
        outputs.chain((0..=u16::MAX).map_while(waiting)).collect()
    }

    /// The topic of intents that wait for a route, where intents may wait.
    #[must_use]
    pub fn waiting_topic(&self, route: &str) -> Option<String> {
        Some(format!("{}-{route}", self.waiting.as_deref()?))
    }

    /// The options of a lane that reads a route's waiting topic instead of the intents. Each route has its own consumer group, so
    /// adding or removing a route causes no rebalance of the others.
    #[must_use]
    pub fn for_waiting(&self, route: &str) -> Option<Self> {
        let mut options = self.clone();
        options.intents = self.waiting_topic(route)?;
        options.group = format!("{}-waiting-{route}", self.group);
        options.reads = Reads::Deferred;
        options.read_order = ReadOrder::ByTurns;
        // The bound of a queue holds for each partition.
        let memory = LaneMemory::of_reader();
        options.memory = LaneMemory { queued_bytes: memory.queued_bytes / PARTITIONS_READ_BY_TURNS, ..memory };
        // Where an offset is missing, records are read from the first one, whatever new readers of the intents do.
        options.properties.remove("auto.offset.reset");
        Some(options)
    }
}

/// Whether this is such a topic, of any route.
pub(super) fn is_one(options: &KafkaOptions, topic: &str) -> bool {
    let prefix = options.waiting.as_deref();
    prefix.is_some_and(|prefix| topic.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-')))
}

/// The routes that have such a topic. Blocks.
///
/// # Errors
/// A broker cannot be asked.
pub fn routes(options: &KafkaOptions) -> Result<BTreeSet<String>, TopicError> {
    let Some(prefix) = options.waiting.as_deref() else { return Ok(BTreeSet::new()) };
    let route = |topic: &str| Some(topic.strip_prefix(prefix)?.strip_prefix('-')?.to_owned());
    Ok(topics::visible(options)?.keys().filter_map(|topic| route(topic)).collect())
}

/// The settings by which a topic may lose an intent that waits.
#[must_use]
pub fn keeps_too_little(settings: &TopicSettings) -> Vec<KeepsTooLittle> {
    settings.keeps_too_little(KEPT_MS, "waiting intents may be deleted before they are decided")
}

/// Verifies that these topics exist and keep records long enough; creates missing ones if `create` is set. Returns the number of
/// partitions of each.
///
/// # Errors
/// A topic is missing, cannot be made, or may lose intents.
pub async fn ready(
    options: &KafkaOptions,
    topics: &[String],
    create: Option<NewTopics>,
) -> Result<Vec<usize>, TopicError> {
    let mut found = look(options, topics).await?;
    let missing: Vec<String> =
        topics.iter().zip(&found).filter(|(_, partitions)| **partitions == 0).map(|(topic, _)| topic.clone()).collect();
    if !missing.is_empty() {
        let Some(how) = create else {
            return Err(TopicError::Missing { brokers: options.brokers.clone(), topics: missing });
        };
        tracing::info!(topics = ?missing, "creating missing topics");
        new_topics::create(options, &missing, how).await?;
        found = look(options, topics).await?;
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    for (topic, settings) in topic_settings::describe(options, &names).await? {
        if let Some(wrong) = keeps_too_little(&settings).into_iter().next() {
            let command = wrong.command(&options.brokers, &topic);
            return Err(TopicError::Keeps { topic, wrong: Box::new(wrong), command });
        }
    }
    Ok(found)
}

/// How many partitions each topic has, 0: there is none.
async fn look(options: &KafkaOptions, topics: &[String]) -> Result<Vec<usize>, TopicError> {
    let (options, topics) = (options.clone(), topics.to_vec());
    let asked = tokio::task::spawn_blocking(move || topics::partitions_of_each(&options, &topics)).await;
    asked.unwrap_or_else(|error| Err(TopicError::Client(error.to_string())))
}
