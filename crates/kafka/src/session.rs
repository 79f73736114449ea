//! The session of a group's members: how long the group waits for one that it does not hear from, and what brokers allow.
//!
//! A member that asks for another session is never taken in, and librdkafka would ask again every second.

use std::ops::RangeInclusive;

use rdkafka::consumer::Consumer;

use super::{
    client::KafkaOptions,
    native::answers::Answers,
    sizes::number,
    topics::{ANSWER_TIMEOUT, TopicError, asking, metadata},
};

/// librdkafka's own session, in milliseconds, where the properties do not set another.
const SESSION_TIMEOUT_MS: u64 = 45_000;

const LEAST: &str = "group.min.session.timeout.ms";
const MOST: &str = "group.max.session.timeout.ms";

impl KafkaOptions {
    /// The session that the members of the group ask for, in milliseconds.
    pub fn session_timeout_ms(&self) -> u64 {
        number(&self.properties, "session.timeout.ms").unwrap_or(SESSION_TIMEOUT_MS)
    }

    /// Why brokers do not take members of the group in, and what to do. `allowed_ms`: the sessions that they allow, if that is known.
    pub(super) fn refused_session(&self, allowed_ms: Option<&RangeInclusive<u64>>) -> String {
        let allowed = match allowed_ms {
            Some(ms) => format!("here {} to {}", ms.start(), ms.end()),
            None => "6000 to 1800000 by default".to_owned(),
        };
        format!(
            "Kafka takes no member into the group {} with this session.timeout.ms: set it in [kafka.properties] within the brokers' \
             {LEAST} and {MOST} ({allowed})",
            self.group
        )
    }
}

/// Why brokers would not take members of the group in, as far as they report which sessions they allow. Blocks.
pub fn refused(options: &KafkaOptions) -> Result<Option<String>, TopicError> {
    let allowed = allowed_ms(options)?.filter(|allowed| !allowed.contains(&options.session_timeout_ms()));
    Ok(allowed.map(|allowed| options.refused_session(Some(&allowed))))
}

/// The sessions that brokers allow. `None` where this user may not read it: that is DescribeConfigs on the cluster, a right that weir
/// does not need.
fn allowed_ms(options: &KafkaOptions) -> Result<Option<RangeInclusive<u64>>, TopicError> {
    let consumer = asking(options, &options.client())?;
    let metadata = metadata(options, &consumer, Some(&options.intents))?;
    let Some(broker) = metadata.brokers().first() else { return Ok(None) };
    let answers = Answers::new(consumer.client()).map_err(TopicError::Client)?;
    let Ok(Ok(settings)) = answers.broker_settings(consumer.client(), broker.id(), ANSWER_TIMEOUT) else {
        return Ok(None);
    };
    let value = |wanted: &str| -> Option<u64> {
        let (_, value) = settings.iter().find(|(name, _)| name == wanted)?;
        value.parse().ok()
    };
    Ok(value(LEAST).zip(value(MOST)).map(|(least, most)| least..=most))
}
