//! Kafka: the topics, what their settings allow, and whether a transaction may be opened.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backon::{ExponentialBuilder, Retryable as _};
use weir_core::{deferral::wheel::Ring, intent::MAX_INTENT_BYTES, policy::Policy};
use weir_kafka::{
    client::{Delivery, KafkaOptions},
    committed,
    new_topics::{self, Holds},
    session,
    topic_settings::{self, KeepsTooLittle, TopicSettings},
    topics::{self, Inventory, TopicError},
    transaction, wheel_topics,
};

use super::{
    CheckArgs, limits,
    report::{CheckReport, Finding, Repair},
};
use crate::{
    cli::assemble::{self, ask_kafka},
    config::Settings,
};

/// What the envelope and weir's headers may add to an intent, in bytes: ids of 256 bytes each in JSON escapes (six bytes
/// a character at the worst), names and versions, with room to spare.
const ENVELOPE_BYTES: u64 = 16 * 1024;

/// How often the coordinator of the group is asked again, and how long the first wait is; each is twice the one before.
const COORDINATOR_TRIES: usize = 5;
const COORDINATOR_WAIT: Duration = Duration::from_millis(200);

/// Looks at Kafka, and creates the topics that are missing where that is asked for. The policy is there where it could be read. Gives whether
/// the group has decided intents before, as far as Kafka says.
pub(super) async fn look(
    settings: &Settings,
    args: &CheckArgs,
    policy: Option<&Policy>,
    report: &mut CheckReport,
) -> Option<bool> {
    let options = match assemble::signed_kafka(&settings.kafka).await {
        Ok(options) => Arc::new(options),
        Err(error) => {
            report.add(Finding::Error, "kafka", format!("{error:#}"));
            return None;
        }
    };
    let inventory = match ask_kafka(&options, topics::look).await {
        Ok(inventory) => inventory,
        Err(error) => {
            report.add(finding(&error), "kafka", error.to_string());
            return None;
        }
    };
    buckets(&options, &inventory, report);
    if let Err(error) = patiently(&options, wheel_topics::none_left_behind).await {
        report.add(finding(&error), "kafka", error.to_string());
    }
    let found = report_topics(settings, &options, inventory, args, report).await;
    transactions(&options, policy, report).await;
    if let Ok(Some(refused)) = ask_kafka(&options, session::refused).await {
        report.add(Finding::Error, "kafka", refused);
    }
    let create = args.create.then(|| assemble::new_topics(settings));
    let waiting = match policy {
        Some(policy) => limits::waiting(&options, policy, create, report).await,
        None => Vec::new(),
    };
    let topics = TopicsThere { named: &found, waiting: &waiting };
    let kept = topics_settings(settings, &options, topics, policy, report).await;
    if let Some(policy) = policy {
        limits::look(&options, policy, &kept, report).await;
    }
    has_decided(&options, report).await
}

/// A client that cannot be made has properties that librdkafka refuses: that is written incorrectly. The rest is Kafka's answer.
fn finding(error: &anyhow::Error) -> Finding {
    if let Some(TopicError::Client(_)) = error.downcast_ref() { Finding::Invalid } else { Finding::Error }
}

/// Reports which topics are there, and gives those that are there in the end.
async fn report_topics(
    settings: &Settings,
    options: &KafkaOptions,
    inventory: Inventory,
    args: &CheckArgs,
    report: &mut CheckReport,
) -> Vec<String> {
    for (topic, partitions) in &inventory.found {
        report.add(Finding::Ok, "kafka", format!("{topic}: {partitions} partitions"));
    }
    let mut there: Vec<String> = inventory.found.into_keys().collect();
    let (intents, mut own): (Vec<String>, Vec<String>) =
        inventory.missing.into_iter().partition(|topic| *topic == options.intents);
    if args.create && !own.is_empty() {
        let new = assemble::new_topics(settings);
        match new_topics::create(options, (&own, Holds::Configured), new).await {
            Err(error) => report.add(Finding::Error, "kafka", error.to_string()),
            Ok(()) => {
                let message = format!("created {}", own.join(", "));
                report.add(Finding::Ok, "kafka", message);
                there.append(&mut own);
            }
        }
        own.clear();
    }
    let absent = [intents, own].concat();
    if absent.is_empty() {
        return there;
    }
    if settings.kafka.create_topics {
        let message = format!("weir run will create {} (kafka.create_topics)", absent.join(", "));
        report.add(Finding::Warning, "kafka", message);
    } else {
        let error = TopicError::Missing { brokers: options.brokers.clone(), topics: absent };
        report.add(Finding::Error, "kafka", error.to_string());
    }
    there
}

/// Opens a transaction as each kind of lane would.
async fn transactions(options: &Arc<KafkaOptions>, policy: Option<&Policy>, report: &mut CheckReport) {
    if options.delivery == Delivery::AtLeastOnce {
        return;
    }
    let activity = options.for_activity(assemble::activity_since());
    let beside = [options.for_refunds(), activity, options.for_delivery_reports(), options.for_retries()];
    let beside = beside.map(|beside| beside.map(Arc::new));
    let later = options.deferred.as_ref().map(|wheel| Arc::new(options.for_ring(wheel, Ring::Minutes)));
    let waiting = policy.into_iter().flat_map(limits::waited_for);
    let waiting: Vec<_> = waiting.map(|route| options.for_waiting(&route.name).map(Arc::new)).collect();
    for options in [Some(Arc::clone(options)), later].into_iter().chain(beside).chain(waiting).flatten() {
        match ask_kafka(&options, transaction::try_one).await {
            Ok(id) => {
                report.add(Finding::Ok, "kafka", format!("a transaction can be opened (as {id}, and was aborted)"))
            }
            Err(error) => report.add(Finding::Error, "kafka", error.to_string()),
        }
    }
}

