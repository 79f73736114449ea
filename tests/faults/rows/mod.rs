//! How each fault is injected; one file per broken part.

pub mod brokers;
pub mod budgets;
pub mod clocks;
pub mod cluster;
pub mod delivery;
pub mod group;
pub mod http;
pub mod inputs;
pub mod limits;
pub mod lost;
pub mod offsets;
pub mod pressure;
pub mod script;
pub mod sources;
pub mod topics;
pub mod wheel;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{
    clock::ProcessClock,
    kafka::{Api, Fate, Kafka, Moment, Record, Trap},
    process::Exit,
    proxy::{Mode, Proxy},
    redis::{RedisCluster, RedisServer},
    wait_for,
    worker::Worker,
};
use weir_core::{
    basis::shard::{Layout, UserHash, slot_of_shard},
    limit::budget::BudgetId,
};

use crate::{
    ground::Ground,
    load::LoadRate,
    support::{
        Decision, POLICY, approval, header,
        http::{address, get, metric},
        model::Sent,
        outcome::CASE,
        workload,
    },
    trial::{Findings, Order, PARTITIONS, SHARDS, SHORT_SESSION, SMALL, Trial, now_ms},
};

/// A case on the one broker and the Redis Cluster.
fn plain(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let redis = ground.cluster()?.nodes();
    on(ground, order, name, redis)
}

/// A case on the one broker and its own Redis.
fn on(ground: &mut Ground, order: &Order, name: &str, redis: Vec<String>) -> Result<Trial> {
    Ok(Trial::new(order, ground.kafka()?.client(), redis, name))
}

/// No primary answers for so long.
fn pause(cluster: &RedisCluster, length: Duration) -> Result<()> {
    let length_ms = length.as_millis().to_string();
    let pause = |node| cluster.node(node).query::<()>(&["CLIENT", "PAUSE", &length_ms, "ALL"]);
    cluster.primaries()?.into_iter().try_for_each(pause)
}

/// A send of a campaign.
fn send(id: String, user: u64, campaign: String) -> Sent {
    Sent { id, user, channel: None, category: None, campaign: Some(campaign), cost: 1, not_before_ms: None }
}

/// The same, where workers reach the broker through its tap.
fn tapped(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let mut trial = plain(ground, order, name)?;
    trial.scene.kafka = ground.kafka()?.tapped_client();
    Ok(trial)
}
