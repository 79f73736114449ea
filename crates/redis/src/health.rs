//! How each node and shard of a Redis is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use redis::cmd;
use weir_core::ports::{NodeHealth, ShardsFound, StoreError};

use super::{
    address::NodeAddr,
    cluster::Cluster,
    keyspace::Keyspace,
    node::Request,
    open::look_at_epochs,
    request_error::{RequestError, lost_history},
    stats::RetryCause,
    store::RedisStore,
};

/// Looks in which every shard is asked for its epoch once: few requests per look, and all of them in seconds.
const LOOKS_A_TURN: u16 = 8;

/// Where the next look goes on.
#[derive(Debug, Default)]
pub(super) struct ShardLook {
    next: u16,
    /// Something was wrong: the next look is at all shards.
    uneasy: bool,
}

impl ShardLook {
    fn wanted(&mut self, all: u16) -> BTreeSet<u16> {
        if self.uneasy {
            return (0..all).collect();
        }
        let count = all.div_ceil(LOOKS_A_TURN);
        let wanted = (0..count).map(|at| self.next.wrapping_add(at) % all).collect();
        self.next = self.next.wrapping_add(count) % all;
        wanted
    }
}

impl RedisStore {
    /// Finds the shards that do not answer or have lost their history. Every node is sent a PING; nodes that answer are asked
    /// for the epochs of some shards, in turn; of all shards, once something is wrong. So a loss shows without an intent, too.
    /// A node that does not answer takes `redis.timeout`.
    pub async fn look_at_shards(&mut self) -> ShardsFound {
        let Self { cluster, keyspace, look, lost, .. } = self;
        let mut wanted = look.wanted(keyspace.meta().layout.shards);
        wanted.extend(lost.iter().copied());
        let mut found = unanswered(cluster, keyspace).await;
        wanted.retain(|shard| !found.unavailable.contains(shard));
        let epochs = look_at_epochs(cluster, keyspace, wanted.into_iter().collect()).await;
        found.lost = epochs.lost;
        for (shard, error) in epochs.silent {
            found.unavailable.push(shard);
            found.why.get_or_insert(error.to_string());
        }
        found.unavailable.sort_unstable();
        look.uneasy = !(found.unavailable.is_empty() && found.lost.is_empty());
        self.lost.clone_from(&found.lost);
        self.take_up_new_keyspace().await;
        found
    }

    /// Whether Redis answers and every shard that was looked at has its history.
    pub async fn health(&mut self) -> Result<(), StoreError> {
        let ShardsFound { unavailable, lost, why } = self.look_at_shards().await;
        match why {
            Some(why) => Err(StoreError::Temporary(why)),
            None if !unavailable.is_empty() => Err(StoreError::Temporary("shards do not answer".to_owned())),
            None if lost.is_empty() => Ok(()),
            None => Err(lost_history(lost, "their epoch is gone or another")),
        }
    }

    /// Asks every primary how it is, one after the other. A node that does not answer takes `redis.timeout`.
    pub async fn look_at_nodes(&mut self) -> Vec<NodeHealth> {
        let mut all = Vec::new();
        for node in self.cluster.primaries() {
            let began = Instant::now();
            let mut reply = self.cluster.ask_node(&node, Request::Plain(cmd("INFO"))).await;
            // An ACL may keep INFO back; then that it answers has to do.
            if reply.as_ref().is_err_and(|error| error.cause == RetryCause::Refused) {
                reply = self.cluster.ask_node(&node, Request::Plain(cmd("PING"))).await;
            }
            let answered_ms = began.elapsed().as_secs_f64() * 1000.0;
            let health = match reply {
                Ok(value) => told(&redis::from_redis_value::<String>(value).unwrap_or_default()),
                Err(error) => NodeHealth { trouble: Some(error.to_string()), ..NodeHealth::default() },
            };
            all.push(NodeHealth { node: node.to_string(), answered_ms, ..health });
        }
        all
    }
}

/// The shards of nodes that do not answer.
async fn unanswered(cluster: &mut Cluster, keyspace: &Keyspace) -> ShardsFound {
    let layout = keyspace.meta().layout;
    let silent: BTreeMap<NodeAddr, RequestError> = match cluster.silent_nodes(&cmd("PING")).await {
        Ok(silent) => silent,
        // Nobody knows who owns what: none answers.
        Err(error) => {
            let unavailable = (0..layout.shards).collect();
            return ShardsFound { unavailable, lost: Vec::new(), why: Some(error.to_string()) };
        }
    };
    let owner = |shard: &u16| cluster.map().and_then(|map| map.owner(keyspace.slot(*shard)));
    let is_silent = |shard: &u16| owner(shard).is_some_and(|owner| silent.contains_key(owner));
    let unavailable = if silent.is_empty() { Vec::new() } else { (0..layout.shards).filter(is_silent).collect() };
    ShardsFound { unavailable, lost: Vec::new(), why: silent.values().next().map(ToString::to_string) }
}

fn told(info: &str) -> NodeHealth {
    let number = |name: &str| -> Option<u64> {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim_end().parse().ok()
    };
    let loading = number("loading").is_some_and(|loading| loading != 0);
    NodeHealth {
        trouble: loading.then(|| "it reads its data from disk".to_owned()),
        used_bytes: number("used_memory"),
        limit_bytes: number("maxmemory").filter(|limit| *limit > 0),
        replicas: number("connected_slaves"),
        commands_per_s: number("instantaneous_ops_per_sec"),
        ..NodeHealth::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_info_tells_is_read_and_what_it_keeps_back_is_left_out() {
        let info = "# Memory\r\nused_memory:1048576\r\nused_memory_rss:9\r\nmaxmemory:0\r\nconnected_slaves:1\r\n";
        let health = told(info);
        assert_eq!((health.used_bytes, health.limit_bytes, health.replicas), (Some(1_048_576), None, Some(1)));
        assert_eq!(told("PONG"), NodeHealth::default());
        assert!(told("loading:1\r\nused_memory:x\r\n").trouble.is_some());
    }
}
