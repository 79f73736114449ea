//! Finds out how large a record each output topic takes, so that what does not fit is never written.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use weir_core::{
    record::{Destination, WaitingTopic},
    wheel::{KEPT_BEYOND_MS, Ring},
};

use super::{
    client::KafkaOptions,
    topic_settings::{self, TopicSettings},
    topics::TopicError,
};

/// How often the topics are asked.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// A topic's `max.message.bytes` unless brokers or topic say otherwise.
const DEFAULT_MAX_MESSAGE_BYTES: u64 = 1_048_588;

/// Asks the topics for the first time. Where they are not told, a record has to fit into the producer's client until a topic refuses
/// one.
pub async fn find_out(options: &KafkaOptions) {
    for (to, _) in options.outputs() {
        options.limits.set(to, options.largest_output_bytes());
    }
    match ask(options).await {
        Ok(found) => note(options, &found),
        Err(error) => tracing::warn!(
            "the max.message.bytes of the output topics are not known: {error}. Until a topic refuses a record, records of up to {} \
             bytes are written",
            options.largest_output_bytes()
        ),
    }
}

/// Asks again and again: a limit that is raised counts within a minute, as does one that is lowered.
pub async fn keep_up(options: Arc<KafkaOptions>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        match ask(&options).await {
            Ok(found) => note(&options, &found),
            Err(error) => tracing::debug!("the max.message.bytes of the output topics were not read: {error}"),
        }
    }
}

async fn ask(options: &KafkaOptions) -> Result<BTreeMap<String, TopicSettings>, TopicError> {
    let waiting = waiting_topics(options);
    let outputs = options.outputs().into_iter().map(|(_, topic)| topic);
    topic_settings::describe(options, &outputs.chain(waiting.iter().map(String::as_str)).collect::<Vec<_>>()).await
}

/// The topics of waiting intents that are written to.
fn waiting_topics(options: &KafkaOptions) -> Vec<String> {
    (0..=u16::MAX).map_while(|number| options.waiting_on(WaitingTopic(number))).collect()
}

fn note(options: &KafkaOptions, found: &BTreeMap<String, TopicSettings>) {
    let largest = options.largest_output_bytes();
    let bytes_of = |topic: &str| found.get(topic).and_then(TopicSettings::max_message_bytes);
    for (to, topic) in options.outputs().into_iter().filter(|(to, _)| !to.is_approved()) {
        if let Some(bytes) = bytes_of(topic) {
            options.limits.set(to, bytes.min(largest));
        }
    }
    // Of topics that share a limit, the one that takes the least counts.
    if let Some(bytes) = options.approved_topics().into_iter().filter_map(bytes_of).min() {
        options.limits.set(Destination::APPROVED, bytes.min(largest));
    }
    if let Some(bytes) = waiting_topics(options).iter().filter_map(|topic| bytes_of(topic)).min() {
        options.limits.set(Destination::Waiting { topic: WaitingTopic(0), partition: 0 }, bytes.min(largest));
    }
    let kept = options.deferred.iter().flat_map(|wheel| Ring::ALL.map(|ring| wheel.topic(ring)));
    let kept = kept.filter_map(|topic| found.get(topic)?.retention_ms()).min();
    options.limits.set_deferrable_ms(kept.map_or(i64::MAX, |kept_ms| kept_ms - KEPT_BEYOND_MS));
}

/// A topic has refused a record for its size: gives what the topic takes now. Blocks while it is asked.
pub fn after_refusal(options: &KafkaOptions, to: Destination) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let found = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(ask(options)).map_err(|error| error.to_string()));
    match found {
        Ok(found) => note(options, &found),
        Err(error) => {
            let assumed = options.limits.get(to).min(DEFAULT_MAX_MESSAGE_BYTES);
            tracing::warn!("the output topics' max.message.bytes are not known: {error}. {assumed} bytes are assumed");
            options.limits.set(to, assumed);
        }
    }
    options.limits.get(to)
}
