//! Restores the table of what a group has committed, which is lost with the node of the keyspace's tables.

use weir_core::{basis::origin::Topic, ports::StoreError};

use super::{Command, Rebuild, RebuildError, ask_all};
use crate::{
    commits::{RESTORED, field},
    node::Request,
};

const FIELDS_A_WRITE: usize = 500;

impl Rebuild {
    pub async fn has_lost_commits(&mut self) -> Result<bool, StoreError> {
        let epoch = Request::plain("HGET", (self.keyspace.commits_key(), "epoch"));
        let found = ask_all(&mut self.cluster, vec![(self.keyspace.meta_slot(), epoch)]).await?;
        let epoch: Option<String> = found.into_iter().find_map(|epoch| redis::from_redis_value(epoch).ok());
        Ok(epoch.as_deref() != Some(self.keyspace.epoch()))
    }

    /// Makes the table, with all these partitions of these groups' topics as committed: where histories have to be rebuilt, intents
    /// were decided, and weir commits the start of a partition before it reads it.
    pub async fn restore_commits(&mut self, committed: &[(String, Topic, Vec<i32>)]) -> Result<(), RebuildError> {
        let table = self.keyspace.commits_key().to_owned();
        self.write(vec![Command::delete([table.clone()])]).await?;
        for (group, topic, partitions) in committed {
            for partitions in partitions.chunks(FIELDS_A_WRITE) {
                let noted = partitions.iter().map(|partition| (field(group, topic, *partition), RESTORED.to_owned()));
                self.write(vec![Command::set_fields(table.clone(), noted)]).await?;
            }
        }
        // Last: a table that is restored by halves is a lost one.
        let epoch = [("epoch".to_owned(), self.keyspace.epoch().to_owned())];
        self.write(vec![Command::set_fields(table, epoch)]).await
    }
}
