//! The settings of topics that weir depends on: how large a record may be, and how long records are kept.

use std::{
    collections::BTreeMap,
    ffi::CString,
    time::{Duration, Instant},
};

use rdkafka::{
    consumer::Consumer as _,
    error::{KafkaError, RDKafkaErrorCode},
};

use super::{
    client::KafkaOptions,
    native::{answers::Answers, settings::Told},
    new_topics::{ASK_AGAIN_AFTER, is_not_known_yet},
    rights::Right,
    topics::{ANSWER_TIMEOUT, TopicError, asking, blocking, unanswered},
};

pub const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const CLEANUP_POLICY: &str = "cleanup.policy";
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
/// How long a broker may take to learn of a topic that another one has told of already.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
const FOR_EVER: &str = "-1";

/// A topic's settings by name, the broker's defaults included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicSettings(BTreeMap<String, String>);

/// A setting by which a topic may lose records that are needed still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepsTooLittle {
    pub setting: &'static str,
    pub value: String,
    pub required: String,
    pub because: &'static str,
}

impl<'s> FromIterator<(&'s str, &'s str)> for TopicSettings {
    fn from_iter<I: IntoIterator<Item = (&'s str, &'s str)>>(settings: I) -> Self {
        Self(settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl TopicSettings {
    pub fn max_message_bytes(&self) -> Option<u64> {
        self.0.get(MAX_MESSAGE_BYTES)?.parse().ok()
    }

    /// How long the topic keeps a record, in milliseconds; `None` where that is for ever, or not known.
    pub fn retention_ms(&self) -> Option<i64> {
        self.0.get(RETENTION_MS)?.parse().ok().filter(|ms| *ms >= 0)
    }

    /// The settings by which the topic may lose a record that is younger than `required_ms`; `because` says what that means.
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
    pub fn must_be(&self) -> String {
        if self.setting == RETENTION_MS { format!("{} or more", self.required) } else { self.required.clone() }
    }

    /// The command that repairs it.
    pub fn command(&self, brokers: &str, topic: &str) -> String {
        format!(
            "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} --add-config \
             {}={}",
            self.setting, self.required
        )
    }
}

/// The topics that a lost history is rebuilt from.
pub fn rebuilt_from(options: &KafkaOptions) -> Vec<&str> {
    let reports = options.delivery_reports.as_deref();
    options.approved_topics().into_iter().chain(options.refunds.as_deref()).chain(reports).collect()
}

/// The settings of each of these topics. One that the broker does not know yet is waited for.
pub async fn describe(options: &KafkaOptions, topics: &[&str]) -> Result<BTreeMap<String, TopicSettings>, TopicError> {
    let begun = Instant::now();
    let topics: Vec<String> = topics.iter().map(|&topic| topic.to_owned()).collect();
    loop {
        match describe_known(options, &topics).await? {
            (_, Some(TopicError::Missing { .. })) if begun.elapsed() < KNOWN_WITHIN => {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            (_, Some(trouble)) => return Err(trouble),
            (found, None) => return Ok(found),
        }
    }
}

/// Whether no setting of these topics is one by which they may lose records.
pub(super) async fn verify(
    options: &KafkaOptions,
    topics: &[&str],
    short: impl Fn(&TopicSettings) -> Vec<KeepsTooLittle>,
) -> Result<(), TopicError> {
    for (topic, settings) in describe(options, topics).await? {
        if let Some(wrong) = short(&settings).into_iter().next() {
            let command = wrong.command(&options.brokers, &topic);
            return Err(TopicError::Keeps { topic, wrong: Box::new(wrong), command });
        }
    }
    Ok(())
}

/// The settings of those topics that a broker describes, and why it does not describe another one.
pub(super) type Known = (BTreeMap<String, TopicSettings>, Option<TopicError>);

/// What the broker describes of these topics now: what it tells of one does not depend on the others.
pub(super) async fn describe_known(options: &KafkaOptions, topics: &[String]) -> Result<Known, TopicError> {
    let (asked, wanted) = (options.clone(), topics.to_vec());
    Ok(told(&options.brokers, blocking(move || ask(&asked, &wanted)).await?))
}

/// What a broker answers for each topic. Blocks.
fn ask(options: &KafkaOptions, topics: &[String]) -> Result<Vec<(String, Told)>, TopicError> {
    let names = topics.iter().map(|topic| CString::new(topic.as_str())).collect::<Result<Vec<CString>, _>>();
    let names = names.map_err(|error| TopicError::Client(error.to_string()))?;
    let consumer = asking(options, &options.client())?;
    let answers = Answers::new(consumer.client()).map_err(TopicError::Client)?;
    let told = answers.topic_settings(consumer.client(), &names, ANSWER_TIMEOUT);
    told.map_err(|code| unanswered(options, &consumer, KafkaError::AdminOp(code)))
}

fn told(brokers: &str, answers: Vec<(String, Told)>) -> Known {
    let (mut found, mut hidden, mut unknown, mut failed) = (BTreeMap::new(), Vec::new(), Vec::new(), None);
    let brokers = brokers.to_owned();
    for (topic, answer) in answers {
        match answer {
            Ok(settings) => {
                found.insert(topic, TopicSettings(settings.into_iter().collect()));
            }
            Err(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed) => {
                hidden.push(Right::DescribeConfigs(topic));
            }
            Err(code) if is_not_known_yet(code) => unknown.push(topic),
            Err(code) => failed = failed.or(Some((topic, code.to_string()))),
        }
    }
    let trouble = if let Some((topic, reason)) = failed {
        Some(TopicError::NotTold { brokers, topic, reason })
    } else if !hidden.is_empty() {
        Some(TopicError::NotAllowed { brokers, rights: hidden })
    } else if !unknown.is_empty() {
        Some(TopicError::Missing { brokers, topics: unknown })
    } else {
        None
    };
    (found, trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_delete_a_record_of_the_history_is_found() {
        const DAY_MS: i64 = 86_400_000;
        for (setting, value, required) in [
            (RETENTION_MS, "604800000", Some("691200000")),
            (RETENTION_MS, "0", Some("691200000")),
            (RETENTION_MS, "691200000", None),
            (RETENTION_MS, "691200001", None),
            (RETENTION_MS, "-1", None),
            (RETENTION_BYTES, "1073741824", Some("-1")),
            (RETENTION_BYTES, "-1", None),
            (CLEANUP_POLICY, "compact", Some("delete")),
            (CLEANUP_POLICY, "compact,delete", Some("delete")),
            (CLEANUP_POLICY, "delete, compact", Some("delete")),
            (CLEANUP_POLICY, "delete", None),
        ] {
            // Settings that brokers did not report are no findings.
            let short = TopicSettings([(setting.to_owned(), value.to_owned())].into()).keeps_too_little(8 * DAY_MS, "");
            let found: Vec<_> = short.iter().map(|short| (short.setting, short.required.as_str())).collect();
            assert_eq!(found, required.map(|required| (setting, required)).into_iter().collect::<Vec<_>>(), "{value}");
        }
    }

    #[test]
    fn a_refusal_a_topic_that_is_not_known_and_other_errors_are_told_apart() {
        const BROKERS: &str = "kafka-1:9092";
        let known = || ("kept".to_owned(), Ok(vec![(RETENTION_MS.to_owned(), "1".to_owned())]));
        let with = |code| {
            let (found, trouble) = told(BROKERS, vec![("other".to_owned(), Err(code)), known()]);
            let kept_ms = found["kept"].retention_ms();
            assert_eq!(kept_ms, Some(1), "{code:?}: what is told of one does not depend on another");
            trouble.unwrap()
        };
        let (found, trouble) = told(BROKERS, vec![known()]);
        assert!(trouble.is_none() && found.len() == 1, "{trouble:?}");

        let refused = with(RDKafkaErrorCode::TopicAuthorizationFailed).to_string();
        assert!(refused.contains("grant DESCRIBE_CONFIGS on the topic other"), "{refused}");
        for code in [RDKafkaErrorCode::UnknownTopicOrPartition, RDKafkaErrorCode::LeaderNotAvailable] {
            let unknown = with(code);
            let is_missing = matches!(&unknown, TopicError::Missing { topics, .. } if *topics == ["other"]);
            assert!(is_missing, "{code:?} is waited for: {unknown}");
        }
        for code in [RDKafkaErrorCode::RequestTimedOut, RDKafkaErrorCode::InvalidRequest] {
            let told = with(code).to_string();
            assert!(told.contains("settings of the topic other") && !told.contains("grant"), "{told}");
        }
        // What has no settings of its own is no refusal.
        let (found, trouble) = told(BROKERS, vec![("bare".to_owned(), Ok(vec![]))]);
        assert!(trouble.is_none() && found.contains_key("bare"), "{trouble:?}");
    }
}