/// Whether the topics of deferred intents have the partitions that a wheel needs.
fn buckets(options: &KafkaOptions, inventory: &Inventory, report: &mut CheckReport) {
    for topics in options.wheels() {
        let is_there = |ring: &Ring| inventory.found.contains_key(topics.topic(*ring));
        if !Ring::ALL.iter().all(is_there) {
            continue;
        }
        match wheel_topics::wheel(topics, &inventory.found) {
            Ok(wheel) => {
                let message = format!("{}-*: {} partition(s) a bucket", topics.prefix, wheel.shares);
                report.add(Finding::Ok, "kafka", message);
            }
            Err(error) => report.add(Finding::Error, "kafka", error.to_string()),
        }
    }
}

struct TopicsThere<'t> {
    /// Those that the settings name.
    named: &'t [String],
    /// Those of intents that wait for a route.
    waiting: &'t [String],
}

/// What is wrong with the settings of topics; gives them, as far as they are known.
async fn topics_settings(
    settings: &Settings,
    options: &KafkaOptions,
    topics: TopicsThere<'_>,
    policy: Option<&Policy>,
    report: &mut CheckReport,
) -> BTreeMap<String, TopicSettings> {
    let TopicsThere { named, waiting } = topics;
    let there: Vec<&str> = named.iter().chain(waiting).map(String::as_str).collect();
    if there.is_empty() {
        return BTreeMap::new();
    }
    match topic_settings::describe(options, &there).await {
        Ok(found) => {
            sizes(options, waiting, &found, report);
            retention(settings, options, &found, policy, report);
            found
        }
        Err(error) => {
            let message =
                format!("the topics' max.message.bytes, retention.ms and cleanup.policy are not known: {error}");
            report.add(Finding::Warning, "kafka", message);
            BTreeMap::new()
        }
    }
}

/// Whether all topics that an intent may be written to take the largest one: those of channels, of wheels and of intents that wait, too.
fn sizes(
    options: &KafkaOptions,
    waiting: &[String],
    found: &BTreeMap<String, TopicSettings>,
    report: &mut CheckReport,
) {
    let intents = options.intents.as_str();
    let size = |topic: &str| found.get(topic).and_then(TopicSettings::max_message_bytes);
    let Some(largest) = size(intents) else { return };
    let needed = largest.min(MAX_INTENT_BYTES as u64) + ENVELOPE_BYTES;
    let before = options.deferred_before.iter().flat_map(|wheel| Ring::ALL.map(|ring| wheel.topic(ring)));
    let outputs = options.outputs().into_iter().map(|(_, topic)| topic).chain(before);
    for topic in outputs.chain(waiting.iter().map(String::as_str)) {
        if let Some(size) = size(topic)
            && size < needed
        {
            let message = format!(
                "{topic} takes records of {size} bytes, {intents} of {largest}: an intent of that size becomes a dead letter \
                 without its value. Set max.message.bytes of {topic} to {needed} or more"
            );
            report.add(Finding::Warning, "kafka", message);
        }
    }
}

/// Whether the topics that a lost history is rebuilt from keep their records for as long as the history, and those of deferred intents for as
/// long as the longest deferral, and a day.
fn retention(
    settings: &Settings,
    options: &KafkaOptions,
    found: &BTreeMap<String, TopicSettings>,
    policy: Option<&Policy>,
    report: &mut CheckReport,
) {
    let history_ms = assemble::bounds(&settings.redis).retention_ms;
    for topic in topic_settings::rebuilt_from(options) {
        let Some(of_topic) = found.get(topic) else { continue };
        let because = "records are deleted before they leave redis.history, and weir rebuild cannot restore them";
        for wrong in of_topic.keeps_too_little(history_ms, because) {
            add_wrong(options, topic, wrong, report);
        }
    }
    let Some(policy) = policy else { return };
    for topic in options.wheels().flat_map(|topics| Ring::ALL.map(|ring| topics.topic(ring))) {
        let Some(of_topic) = found.get(topic) else { continue };
        for wrong in wheel_topics::keeps_too_little(of_topic, policy.defer_max_ms) {
            add_wrong(options, topic, wrong, report);
        }
    }
}

fn add_wrong(options: &KafkaOptions, topic: &str, wrong: KeepsTooLittle, report: &mut CheckReport) {
    let command = wrong.command(&options.brokers, topic);
    let error = TopicError::Keeps { topic: topic.to_owned(), wrong: Box::new(wrong.clone()), command: command.clone() };
    let KeepsTooLittle { setting, value, required, because: _ } = wrong;
    report.add_repair(
        "kafka",
        error.to_string(),
        Repair { topic: topic.to_owned(), setting, value, required, command },
    );
}

/// Asks about a group. The brokers answer; but its coordinator may have to be elected first.
async fn patiently<T: Send + 'static>(
    options: &Arc<KafkaOptions>,
    question: fn(&KafkaOptions) -> Result<T, TopicError>,
) -> anyhow::Result<T> {
    (|| ask_kafka(options, question))
        .retry(ExponentialBuilder::default().with_min_delay(COORDINATOR_WAIT).with_max_times(COORDINATOR_TRIES))
        .when(|error: &anyhow::Error| matches!(error.downcast_ref(), Some(TopicError::Unreachable { .. })))
        .await
}

async fn has_decided(options: &Arc<KafkaOptions>, report: &mut CheckReport) -> Option<bool> {
    let asked = patiently(options, committed::has_decided).await;
    asked.map_err(|error| report.add(Finding::Error, "kafka", error.to_string())).ok()
}
