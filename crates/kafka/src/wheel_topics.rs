//! The topics of a wheel: how many partitions they have, and whether they keep deferred intents for as long as they must.

use std::collections::BTreeMap;

use weir_core::wheel::{KEPT_BEYOND_MS, LONGEST_MS, Ring, Wheel};

use super::{
    client::{KafkaOptions, WheelTopics},
    topic_settings::{self, KeepsTooLittle, TopicSettings},
    topics::{Partitions, TopicError},
};

/// How long topics that are made here keep a record, in milliseconds: as long as the longest deferral needs.
pub(super) const RETENTION_MS: i64 = LONGEST_MS + KEPT_BEYOND_MS;

/// The wheel that these topics make.
///
/// # Errors
/// Their partitions are no multiple of the buckets, or not the same one.
pub fn wheel(topics: &WheelTopics, found: &Partitions) -> Result<Wheel, TopicError> {
    let shares = |ring: Ring| {
        let topic = topics.topic(ring).to_owned();
        let partitions = found.get(&topic).copied().unwrap_or(0);
        ring.shares(partitions).ok_or(TopicError::Partitions { topic, partitions, buckets: ring.buckets() })
    };
    let (hours, minutes) = (shares(Ring::Hours)?, shares(Ring::Minutes)?);
    if hours == minutes {
        return Ok(Wheel { shares: hours });
    }
    Err(TopicError::Shares {
        hours: topics.topic(Ring::Hours).to_owned(),
        minutes: topics.topic(Ring::Minutes).to_owned(),
        shares: [hours, minutes],
    })
}

/// How many partitions a topic of a wheel has that is made with so many shares; `None` for any other topic.
pub(super) fn partitions(options: &KafkaOptions, topic: &str, shares: u16) -> Option<i32> {
    let ring = Ring::ALL.into_iter().find(|ring| options.wheels().any(|wheel| wheel.topic(*ring) == topic))?;
    i32::try_from(ring.buckets() * i64::from(shares)).ok()
}

/// The settings by which a topic may lose an intent that is deferred for `max_ms` at most.
#[must_use]
pub fn keeps_too_little(settings: &TopicSettings, max_ms: i64) -> Vec<KeepsTooLittle> {
    let required_ms = max_ms.saturating_add(KEPT_BEYOND_MS);
    settings.keeps_too_little(required_ms, "deferred intents may be deleted before they are decided")
}

/// Asks for the settings of a wheel's topics, and whether they keep what is deferred for `max_ms` at most.
///
/// # Errors
/// They do not, or the settings cannot be read.
pub async fn verify(options: &KafkaOptions, topics: &WheelTopics, max_ms: i64) -> Result<(), TopicError> {
    let names = Ring::ALL.map(|ring| topics.topic(ring));
    let found: BTreeMap<String, TopicSettings> = topic_settings::describe(options, &names).await?;
    for (topic, settings) in found {
        if let Some(wrong) = keeps_too_little(&settings, max_ms).into_iter().next() {
            return Err(TopicError::Keeps {
                command: wrong.command(&options.brokers, &topic),
                topic,
                wrong: Box::new(wrong),
            });
        }
    }
    Ok(())
}
