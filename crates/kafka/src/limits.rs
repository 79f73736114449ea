//! Finds out how large a record each output topic takes, so that what does not fit is never written.

use std::{sync::Arc, time::Duration};

use weir_core::{
    batch::record::Destination,
    deferral::wheel::{KEPT_BEYOND_MS, Ring},
};

use super::{
    client::KafkaOptions,
    topic_settings::{self, Known, TopicSettings},
    topics::TopicError,
};

const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// A topic's `max.message.bytes` unless brokers or topic say otherwise.
const DEFAULT_MAX_MESSAGE_BYTES: u64 = 1_048_588;
/// What a topic is taken to take at the least, where brokers do not say it.
const LEAST_MAX_MESSAGE_BYTES: u64 = 4_096;

/// Asks the topics for the first time. Where they are not told, a record has to fit into the producer's client until a topic refuses
/// one.
pub async fn find_out(options: &KafkaOptions) {
    for (to, _) in options.written() {
        options.limits.set(to, options.largest_output_bytes());
    }
    match ask(options).await {
        // Nothing goes to a topic that is not there: it is one of a route whose intents do not wait.
        Ok((_, None | Some(TopicError::Missing { .. }))) => {}
        Ok((_, Some(error))) | Err(error) => tracing::warn!(
            "the max.message.bytes of output topics are not known: {error}. Until a topic refuses a record, records of up to {} \
             bytes are written",
            options.largest_output_bytes()
        ),
    }
}

/// Asks again and again: a limit that is raised counts within a minute, as does one that is lowered.
pub async fn keep_up(options: Arc<KafkaOptions>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        look_again(&options).await;
    }
}

/// Asks once more: topics were added.
pub async fn look_again(options: &KafkaOptions) {
    if let Err(error) = ask(options).await {
        tracing::debug!("the max.message.bytes of the output topics were not read: {error}");
    }
}

/// Asks for the limits of all output topics, and takes up those that are told.
async fn ask(options: &KafkaOptions) -> Result<Known, TopicError> {
    let topics: Vec<String> = options.written().into_iter().map(|(_, topic)| topic).collect();
    let (found, trouble) = topic_settings::describe_known(options, &topics).await?;
    let largest = options.largest_output_bytes();
    let bytes_of = |topic: &str| found.get(topic).and_then(TopicSettings::max_message_bytes);
    for (to, topic) in options.written().into_iter().filter(|(to, _)| !to.is_approved()) {
        if let Some(bytes) = bytes_of(&topic) {
            options.limits.set(to, bytes.min(largest));
        }
    }
    // Approved topics share a limit: the one that takes the least counts.
    if let Some(bytes) = options.approved_topics().into_iter().filter_map(bytes_of).min() {
        options.limits.set(Destination::APPROVED, bytes.min(largest));
    }
    let wheel = || options.deferred.iter().flat_map(|wheel| Ring::ALL.map(|ring| wheel.topic(ring)));
    // A topic that is not told keeps what it kept before.
    if wheel().all(|topic| found.contains_key(topic)) {
        let kept = wheel().filter_map(|topic| found.get(topic)?.retention_ms()).min();
        options.limits.set_deferrable_ms(kept.map_or(i64::MAX, |kept_ms| kept_ms - KEPT_BEYOND_MS));
    }
    Ok((found, trouble))
}

/// A topic has refused a record for its size, of a client that was made for a limit of `made_for` bytes: gives what the topic takes now.
/// Where it is not told, less is assumed each time. Blocks while it is asked.
pub fn after_refusal(options: &KafkaOptions, (to, topic): (Destination, &str), made_for: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let asked = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(ask(options)).map_err(|error| error.to_string()));
    let known = options.limits.get(to);
    let untold = match asked {
        Ok((found, _)) if found.contains_key(topic) => return known,
        Ok((_, trouble)) => trouble.map_or_else(String::new, |error| error.to_string()),
        Err(reason) => reason,
    };
    // Another lane has had the same.
    if known < made_for {
        return known;
    }
    let assumed = (known / 2).clamp(LEAST_MAX_MESSAGE_BYTES, DEFAULT_MAX_MESSAGE_BYTES).min(known);
    tracing::warn!("the max.message.bytes of {topic} are not known: {untold}. {assumed} bytes are assumed");
    options.limits.set(to, assumed);
    assumed
}
