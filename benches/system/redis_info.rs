//! What the primaries say of themselves: CPU, memory, commands.

use anyhow::{Context, Result};
use redis::InfoDict;
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

const SLOW_KEPT: &str = "100000";
/// An entry of the slow log: number, time, microseconds, the command, address and name of the client.
type SlowCall = (i64, i64, f64, Vec<Vec<u8>>, String, String);

/// Turns the slow log of a server on for every call.
pub fn note_calls(server: &RedisServer) -> Result<()> {
    server.query::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])?;
    server.query::<()>(&["CONFIG", "SET", "slowlog-max-len", SLOW_KEPT])?;
    server.query(&["SLOWLOG", "RESET"])
}

/// The microseconds that each noted call of a script took.
pub fn noted_calls_us(server: &RedisServer) -> Result<Vec<f64>> {
    let noted: Vec<SlowCall> = server.query(&["SLOWLOG", "GET", SLOW_KEPT])?;
    let scripts = noted.iter().filter(|call| call.3.first().is_some_and(|name| name.eq_ignore_ascii_case(b"evalsha")));
    Ok(scripts.map(|call| call.2).collect())
}

/// The largest key of all primaries, in bytes.
pub fn largest_key_bytes(redis: &RedisCluster) -> Result<f64> {
    let mut largest = 0.0_f64;
    for node in redis.primaries()? {
        largest = largest.max(largest_key_of(&redis.node(node).url())?);
    }
    Ok(largest)
}

fn largest_key_of(url: &str) -> Result<f64> {
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
