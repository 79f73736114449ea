//! Whether an assignment still holds when it is taken up.
//!
//! librdkafka gives a member's generation as of now, and a rebalance waits until the application looks. When the topic grows
//! meanwhile, the client joins again without a revocation: the old assignment would be read under the new generation, whose commits
//! the broker takes. So the coordinator is asked whether the member has these partitions, in a group that is not rebalancing. If the
//! generation changes after that, the broker refuses commits under the noted one.

use std::{ffi::CString, time::Duration};

use rdkafka::{TopicPartitionList, consumer::Consumer, error::KafkaError};

use super::{KafkaSource, SourceError, temporary};
use crate::native::answers::Answers;

/// How long the coordinator may take. It blocks the lane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

impl KafkaSource {
    /// Checks that the group has given these partitions to this member, and no others since. If it has, the assignment is answered
    /// with nothing: without an answer a client that the broker has dropped would never join again.
    ///
    /// # Errors
    /// The group has moved on, and its next assignment is under way; or the coordinator does not answer.
    pub(super) fn check_holding(&mut self, partitions: &TopicPartitionList) -> Result<(), SourceError> {
        let group = CString::new(self.options.group.as_str())
            .map_err(|_| SourceError::Fatal("kafka.group holds a NUL".to_owned()))?;
        let client = self.consumer.client();
        let answers = Answers::new(client).map_err(SourceError::Temporary)?;
        match answers.holds(client, (&group, partitions), ANSWER_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.give_up()?;
                // Not `unassign`, which answers nothing.
                let none = TopicPartitionList::new();
                self.consumer.assign(&none).map_err(|error| temporary("an assignment cannot be refused", &error))?;
                Err(SourceError::Temporary(format!(
                    "the group {} has given its partitions again since; waiting for the new assignment",
                    self.options.group
                )))
            }
            Err(code) => Err(self.unread("the group's assignment cannot be read", &KafkaError::OffsetFetch(code))),
        }
    }
}
