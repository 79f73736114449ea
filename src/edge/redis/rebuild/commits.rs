//! Restores the table of what a group has committed, which is lost with the node of the keyspace's tables.

use redis::cmd;

use super::{Rebuild, ask_all};
use crate::{
    domain::origin::Topic,
    edge::redis::{
        commits::{RESTORED, field},
        node::Request,
    },
    worker::ports::StoreError,
};

/// Fields of one HSET.
const FIELDS_A_CALL: usize = 500;

impl Rebuild {
    /// Whether the table is lost.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn has_lost_commits(&mut self) -> Result<bool, StoreError> {
        let mut command = cmd("HGET");
        command.arg(self.keyspace.commits_key()).arg("epoch");
        let slot = self.keyspace.meta_slot();
        let found = ask_all(&mut self.cluster, vec![(slot, Request::Plain(command))]).await?;
        let epoch: Option<String> = found.into_iter().find_map(|epoch| redis::from_redis_value(epoch).ok());
        Ok(epoch.as_deref() != Some(self.keyspace.epoch()))
    }

    /// Makes the table, with all these partitions as committed: where histories have to be rebuilt, intents were decided, and
    /// weir commits the start of a partition before it reads it.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn restore_commits(&mut self, group: &str, topic: &Topic, partitions: &[i32]) -> Result<(), StoreError> {
        let table = self.keyspace.commits_key();
        let mut gone = cmd("DEL");
        gone.arg(table);
        let mut commands = vec![gone];
        for partitions in partitions.chunks(FIELDS_A_CALL) {
            let mut noted = cmd("HSET");
            noted.arg(table);
            for partition in partitions {
                noted.arg(field(group, topic, *partition)).arg(RESTORED);
            }
            commands.push(noted);
        }
        // Last: a table that is restored by halves is a lost one.
        let mut whole = cmd("HSET");
        whole.arg(table).arg("epoch").arg(self.keyspace.epoch());
        commands.push(whole);
        for command in commands {
            ask_all(&mut self.cluster, vec![(self.keyspace.meta_slot(), Request::Plain(command))]).await?;
        }
        Ok(())
    }
}
