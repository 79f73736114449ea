//! Where partitions start without a committed offset if `auto.offset.reset` is `latest`: at their ends at the first start of the group,
//! and at their beginnings where they appear later.
//!
//! invariant: at a first start the member that has the first partition commits where all partitions start, in one request; the others
//! wait for it. So a partition without an offset, where another has one, was not there at the first start.

use rdkafka::TopicPartitionList;

use super::{
    KafkaSource, Progress, SourceError, Topic,
    starts::{Committed, OFFSETS_TIMEOUT},
};
use crate::{
    client::OffsetReset,
    offsets::{Logical, partitions_of},
};

impl KafkaSource {
    /// Finds where these partitions of the member start, and commits that.
    pub(super) fn start_at_the_end(&self, topic: &Topic, missing: &[i32]) -> Result<Vec<Progress>, SourceError> {
        let mut all = partitions_of(&self.consumer, &self.topic, OFFSETS_TIMEOUT)
            .map_err(|error| self.unread("the topic's partitions cannot be read", &error))?;
        // The broker that was asked may not know those yet that were added last.
        all.extend(missing);
        all.sort_unstable();
        all.dedup();
        let mut asked = TopicPartitionList::with_capacity(all.len());
        for &partition in &all {
            asked.add_partition(&self.topic, partition);
        }
        let Committed { mut starts, is_of_another, .. } = self.committed(&asked, topic)?;
        if starts.is_empty() && !is_of_another {
            return self.first_start(topic, (missing, &all));
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

    /// Commits where all partitions start, if the first one is this member's.
    fn first_start(&self, topic: &Topic, (own, all): (&[i32], &[i32])) -> Result<Vec<Progress>, SourceError> {
        let first = all.first().copied().unwrap_or_default();
        if !own.contains(&first) {
            return Err(SourceError::Temporary(format!(
                "the first start of the group {} on {}: the member that has partition {first} commits where all start",
                self.options.group, topic.name
            )));
        }
        // What a recreated topic holds was published while the group was reading its predecessor.
        let which = if self.identity.is_recreated() { Logical::Earliest } else { Logical::Latest };
        let mut starts = self.commit_starts(topic, all, self.ends(all, which)?)?;
        starts.retain(|start| own.contains(&start.partition));
        Ok(starts)
    }
}
