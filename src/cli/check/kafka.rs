//! Kafka: the topics, and what their settings allow.

use std::sync::Arc;

use super::report::{Finding, Report};
use crate::{cli::assemble, config::Settings, edge::kafka::topics};

/// What the envelope and weir's headers may add to an intent, in bytes: ids of 256 bytes each in JSON escapes (six bytes
/// a character at the worst), names and versions, with room to spare.
const ENVELOPE_BYTES: u64 = 16 * 1024;

pub(super) async fn look(settings: &Settings, report: &mut Report) {
    let options = Arc::new(assemble::kafka(&settings.kafka));
    let asked = Arc::clone(&options);
    match tokio::task::spawn_blocking(move || topics::verify(&asked)).await {
        Err(error) => report.add(Finding::Error, "kafka", error.to_string()),
        Ok(Err(topics::TopicError::Missing { topics, .. })) if settings.kafka.create_topics => {
            return report.add(Finding::Warning, "kafka", format!("weir run will create {}", topics.join(", ")));
        }
        Ok(Err(error)) => return report.add(Finding::Error, "kafka", error.to_string()),
        Ok(Ok(partitions)) => {
            for (topic, count) in partitions {
                report.add(Finding::Ok, "kafka", format!("{topic}: {count} partitions"));
            }
        }
    }
    let sizes = match topics::max_message_bytes(&options).await {
        Ok(sizes) => sizes,
        Err(error) => {
            let message = format!("the topics' max.message.bytes are not known: {error}");
            return report.add(Finding::Warning, "kafka", message);
        }
    };
    let [intents, outputs @ ..] = options.topics();
    let Some(largest) = sizes.get(intents) else { return };
    for topic in outputs {
        let needed = largest + ENVELOPE_BYTES;
        if sizes.get(topic).is_some_and(|size| *size < needed) {
            let message = format!(
                "{topic} takes records of {} bytes, {intents} of {largest}: an intent of that size would stop its lane. \
                 Set max.message.bytes of {topic} to {needed} or more",
                sizes[topic]
            );
            report.add(Finding::Warning, "kafka", message);
        }
    }
}
