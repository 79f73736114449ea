//! The topics of intents that wait for a route's capacity.

use std::{collections::BTreeSet, sync::Arc};

use rdkafka::{
    Offset,
    consumer::Consumer as _,
    error::{KafkaError, RDKafkaErrorCode},
};
use weir_core::{
    basis::memory::LaneMemory,
    batch::record::{Destination, Progress, WaitingTopic},
    deferral::wheel::KEPT_BEYOND_MS,
    limit::route::MAX_WAIT_MS,
};

use super::{
    client::{KafkaOptions, ReadOrder, Reads},
    committed,
    group_progress::GroupProgress,
    native::answers::{Answers, Generation},
    new_topics::{self, Holds, NewTopics},
    offsets, topic_settings,
    topics::{self, ANSWER_TIMEOUT, TopicError, asking, blocking, unanswered, unseen},
};

/// How long a record is kept at the least, in milliseconds: as long as an intent waits, and a day in which it is suppressed.
const KEPT_MS: i64 = MAX_WAIT_MS + KEPT_BEYOND_MS;

/// Partitions that are read by turns, about: their queues share a lane's memory.
const PARTITIONS_READ_BY_TURNS: u64 = 16;

impl KafkaOptions {
    pub fn waiting_on(&self, topic: WaitingTopic) -> Option<String> {
        self.waiting_topic(&self.routes.waiting_on(topic)?.name)
    }

    /// All topics that lanes write to: the outputs, and those of intents that wait for any route that a policy has had.
    pub fn written(&self) -> Vec<(Destination, String)> {
        let waiting = |number| {
            let topic = WaitingTopic(number);
            Some((Destination::Waiting { topic, partition: 0 }, self.waiting_on(topic)?))
        };
        let outputs = self.outputs().into_iter().map(|(to, topic)| (to, topic.to_owned()));
        outputs.chain((0..=u16::MAX).map_while(waiting)).collect()
    }

    /// The topic of intents that wait for a route, where intents may wait.
    pub fn waiting_topic(&self, route: &str) -> Option<String> {
        Some(format!("{}-{route}", self.waiting.as_deref()?))
    }

    /// The options of a lane that reads a route's waiting topic instead of the intents. Each route has its own consumer group, so
    /// adding or removing a route causes no rebalance of the others.
    pub fn for_waiting(&self, route: &str) -> Option<Self> {
        let mut options = self.clone();
        options.intents = self.waiting_topic(route)?;
        options.group = format!("{}-waiting-{route}", self.group);
        options.reads = Reads::Deferred;
        options.read_order = ReadOrder::ByTurns;
        // The bound of a queue holds for each partition.
        let memory = LaneMemory::of_reader();
        options.memory = LaneMemory { queued_bytes: memory.queued_bytes / PARTITIONS_READ_BY_TURNS, ..memory };
        Some(options.reading_all())
    }
}

