//! The published way: a sorted set a user, one EVALSHA a user, pipelined by 200 (`benches/zset_baseline.lua`).

use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use redis::{Connection, Pipeline};
use testkit::redis::RedisCluster;
use weir::{
    domain::shard::SLOTS,
    worker::{clock::SystemClock, ports::Clock},
};

use crate::workload::{Intent, Workload};

const SCRIPT: &str = include_str!("../zset_baseline.lua");
/// Calls sent to a node before their replies are read.
const PIPELINE: usize = 200;
const DAY_MS: u32 = 86_400_000;

/// A primary, and the calls that wait to be sent to it.
struct Node {
    connection: Connection,
    slots: Vec<RangeInclusive<u16>>,
    waiting: Pipeline,
    calls: usize,
}

/// Caps every intent of the workload, in its order; returns how many were suppressed.
///
/// # Errors
/// A node does not answer, or answers with an error.
pub fn cap_all(redis: &RedisCluster, workload: Workload) -> Result<u64> {
    let mut nodes =
        redis.primaries()?.into_iter().map(|node| Node::connect(redis, node)).collect::<Result<Vec<_>>>()?;
    let sha: String = nodes.iter_mut().map(Node::load).last().context("a cluster without primaries")??;
    let mut approved = 0;
    for intent in workload.intents() {
        let key = format!("z:{}", intent.user);
        let slot = crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS;
        let node = nodes.iter_mut().find(|node| node.slots.iter().any(|range| range.contains(&slot)));
        let node = node.with_context(|| format!("nobody serves slot {slot}"))?;
        node.add(&sha, &key, &intent);
        if node.calls == PIPELINE {
            approved += node.send()?;
        }
    }
    for node in &mut nodes {
        approved += node.send()?;
    }
    Ok(u64::from(workload.intents) - approved)
}

impl Node {
    fn connect(redis: &RedisCluster, node: usize) -> Result<Self> {
        let server = redis.node(node);
        let told: String = server.query(&["CLUSTER", "NODES"])?;
        let own = told.lines().find(|line| line.contains("myself")).context("a node that does not know itself")?;
        let ranges = own.split_whitespace().skip(8).map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Ok(first.parse()?..=last.parse()?)
        });
        let slots = ranges.collect::<Result<_>>()?;
        let connection = redis::Client::open(server.url())?.get_connection()?;
        Ok(Self { connection, slots, waiting: Pipeline::new(), calls: 0 })
    }

    fn load(&mut self) -> Result<String> {
        Ok(redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(&mut self.connection)?)
    }

    fn add(&mut self, sha: &str, key: &str, intent: &Intent) {
        let segment = intent.segment();
        self.waiting
            .cmd("EVALSHA")
            .arg(sha)
            .arg(1)
            .arg(key)
            .arg(SystemClock.now().millis())
            .arg(intent.id())
            .arg(DAY_MS)
            .arg(segment.daily)
            .arg(7 * DAY_MS)
            .arg(segment.weekly);
        self.calls += 1;
    }

    /// Sends what waits; returns how many of it were approved.
    fn send(&mut self) -> Result<u64> {
        if self.calls == 0 {
            return Ok(0);
        }
        let replies: Vec<u64> = self.waiting.query(&mut self.connection)?;
        ensure!(replies.len() == self.calls, "{} replies to {} calls", replies.len(), self.calls);
        self.waiting.clear();
        self.calls = 0;
        Ok(replies.iter().sum())
    }
}
