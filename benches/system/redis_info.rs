//! What the primaries say of themselves: CPU, memory, commands.

use anyhow::{Context, Result};
use testkit::redis::RedisCluster;

/// Commands that reach a server from outside of scripts: the script calls, connections, looking after the cluster, and
/// this bench's own questions. Every other one was called by a script.
const OUTER: [&str; 16] = [
    "asking", "auth", "client", "cluster", "command", "config", "dbsize", "eval", "evalsha", "flushall", "hello",
    "info", "ping", "readonly", "script", "select",
];

/// Totals over all primaries since they started, but for memory, which is what is in use.
#[derive(Debug, Clone, Copy, Default)]
pub struct RedisTotals {
    /// CPU, user and system, in microseconds.
    pub cpu_us: f64,
    /// used_memory, in bytes: all that was allocated.
    pub memory_bytes: f64,
    /// used_memory_dataset, in bytes: without the table of keys and what a server needs by itself.
    pub dataset_bytes: f64,
    /// used_memory_rss, in bytes: what the system has given the servers.
    pub resident_bytes: f64,
    /// Bytes read from connections.
    pub net_in_bytes: f64,
    /// Bytes written to connections.
    pub net_out_bytes: f64,
    /// Calls of scripts.
    pub script_calls: f64,
    /// Commands that scripts called.
    pub redis_calls: f64,
}

impl RedisTotals {
    /// Asks all primaries.
    pub fn ask(redis: &RedisCluster) -> Result<Self> {
        let mut totals = Self::default();
        for node in redis.primaries()? {
            for section in ["cpu", "memory", "stats", "commandstats"] {
                let info: String = redis.node(node).query(&["INFO", section])?;
                totals.add(&info).with_context(|| format!("INFO {section} of node {node}"))?;
            }
        }
        Ok(totals)
    }

    fn add(&mut self, info: &str) -> Result<()> {
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "used_cpu_user" | "used_cpu_sys" => self.cpu_us += value.parse::<f64>()? * 1e6,
                "used_memory" => self.memory_bytes += value.parse::<f64>()?,
                "used_memory_rss" => self.resident_bytes += value.parse::<f64>()?,
                "total_net_input_bytes" => self.net_in_bytes += value.parse::<f64>()?,
                "total_net_output_bytes" => self.net_out_bytes += value.parse::<f64>()?,
                "used_memory_dataset" => self.dataset_bytes += value.parse::<f64>()?,
                _ => {
                    let Some(command) = name.strip_prefix("cmdstat_") else { continue };
                    let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                    let calls: f64 = calls.context("a line without its calls")?.parse()?;
                    // A subcommand is written as cluster|info.
                    let command = command.split('|').next().unwrap_or(command);
                    if command == "evalsha" {
                        self.script_calls += calls;
                    } else if !OUTER.contains(&command) {
                        self.redis_calls += calls;
                    }
                }
            }
        }
        Ok(())
    }
}
