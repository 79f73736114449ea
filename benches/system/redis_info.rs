//! What the primaries say of themselves: CPU, memory, commands.

use anyhow::{Context, Result};
use redis::InfoDict;
use serde::Serialize;
use testkit::redis::{LONGEST_REPLY, RedisCluster, RedisServer, connect};

/// Commands that reach a server from outside of scripts: the script calls, connections, looking after the cluster, and
/// this bench's own questions. Every other one was called by a script.
const OUTER: [&str; 20] = [
    "asking", "auth", "client", "cluster", "command", "config", "dbsize", "eval", "evalsha", "flushall", "hello",
    "info", "latency", "memory", "ping", "readonly", "scan", "script", "select", "slowlog",
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
    pub script_calls: f64,
    pub redis_calls: f64,
}

impl RedisTotals {
    pub fn ask(redis: &RedisCluster) -> Result<Self> {
        let mut totals = Self::default();
        for node in redis.primaries()? {
            totals.add(&redis.node(node).query(&["INFO", "everything"])?).with_context(|| format!("node {node}"))?;
        }
        Ok(totals)
    }

    fn add(&mut self, info: &InfoDict) -> Result<()> {
        let of = |name: &str| info.get::<f64>(name).with_context(|| format!("INFO without {name}"));
        self.cpu_us += (of("used_cpu_user")? + of("used_cpu_sys")?) * 1e6;
        self.memory_bytes += of("used_memory")?;
        self.dataset_bytes += of("used_memory_dataset")?;
        self.resident_bytes += of("used_memory_rss")?;
        for name in info.keys() {
            let Some(command) = name.strip_prefix("cmdstat_") else { continue };
            let calls: Option<String> = info.get(name);
            let calls = calls.as_deref().and_then(|line| line.strip_prefix("calls=")?.split(',').next());
            let calls: f64 = calls.context("a line without its calls")?.parse()?;
            // A subcommand is written as cluster|info.
            let command = command.split('|').next().unwrap_or(command);
            if command == "evalsha" {
                self.script_calls += calls;
            } else if !OUTER.contains(&command) {
                self.redis_calls += calls;
            }
        }
        Ok(())
    }
}

/// How long script calls took, and how large keys are.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ScriptTimes {
    /// 999 of 1,000 calls took at most so long on the node where that is longest, in microseconds of wall time: on a busy
    /// machine others' work is in it.
    pub p999_us: f64,
    /// The slowest call, in microseconds; 0 if none took [`SLOW_US`].
    pub slowest_us: f64,
    /// MEMORY USAGE of the largest key, in bytes.
    pub largest_key_bytes: f64,
}

/// From how long on a call is noted as slow.
const SLOW_US: u32 = 1000;
const SLOW_KEPT: &str = "100000";
/// An entry of the slow log: number, time, microseconds, the command, address and name of the client.
type SlowCall = (i64, i64, f64, Vec<Vec<u8>>, String, String);

/// Makes a server log calls of so many microseconds or more.
pub fn note_calls(server: &RedisServer, from_us: u32) -> Result<()> {
    server.query::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", &from_us.to_string()])?;
    server.query::<()>(&["CONFIG", "SET", "slowlog-max-len", SLOW_KEPT])?;
    server.query(&["SLOWLOG", "RESET"])
}

/// The microseconds that each noted call of a script took. They are forgotten: the log is in the server's memory.
pub fn noted_calls_us(server: &RedisServer) -> Result<Vec<f64>> {
    let noted: Vec<SlowCall> = server.query(&["SLOWLOG", "GET", SLOW_KEPT])?;
    server.query::<()>(&["SLOWLOG", "RESET"])?;
    let scripts = noted.iter().filter(|call| call.3.first().is_some_and(|name| name.eq_ignore_ascii_case(b"evalsha")));
    Ok(scripts.map(|call| call.2).collect())
}

impl ScriptTimes {
    pub fn reset(redis: &RedisCluster) -> Result<()> {
        for node in redis.primaries()? {
            let node = redis.node(node);
            note_calls(node, SLOW_US)?;
            node.query::<()>(&["CONFIG", "RESETSTAT"])?;
        }
        Ok(())
    }

    /// Asks all primaries, and forgets the slow calls.
    pub fn take(redis: &RedisCluster) -> Result<Self> {
        let mut times = Self::default();
        for node in redis.primaries()? {
            let info: InfoDict = redis.node(node).query(&["INFO", "latencystats"])?;
            let line: Option<String> = info.get("latency_percentiles_usec_evalsha");
            let p999 = line.as_deref().and_then(|line| line.split_once("p99.9=")).map(|(_, p999)| p999.parse::<f64>());
            times.p999_us = times.p999_us.max(p999.transpose()?.unwrap_or_default());
            times.slowest_us = noted_calls_us(redis.node(node))?.into_iter().fold(times.slowest_us, f64::max);
            times.largest_key_bytes = times.largest_key_bytes.max(largest_key_bytes(&redis.node(node).url())?);
        }
        Ok(times)
    }
}

fn largest_key_bytes(url: &str) -> Result<f64> {
    let mut connection = connect(LONGEST_REPLY, &redis::Client::open(url)?)?;
    let (mut cursor, mut largest) = (0_u64, 0.0_f64);
    loop {
        let (next, keys): (u64, Vec<Vec<u8>>) =
            redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(1000).query(&mut connection)?;
        let mut sizes = redis::pipe();
        for key in &keys {
            sizes.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        }
        if !keys.is_empty() {
            let sizes: Vec<Option<f64>> = sizes.query(&mut connection)?;
            largest = sizes.into_iter().flatten().fold(largest, f64::max);
        }
        cursor = next;
        if cursor == 0 {
            return Ok(largest);
        }
    }
}
