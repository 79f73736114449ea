//! Rights at a Kafka, and which one an error says is missing.

use rdkafka::error::RDKafkaErrorCode;

use super::client::KafkaOptions;

/// A right, called as `kafka-acls` calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    ReadTopic(String),
    WriteTopics(Vec<String>),
    CreateTopic(String),
    DescribeConfigs(String),
    /// To be a member of a group and commit its offsets.
    ReadGroup(String),
    /// To see what a group has committed.
    DescribeGroup(String),
    WriteTransactionalId(String),
    WriteTransactionalIds {
        prefix: String,
    },
    /// To write without transactions, each record once.
    IdempotentWrite,
}

impl Right {
    pub(super) const fn is_of_a_group(&self) -> bool {
        matches!(self, Self::ReadGroup(_) | Self::DescribeGroup(_))
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ReadTopic(topic) => write!(f, "READ on the topic {topic}"),
            Self::WriteTopics(topics) if topics.len() == 1 => write!(f, "WRITE on the topic {}", topics.join("")),
            Self::WriteTopics(topics) => write!(f, "WRITE on each of the topics {}", topics.join(", ")),
            Self::CreateTopic(topic) => write!(f, "CREATE on the topic {topic}"),
            Self::DescribeConfigs(topic) => write!(f, "DESCRIBE_CONFIGS on the topic {topic}"),
            Self::ReadGroup(group) => write!(f, "READ on the group {group}"),
            Self::DescribeGroup(group) => write!(f, "DESCRIBE on the group {group}"),
            Self::WriteTransactionalId(id) => write!(f, "WRITE on the transactional id {id}"),
            Self::WriteTransactionalIds { prefix } => {
                write!(f, "WRITE on the transactional ids {prefix}* (--resource-pattern-type prefixed)")
            }
            Self::IdempotentWrite => f.write_str("IDEMPOTENT_WRITE on the cluster, or WRITE on an output topic"),
        }
    }
}

impl KafkaOptions {
    /// The right that a reader lacks, if that is what the code says.
    pub(super) fn right_to_read(&self, code: RDKafkaErrorCode) -> Option<Right> {
        // A reader's rights are the same in every lane.
        self.lacking(code, 0, || Right::ReadTopic(self.intents.clone()))
    }

    /// The right that the writer of a lane lacks, if that is what the code says. `topic` is the one it is about, if that is known.
    pub(super) fn right_to_write(&self, lane: usize, code: RDKafkaErrorCode, topic: Option<&str>) -> Option<Right> {
        let all = || self.outputs().into_iter().map(|(_, topic)| topic.to_owned()).collect();
        self.lacking(code, lane, || Right::WriteTopics(topic.map_or_else(all, |topic| vec![topic.to_owned()])))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    fn lacking(&self, code: RDKafkaErrorCode, lane: usize, of_topic: impl FnOnce() -> Right) -> Option<Right> {
        match code {
            RDKafkaErrorCode::TopicAuthorizationFailed => Some(of_topic()),
            RDKafkaErrorCode::GroupAuthorizationFailed => Some(Right::ReadGroup(self.group.clone())),
            RDKafkaErrorCode::TransactionalIdAuthorizationFailed => {
                Some(Right::WriteTransactionalId(self.transactional_id(lane)))
            }
            RDKafkaErrorCode::ClusterAuthorizationFailed => Some(Right::IdempotentWrite),
            _ => None,
        }
    }
}
