//! Restores the table of what a group has committed, which is lost with the node of the keyspace's tables.

use weir_core::{basis::origin::Topic, ports::StoreError};

use super::{Command, Rebuild, RebuildError, names::are_of};
use crate::commits::{RESTORED, field};

const FIELDS_A_WRITE: usize = 500;

impl Rebuild {
    pub async fn has_lost_commits(&mut self) -> Result<bool, StoreError> {
        Ok(!are_of(&mut self.cluster, &self.keyspace, &[self.keyspace.commits_key()]).await?)
    }

    /// Makes the table, with all these partitions of these groups' topics as committed: where histories have to be rebuilt, intents
    /// were decided, and weir commits the start of a partition before it reads it.
    pub async fn restore_commits(&mut self, committed: &[(String, Topic, Vec<i32>)]) -> Result<(), RebuildError> {
        let table = self.keyspace.commits_key().to_owned();
        self.write(vec![Command::delete([&table])]).await?;
        for (group, topic, partitions) in committed {
            for partitions in partitions.chunks(FIELDS_A_WRITE) {
                let noted = partitions.iter().map(|partition| (field(group, topic, *partition), RESTORED));
                self.write(vec![Command::set_fields(&table, noted)]).await?;
            }
        }
        // Last: a table that is restored by halves is a lost one.
        self.write(vec![Command::set_fields(table, [("epoch", self.keyspace.epoch())])]).await
    }
}