/// The routes for which something may wait, whatever the policy says now: those that are known, and those in whose topic weir's own
/// group has committed offsets. Other topics of such names are not this installation's. Blocks.
pub fn routes(options: &KafkaOptions, known: &BTreeSet<String>) -> Result<BTreeSet<String>, TopicError> {
    let mut routes = known.clone();
    let Some(prefix) = options.waiting.as_deref() else { return Ok(routes) };
    for topic in topics::visible(options)?.into_keys() {
        let route = topic.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
        let Some(route) = route.filter(|route| !routes.contains(*route)) else { continue };
        let Some(waiting) = options.for_waiting(route).filter(|_| !topics::is_named(options, &topic)) else { continue };
        match committed::has_progress(&waiting) {
            Ok(true) => {
                routes.insert(route.to_owned());
            }
            // Who may not ask for the group's offsets has read nothing as that group; and the topic may be deleted meanwhile.
            Ok(false) | Err(TopicError::NotAllowed { .. } | TopicError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(routes)
}

/// Whether intents wait in topics that `kafka.waiting` does not name any more. `noted` has the groups that have committed offsets of
/// topics, each with such a topic. Blocks.
pub fn none_left_behind(options: &KafkaOptions, noted: &BTreeSet<(String, String)>) -> Result<(), TopicError> {
    let prefix = format!("{}-waiting-", options.group);
    let is_elsewhere = |(group, topic): &&(String, String)| {
        let Some(route) = group.strip_prefix(&prefix) else { return false };
        topic.ends_with(&format!("-{route}")) && options.waiting_topic(route).as_ref() != Some(topic)
    };
    let candidates: Vec<&(String, String)> = noted.iter().filter(is_elsewhere).collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let (there, mut left, mut intents) = (topics::visible(options)?, Vec::new(), 0);
    for (group, topic) in candidates.into_iter().filter(|(_, topic)| there.contains_key(topic)) {
        let waiting = match GroupProgress::new(options, group.clone())?.left(topic) {
            Ok(waiting) => waiting,
            // It may be deleted meanwhile, or somebody else's by now.
            Err(TopicError::NotAllowed { .. } | TopicError::Missing { .. }) => 0,
            Err(error) => return Err(error),
        };
        if waiting > 0 {
            intents += waiting;
            left.push(topic.clone());
        }
    }
    if left.is_empty() { Ok(()) } else { Err(TopicError::WaitElsewhere { topics: left, intents }) }
}

/// Commits where the groups of these routes begin in topics that are empty: a group with offsets is found by whoever starts without
/// its route ([`routes`]). To be done before an intent waits there.
pub async fn begin(options: &KafkaOptions, routes: Vec<Arc<str>>) -> Result<(), TopicError> {
    let options = options.clone();
    blocking(move || {
        routes.iter().filter_map(|route| options.for_waiting(route)).try_for_each(|waiting| begin_one(&waiting))
    })
    .await
}

fn begin_one(waiting: &KafkaOptions) -> Result<(), TopicError> {
    if committed::has_progress(waiting)? {
        return Ok(());
    }
    let (topic, partitions) = topics::identify(waiting, &waiting.intents)?;
    let consumer = asking(waiting, &waiting.consumer())?;
    let ends = |which| {
        let ends = offsets::ends(&consumer, &waiting.intents, &partitions, which, ANSWER_TIMEOUT);
        ends.map_err(|error| unseen(waiting, &consumer, &waiting.intents, error))
    };
    let first = ends(Offset::Beginning)?;
    if first != ends(Offset::End)? {
        // The lane says where it begins there: the group may have lost its offsets.
        return Ok(());
    }
    let starts: Vec<Progress> =
        partitions.iter().zip(first).map(|(&partition, next_offset)| Progress { partition, next_offset }).collect();
    let failed = |error| unanswered(waiting, &consumer, error);
    let starts = offsets::list(&waiting.intents, topic.id, &starts).map_err(failed)?;
    let client = consumer.client();
    let answers = Answers::new(client).map_err(TopicError::Client)?;
    match answers.commit(client, (&starts, Generation::now(client)), ANSWER_TIMEOUT) {
        // It has members: another instance has been here.
        Ok(())
        | Err(
            RDKafkaErrorCode::UnknownMemberId
            | RDKafkaErrorCode::IllegalGeneration
            | RDKafkaErrorCode::RebalanceInProgress,
        ) => Ok(()),
        Err(code) => Err(failed(KafkaError::ConsumerCommit(code))),
    }
}

/// Verifies that these topics exist and keep records long enough; creates missing ones if `create` is set. Returns the number of
/// partitions of each.
///
/// # Errors
/// A topic is missing, cannot be made, may lose intents, or has another use.
pub async fn ready(
    options: &KafkaOptions,
    topics: &[String],
    create: Option<NewTopics>,
) -> Result<Vec<usize>, TopicError> {
    if let Some(topic) = topics.iter().find(|topic| topics::is_named(options, topic)) {
        return Err(TopicError::Taken { topic: topic.clone() });
    }
    let mut found = look(options, topics).await?;
    let missing: Vec<String> =
        topics.iter().zip(&found).filter(|(_, partitions)| **partitions == 0).map(|(topic, _)| topic.clone()).collect();
    if !missing.is_empty() {
        let Some(how) = create else { return Err(topics::missing(options, missing)) };
        tracing::info!(topics = ?missing, "creating missing topics");
        new_topics::create(options, (&missing, Holds::Waiting), how).await?;
        found = look(options, topics).await?;
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let because = "waiting intents may be deleted before they are decided";
    topic_settings::verify(options, &names, |settings| settings.keeps_too_little(KEPT_MS, because)).await?;
    Ok(found)
}

/// How many partitions each topic has, 0: there is none.
async fn look(options: &KafkaOptions, topics: &[String]) -> Result<Vec<usize>, TopicError> {
    let (options, topics) = (options.clone(), topics.to_vec());
    blocking(move || topics::partitions_of_each(&options, &topics)).await
}
