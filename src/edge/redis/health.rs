//! How each node of a Redis is: for people who look at the page.

use std::time::Instant;

use redis::cmd;

use super::{store::RedisStore, trouble::Trouble};
use crate::worker::vitals::NodeHealth;

impl RedisStore {
    /// Asks every primary how it is, one after the other. A node that does not answer takes `redis.timeout`.
    pub async fn look_at_nodes(&mut self) -> Vec<NodeHealth> {
        let mut all = Vec::new();
        for node in self.cluster_mut().primaries() {
            let began = Instant::now();
            let mut reply = self.cluster_mut().ask_node(&node, cmd("INFO")).await;
            // An ACL may keep INFO back; then that it answers has to do.
            if let Err(Trouble::Refused { .. }) = &reply {
                reply = self.cluster_mut().ask_node(&node, cmd("PING")).await;
            }
            let answered_ms = began.elapsed().as_secs_f64() * 1000.0;
            let health = match reply {
                Ok(value) => told(&redis::from_redis_value::<String>(value).unwrap_or_default()),
                Err(trouble) => NodeHealth { trouble: Some(trouble.to_string()), ..NodeHealth::default() },
            };
            all.push(NodeHealth { node: node.to_string(), answered_ms, ..health });
        }
        all
    }
}

/// What `INFO` says.
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
