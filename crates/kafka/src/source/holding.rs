//! Whether an assignment still holds when it is taken up.
//!
//! librdkafka gives a member's generation as of now, and a rebalance waits until the application looks. When the topic grows, or
//! the member was thought dead, meanwhile, the client joins again without a revocation: the old assignment would be read under the
//! new generation, whose commits the broker takes. So the coordinator is asked whether the member has these partitions. If the
//! generation changes after that, the broker refuses commits under the noted one.

use std::ffi::CString;
use std::time::Duration;

use rdkafka::{TopicPartitionList, consumer::Consumer};

use super::{KafkaSource, SourceError};
use crate::native::{answers::Answers, members::Holding};

/// How long the coordinator may take. It blocks the lane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

impl KafkaSource {
    /// Checks that the group has given these partitions to this member, and no others since.
    ///
    /// # Errors
    /// It has moved on, and its next assignment is under way; or the coordinator does not answer.
    pub(super) fn check_holding(&self, partitions: &TopicPartitionList) -> Result<(), SourceError> {
        let client = self.consumer.client();
        let group = CString::new(self.options.group.as_str())
            .map_err(|_| SourceError::Fatal("kafka.group holds a NUL".to_owned()))?;
        let answers = Answers::new(client).map_err(SourceError::Temporary)?;
        match answers.holding(client, (&group, partitions), ANSWER_TIMEOUT) {
            Ok(Holding::Held | Holding::NotAsked) => Ok(()),
            Ok(Holding::Others) => Err(SourceError::Temporary(format!(
                "the group {} has given its partitions again since; waiting for the new assignment",
                self.options.group
            ))),
            Err(code) => Err(SourceError::Temporary(format!(
                "the coordinator of the group {} does not say which partitions this member has: {code}",
                self.options.group
            ))),
        }
    }
}
