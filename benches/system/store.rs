//! The store alone: Redis's memory and CPU for users with more and more sends.
//!
//! Sends go through the worker's own store (`crates/redis`), in batches as a lane makes them, to the primaries that the
//! rounds were drained against. All of them are approved, so that every user has the same number of sends.

use anyhow::Result;
use serde::Serialize;
use weir_core::{basis::time::Time, ports::Clock};
use weir_worker::clock::SystemClock;

use crate::{
    Settings,
    keyspace::{Opened, START_MS, request, sliding},
    redis_info::RedisTotals,
    servers::{Run, Servers},
};

/// Sends per user at which memory and CPU are looked at.
const SENDS: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 24, 48, 64];
/// Caps that a decision is held to while users get so many sends.
const CAPS_OF_SENDS: u32 = 2;
/// Numbers of caps that are compared, for users of few sends.
const CAPS: [u32; 5] = [1, 2, 4, 8, 16];
const SENDS_OF_CAPS: u32 = 8;

#[derive(Debug, Clone, Serialize)]
pub struct StoreCost {
    pub users: u32,
    /// Two sliding caps, more and more sends.
    pub by_sends: Vec<BySends>,
    /// Eight sends per user, more and more sliding caps.
    pub by_caps: Vec<ByCaps>,
    /// What the servers' resident memory grew by, over what their allocated memory (used_memory) did.
    pub resident_ratio: f64,
    /// used_memory of one server without keys, in bytes.
    pub empty_node_bytes: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct BySends {
    pub sends: u32,
    pub user_bytes: f64,
    /// CPU of the servers per decision since the line before, in microseconds.
    pub cpu_us: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct ByCaps {
    pub caps: u32,
    /// CPU of the servers per decision, in microseconds.
    pub cpu_us: f64,
}

pub fn measure(servers: &Servers, size: Size) -> Result<StoreCost> {
    let users = size.users;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let by_caps = CAPS.into_iter().map(|caps| {
        let mut filling = runtime.block_on(Filling::start(servers, size))?;
        let before = RedisTotals::ask(&servers.redis)?;
        runtime.block_on(filling.raise(SENDS_OF_CAPS, caps))?;
        let spent = RedisTotals::ask(&servers.redis)?.cpu_us - before.cpu_us;
        Ok(ByCaps { caps, cpu_us: spent / filling.decided })
    });
    let by_caps = by_caps.collect::<Result<Vec<_>>>()?;

    let mut filling = runtime.block_on(Filling::start(servers, size))?;
    let empty = RedisTotals::ask(&servers.redis)?;
    let (mut last, mut decided) = (empty, 0.0);
    let mut by_sends = Vec::new();
    for sends in SENDS {
        runtime.block_on(filling.raise(sends, CAPS_OF_SENDS))?;
        let now = RedisTotals::ask(&servers.redis)?;
        let user_bytes = (now.memory_bytes - empty.memory_bytes) / f64::from(users);
        let cpu_us = (now.cpu_us - last.cpu_us) / (filling.decided - decided);
        by_sends.push(BySends { sends, user_bytes, cpu_us });
        (last, decided) = (now, filling.decided);
    }
    let resident_ratio = (last.resident_bytes - empty.resident_bytes) / (last.memory_bytes - empty.memory_bytes);
    let empty_node_bytes = empty.memory_bytes / servers.redis.primaries()?.len() as f64;
    Ok(StoreCost { users, by_sends, by_caps, resident_ratio, empty_node_bytes })
}

/// Gives every user of a run's keyspace one send, of two days ago: in their week, and in no day of a run.
pub fn give_a_send(servers: &Servers, run: &Run) -> Result<()> {
    let Settings { batch, shards, .. } = *servers.settings();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let size = Size { users: servers.workload.users, batch, shards };
    let began = SystemClock.now().plus(-2 * 86_400_000);
    runtime.block_on(async {
        let mut filling = Filling::open(servers, &run.group, size, began).await?;
        filling.raise(1, 1).await
    })
}

#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub users: u32,
    pub batch: u32,
    pub shards: u16,
}

/// Users that get more and more sends.
struct Filling {
    store: Opened,
    users: u32,
    batch: usize,
    sends: u32,
    decided: f64,
}

impl Filling {
    /// Empties Redis and makes a keyspace for so many users.
    async fn start(servers: &Servers, size: Size) -> Result<Self> {
        servers.flush_redis()?;
        Self::open(servers, "weir", size, Time::default().plus(START_MS)).await
    }

    /// Opens a keyspace, or makes it; the first send of each user is at `began`.
    async fn open(servers: &Servers, prefix: &str, size: Size, began: Time) -> Result<Self> {
        let Size { users, batch, shards } = size;
        let store = Opened::new(&servers.redis.nodes(), prefix, (u64::from(users), shards), began).await?;
        Ok(Self { store, users, batch: batch as usize, sends: 0, decided: 0.0 })
    }

    async fn raise(&mut self, sends: u32, caps: u32) -> Result<()> {
        let cap = |number| sliding(1000 + number, 86_400_000 * i64::from(1 + number % 7));
        let cap_sets = vec![(0..caps).map(cap).collect::<Vec<_>>()];
        while self.sends < sends {
            // One send per user and hour: all of them stay in the history.
            let after_ms = 3_600_000 * i64::from(self.sends);
            let users: Vec<u32> = (0..self.users).collect();
            for some in users.chunks(self.batch) {
                let requests = some.iter().map(|&user| request(user, self.sends, "push")).collect();
                self.store.decide(after_ms, &cap_sets, requests).await?;
                self.decided += some.len() as f64;
            }
            self.sends += 1;
        }
        Ok(())
    }
}
