//! The published way: a sorted set per user, one EVALSHA per user, pipelined by 200 (`benches/zset_baseline.lua`).

use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use redis::{Cmd, Connection, Pipeline};
use serde::Deserialize;
use testkit::redis::{LONGEST_REPLY, connect};
use weir::config::RedisSettings;
use weir_core::{
    basis::shard::SLOTS,
    batch::record::{Destination, Records},
    ports::Clock,
};
use weir_worker::clock::SystemClock;

use crate::workload::segment_of;

const SCRIPT: &str = include_str!("../zset_baseline.lua");
/// Calls sent to a node before their replies are read.
const PIPELINE: usize = 200;
const DAY_MS: u32 = 86_400_000;

/// The fields of an intent that the script needs.
#[derive(Debug, Deserialize)]
struct Intent<'i> {
    id: &'i str,
    user_id: u32,
}

fn call(sha: &str, key: &str, intent: &Intent<'_>) -> Cmd {
    let segment = segment_of(intent.user_id);
    let mut call = redis::cmd("EVALSHA");
    call.arg(sha).arg(1).arg(key).arg(SystemClock.now().millis()).arg(intent.id);
    call.arg(DAY_MS).arg(segment.daily).arg(7 * DAY_MS).arg(segment.weekly);
    call
}

fn slots(connection: &mut Connection) -> Result<Vec<RangeInclusive<u16>>> {
    let told: String = redis::cmd("CLUSTER").arg("NODES").query(connection)?;
    let own = told.lines().find(|line| line.contains("myself")).context("a node that does not know itself")?;
    let ranges = own.split_whitespace().skip(8).map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Ok(first.parse()?..=last.parse()?)
    });
    ranges.collect()
}

pub struct SortedSets {
    nodes: Vec<Node>,
    sha: String,
}

struct Node {
    connection: Connection,
    slots: Vec<RangeInclusive<u16>>,
    waiting: Pipeline,
    /// The places in the batch of the pending intents.
    places: Vec<usize>,
}

impl SortedSets {
    /// Connects to all nodes, which must be primaries, and loads the script.
    pub fn connect(settings: &RedisSettings) -> Result<Self> {
        let nodes = settings.nodes.iter().map(|url| Node::connect(url.expose()));
        let mut nodes = nodes.collect::<Result<Vec<_>>>()?;
        let load = |connection: &mut Connection| redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(connection);
        let sha =
            nodes.iter_mut().map(|node| load(&mut node.connection)).last().context("a cluster without nodes")??;
        Ok(Self { nodes, sha })
    }

    /// Caps a batch in its order; returns each intent's destination.
    pub fn decide(&mut self, records: &impl Records) -> Result<Vec<Destination>> {
        let mut ways = vec![Destination::Suppressed; records.len()];
        for place in 0..records.len() {
            let intent: Intent<'_> = serde_json::from_slice(records.get(place).value.unwrap_or_default())?;
            let key = format!("z:{}", intent.user_id);
            let slot = crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS;
            let node = self.nodes.iter_mut().find(|node| node.slots.iter().any(|range| range.contains(&slot)));
            let node = node.with_context(|| format!("nobody serves slot {slot}"))?;
            node.waiting.add_command(call(&self.sha, &key, &intent));
            node.places.push(place);
            if node.places.len() == PIPELINE {
                node.send(&mut ways)?;
            }
        }
        for node in &mut self.nodes {
            node.send(&mut ways)?;
        }
        Ok(ways)
    }
}

impl Node {
    fn connect(url: &str) -> Result<Self> {
        let mut connection = connect(LONGEST_REPLY, &redis::Client::open(url)?)?;
        let slots = slots(&mut connection)?;
        Ok(Self { connection, slots, waiting: Pipeline::new(), places: Vec::new() })
    }

    /// Sends the pending calls, and notes the approved intents.
    fn send(&mut self, ways: &mut [Destination]) -> Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        let replies: Vec<u8> = self.waiting.query(&mut self.connection)?;
        let (got, sent) = (replies.len(), self.places.len());
        ensure!(got == sent, "{got} replies to {sent} calls");
        for (place, reply) in self.places.drain(..).zip(replies) {
            if reply == 1 {
                ways[place] = Destination::APPROVED;
            }
        }
        self.waiting.clear();
        Ok(())
    }
}
