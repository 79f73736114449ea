//! Where partitions start without a committed offset if `auto.offset.reset` is `latest`: at their ends at the first start of the group,
//! and at their beginnings where they appear later, also as those of a topic that was deleted and recreated.
//!
//! invariant: at a first start the member that has the first partition commits where all partitions start, in one request; the others
//! wait for it. So a partition without an offset, where the first one has an offset, was not there at the first start.

use rdkafka::Offset;

use super::{
    KafkaSource, Progress, SourceError, Topic,
    starts::{Committed, OFFSETS_TIMEOUT},
};
use crate::{
    client::OffsetReset,
    offsets::{bare_list, partitions_of},
};

/// The first partition of any topic.
const FIRST: i32 = 0;

impl KafkaSource {
    /// Finds where these partitions of the member start, and commits that.
    pub(super) async fn start_at_the_end(
        &mut self,
        topic: &Topic,
        missing: &[i32],
    ) -> Result<Vec<Progress>, SourceError> {
        let has_first = missing.contains(&FIRST);
        // Where the first one is another member's, nothing else is asked of others: Kafka answers for none of these partitions while an
        // open transaction has an offset of one of them, and in a large group that is nearly always so.
        let mut asked = if has_first {
            partitions_of(&self.consumer, &self.topic, OFFSETS_TIMEOUT)
                .map_err(|error| self.unread("the topic's partitions cannot be read", &error))?
        } else {
            vec![FIRST]
        };
        // The broker that was asked may not know those yet that were added last.
        asked.extend(missing);
        asked.sort_unstable();
        asked.dedup();
        let Committed { mut starts, is_of_another, .. } = self.committed(&bare_list(&self.topic, &asked), topic)?;
        if starts.is_empty() && !is_of_another {
            if has_first {
                return self.first_start(topic, (missing, &asked)).await;
            }
            return Err(SourceError::Temporary(format!(
                "the first start of the group {} on {}: the member that has partition {FIRST} commits where all start",
                self.options.group, topic.name
            )));
        }
        // Another member may have committed them since they were missing.
        starts.retain(|start| missing.contains(&start.partition));
        let is_started = |partition: &i32| starts.iter().any(|start| start.partition == *partition);
        let added: Vec<i32> = missing.iter().copied().filter(|partition| !is_started(partition)).collect();
        if !added.is_empty() {
            starts.extend(self.reset(topic, &added, OffsetReset::Earliest)?);
        }
        Ok(starts)
    }

    /// Commits where all partitions start. Gives those of this member.
    async fn first_start(&mut self, topic: &Topic, (own, all): (&[i32], &[i32])) -> Result<Vec<Progress>, SourceError> {
        // What the table knows of another member's partitions alone: this is no first start either.
        self.refuse_what_was_lost(topic, all).await?;
        // What a recreated topic holds was published when the group was reading already.
        let is_recreated = self.identity.is_recreated() || self.has_read_predecessor(topic).await?;
        let which = if is_recreated { Offset::Beginning } else { Offset::End };
        let mut starts = self.commit_starts(topic, all, self.ends(all, which)?)?;
        starts.retain(|start| own.contains(&start.partition));
        Ok(starts)
    }
}
