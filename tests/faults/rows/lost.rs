//! Shards that lose their history, and `weir rebuild`. Row 18.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use testkit::redis::RedisCluster;

use super::plain;
use crate::{
    ground::Ground,
    support::{
        http::{degraded, get, metric},
        weir,
    },
    trial::{Findings, Order},
};

/// Everything on a node and its replica is deleted.
pub fn flushed_all(ground: &mut Ground, order: &Order) -> Result<Findings> {
    lost(ground, order, |cluster, node| cluster.node(node).query::<()>(&["FLUSHALL"]))
}

/// A node that keeps nothing on disk is killed and is back, empty, before its replica is promoted.
pub fn restarted_empty(ground: &mut Ground, order: &Order) -> Result<Findings> {
    lost(ground, order, |cluster, node| {
        cluster.kill(node);
        cluster.restart(node)
    })
}

fn lost(ground: &mut Ground, order: &Order, lose: fn(&mut RedisCluster, usize) -> Result<()>) -> Result<Findings> {
    let mut trial = plain(ground, order, "lost")?;
    trial.load(0)?;
    let worker = trial.start("only", &[]);
    trial.ready(worker)?;
    for time in 0..order.times {
        trial.decided(600)?;
        let cluster = ground.cluster()?;
        let mut nodes = cluster.primaries()?;
        // The node of the keyspace's tables is another case: all is rebuilt then (tests/rebuild.rs).
        let tables = format!("{}:*:meta", trial.scene.name);
        nodes.retain(|node| {
            cluster.node(*node).query::<Vec<String>>(&["KEYS", &tables]).is_ok_and(|keys| keys.is_empty())
        });
        lose(cluster, nodes[time % nodes.len()])?;
        trial.until_of(worker, "the loss is counted", |worker| metric(worker, "weir_shards_lost", "") > Some(0.0))?;
        let lost = metric(trial.worker(worker), "weir_shards_lost", "").unwrap_or(0.0);
        ensure!(lost < 64.0, "all {lost} shards are lost, and not those of one node");
        trial.until_of(worker, "/v1/status names the shards", |worker| {
            degraded(worker).iter().any(|(what, entry)| what == "shards_lost" && entry["shards"][0].is_u64())
        })?;
        let (status, said) = get(trial.worker(worker), "/readyz");
        ensure!(status == 200, "/readyz says {status} {said}: a lost shard is lost for all instances");
        // Nothing is decided on what is lost; the judge would see it.
        trial.live(worker, Duration::from_secs(3))?;
        rebuild(trial.worker(worker).folder())?;
        let mark = trial.over()?;
        trial.back(&mark)?;
        trial.until_of(worker, "nothing is degraded", |worker| degraded(worker).is_empty())?;
    }
    trial.note("/readyz stays 200, /v1/status names the shards; `weir rebuild` restores them while the worker runs");
    trial.finish(order.times)
}

/// How long what was decided before may take to become visible: a session of 6 s and a transaction of 15.
const SETTLE: &str = "25s";

/// Runs `weir rebuild` with a worker's configuration.
fn rebuild(folder: &std::path::Path) -> Result<()> {
    let output =
        Command::new(weir()).args(["rebuild", "--settle", SETTLE, "--config"]).arg(folder.join("weir.toml")).output();
    let output = output.context("weir rebuild cannot be started")?;
    ensure!(output.status.success(), "weir rebuild: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
