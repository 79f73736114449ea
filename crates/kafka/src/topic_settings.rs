//! The settings of topics that weir depends on: how large a record may be, and how long records are kept.

use std::collections::BTreeMap;

use rdkafka::admin::{AdminOptions, ResourceSpecifier};

use super::{
    client::KafkaOptions,
    rights::Right,
    topics::{ANSWER_TIMEOUT, TopicError, admin, not_allowed},
};

/// The setting that says how long records are kept.
pub const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const CLEANUP_POLICY: &str = "cleanup.policy";
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
/// Retention without end.
const FOR_EVER: &str = "-1";

/// A topic's settings by name, the broker's defaults included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicSettings(BTreeMap<String, String>);

/// A setting by which a topic may lose records that are needed still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepsTooLittle {
    /// Which setting.
    pub setting: &'static str,
    /// What it is.
    pub value: String,
    /// What it has to be.
    pub required: String,
    /// Why.
    pub because: &'static str,
}

/// Of names and values.
impl<'s> FromIterator<(&'s str, &'s str)> for TopicSettings {
    fn from_iter<I: IntoIterator<Item = (&'s str, &'s str)>>(settings: I) -> Self {
        Self(settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl TopicSettings {
    /// The largest record that the topic takes, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> Option<u64> {
        self.0.get(MAX_MESSAGE_BYTES)?.parse().ok()
    }

    /// How long the topic keeps a record, in milliseconds; `None` where that is for ever, or not known.
    #[must_use]
    pub fn retention_ms(&self) -> Option<i64> {
        self.0.get(RETENTION_MS)?.parse().ok().filter(|ms| *ms >= 0)
    }

    /// The settings by which the topic may lose a record that is younger than `required_ms`; `because` says what that means.
    #[must_use]
    pub fn keeps_too_little(&self, required_ms: i64, because: &'static str) -> Vec<KeepsTooLittle> {
        let value = |setting: &str| self.0.get(setting).map(String::as_str);
        let mut short = Vec::new();
        let mut add = |setting, value: &str, required: String, because| {
            short.push(KeepsTooLittle { setting, value: value.to_owned(), required, because });
        };
        if let Some(policy) = value(CLEANUP_POLICY)
            && policy.split(',').any(|word| word.trim() != "delete")
        {
            add(CLEANUP_POLICY, policy, "delete".to_owned(), "compaction deletes all but the last record of a key");
        }
        if let Some(kept) = value(RETENTION_MS)
            && kept.parse::<i64>().is_ok_and(|kept_ms| kept_ms >= 0 && kept_ms < required_ms)
        {
            add(RETENTION_MS, kept, required_ms.to_string(), because);
        }
        if let Some(bytes) = value(RETENTION_BYTES)
            && bytes != FOR_EVER
        {
            add(RETENTION_BYTES, bytes, FOR_EVER.to_owned(), "a busy partition deletes records before retention.ms");
        }
        short
    }
}

impl KeepsTooLittle {
    /// What the setting has to be, for people.
    #[must_use]
    pub fn must_be(&self) -> String {
        if self.setting == RETENTION_MS { format!("{} or more", self.required) } else { self.required.clone() }
    }

    /// The command that repairs it.
    #[must_use]
    pub fn command(&self, brokers: &str, topic: &str) -> String {
        format!(
            "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} --add-config \
             {}={}",
            self.setting, self.required
        )
    }
}

/// The topics that a lost history is rebuilt from.
#[must_use]
pub fn rebuilt_from(options: &KafkaOptions) -> Vec<&str> {
    let reports = options.delivery_reports.as_deref();
    options.approved_topics().into_iter().chain(options.refunds.as_deref()).chain(reports).collect()
}

/// The settings of each of these topics.
///
/// # Errors
/// The broker cannot be asked, or does not allow it.
pub async fn describe(options: &KafkaOptions, topics: &[&str]) -> Result<BTreeMap<String, TopicSettings>, TopicError> {
    let resources: Vec<ResourceSpecifier<'_>> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let how = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
    let answers = admin(options)?
        .describe_configs(&resources, &how)
        .await
        .map_err(|error| TopicError::Unreachable { brokers: options.brokers.clone(), reason: error.to_string() })?;
    let (mut found, mut hidden) = (BTreeMap::new(), Vec::new());
    for (topic, answer) in topics.iter().zip(answers) {
        let entries = answer.map(|config| config.entries).unwrap_or_default();
        // A refusal comes as a topic without settings.
        if entries.is_empty() {
            hidden.push(Right::DescribeConfigs((*topic).to_owned()));
        }
        let settings = entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect();
        found.insert((*topic).to_owned(), TopicSettings(settings));
    }
    if hidden.is_empty() { Ok(found) } else { Err(not_allowed(options, hidden)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_delete_a_record_of_the_history_is_found() {
        const DAY_MS: i64 = 86_400_000;
        let short = |set: &[(&str, &str)]| -> Vec<(&'static str, String)> {
            let settings = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let short = TopicSettings(settings).keeps_too_little(8 * DAY_MS, "");
            short.into_iter().map(|short| (short.setting, short.required)).collect()
        };
        let ms = |required: &str| vec![(RETENTION_MS, required.to_owned())];
        assert_eq!(short(&[(RETENTION_MS, "604800000")]), ms("691200000"));
        assert_eq!(short(&[(RETENTION_MS, "0")]), ms("691200000"));
        for enough in ["691200000", "691200001", "-1"] {
            assert_eq!(short(&[(RETENTION_MS, enough), (RETENTION_BYTES, "-1"), (CLEANUP_POLICY, "delete")]), []);
        }
        assert_eq!(short(&[(RETENTION_BYTES, "1073741824")]), [(RETENTION_BYTES, "-1".to_owned())]);
        for policy in ["compact", "compact,delete", "delete, compact"] {
            assert_eq!(short(&[(CLEANUP_POLICY, policy)]), [(CLEANUP_POLICY, "delete".to_owned())], "{policy}");
        }
        assert_eq!(short(&[]), [], "what is not known is not a finding");
    }
}
