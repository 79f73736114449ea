//! Moving slots between primaries, as `redis-cli --cluster reshard` does it, and stopping half way.

use anyhow::{Result, ensure};

use super::RedisCluster;

const KEYS_A_MIGRATE: usize = 100;
/// How long MIGRATE may block the servers, in milliseconds.
const MIGRATE_MS: &str = "5000";

/// A slot that is being moved. Until [`SlotMove::finish`], the old owner answers ASK for keys that it has no more,
/// and TRYAGAIN for a command whose keys are here and there.
#[derive(Debug)]
#[must_use = "the slot stays half moved until it is finished"]
pub struct SlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: usize,
    to: usize,
}

impl RedisCluster {
    /// Moves slots with all their keys from one primary to another, under traffic if there is any, and waits until
    /// all nodes know.
    pub fn move_slots(&self, slots: impl IntoIterator<Item = u16>, from: usize, to: usize) -> Result<()> {
        for slot in slots {
            self.begin_move(slot, from, to)?.move_rest()?;
        }
        self.wait_agreed()
    }

    /// Begins to move a slot: both nodes know, no key has moved yet.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<SlotMove<'_>> {
        let slot = slot.to_string();
        let (from_id, to_id) = (self.id_of(from)?, self.id_of(to)?);
        let () = self.node(to).query(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
        let () = self.node(from).query(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        Ok(SlotMove { cluster: self, slot, from, to })
    }
}

impl SlotMove<'_> {
    /// Moves up to `count` of the slot's keys and says how many it moved.
    pub fn move_keys(&self, count: usize) -> Result<usize> {
        let from = self.cluster.node(self.from);
        let keys: Vec<String> = from.query(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &count.to_string()])?;
        if !keys.is_empty() {
            self.migrate(&keys)?;
        }
        Ok(keys.len())
    }

    pub fn move_key(&self, key: &str) -> Result<()> {
        self.migrate(&[key.to_owned()])
    }

    /// Moves all keys that are left, and the slot with them, and waits until all nodes know.
    pub fn finish(self) -> Result<()> {
        let cluster = self.cluster;
        self.move_rest()?;
        cluster.wait_agreed()
    }

    fn move_rest(self) -> Result<()> {
        while self.move_keys(KEYS_A_MIGRATE)? > 0 {}
        let cluster = self.cluster;
        let left: usize = cluster.node(self.from).query(&["CLUSTER", "COUNTKEYSINSLOT", &self.slot])?;
        ensure!(left == 0, "{left} keys of slot {} are still on node {}", self.slot, self.from);
        let to_id = cluster.id_of(self.to)?;
        // The new owner first, so that nobody is sent to a node that does not know yet.
        let others = cluster.primaries()?.into_iter().filter(|node| ![self.from, self.to].contains(node));
        for node in [self.to, self.from].into_iter().chain(others) {
            let said: Result<()> = cluster.node(node).query(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &to_id]);
            match said {
                // A primary without slots becomes a replica of the new owner, and knows already.
                Err(error) if node == self.from && format!("{error:#}").contains("only with masters") => {}
                said => said?,
            }
        }
        Ok(())
    }

    fn migrate(&self, keys: &[String]) -> Result<()> {
        let port = self.cluster.node(self.to).port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_MS, "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        let said: String = self.cluster.node(self.from).query(&command)?;
        ensure!(said == "OK" || said == "NOKEY", "MIGRATE said {said}");
        Ok(())
    }
}
