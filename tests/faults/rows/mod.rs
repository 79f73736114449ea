//! How each fault is injected; one file per broken part.

pub mod brokers;
pub mod budgets;
pub mod clocks;
pub mod cluster;
pub mod delivery;
pub mod expiry;
pub mod group;
pub mod http;
pub mod inputs;
pub mod limits;
pub mod lost;
pub mod names;
pub mod offsets;
pub mod pressure;
pub mod process;
pub mod script;
pub mod sources;
pub mod topics;
pub mod wheel;

use anyhow::Result;

use crate::{
    ground::Ground,
    support::{POLICY, Scene},
    trial::{Order, PARTITIONS, Trial},
};

/// A case on the one broker and the Redis Cluster.
fn plain(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let redis = ground.cluster()?.nodes();
    on(ground, order, name, redis)
}

/// The same with load.
fn under_load(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let mut trial = plain(ground, order, name)?;
    trial.load(0)?;
    Ok(trial)
}

/// A case on the one broker and its own Redis.
fn on(ground: &mut Ground, order: &Order, name: &str, redis: Vec<String>) -> Result<Trial> {
    let kafka = ground.kafka()?.client().clone();
    let scene = Scene::on(kafka.clone(), redis, name, PARTITIONS, POLICY);
    Ok(Trial::new(order, &kafka, scene))
}

/// The same, where workers reach the broker through its tap.
fn tapped(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let mut trial = plain(ground, order, name)?;
    trial.scene.kafka = ground.kafka()?.tapped_client();
    Ok(trial)
}
