//! A Redis Cluster that fails over, moves and grows. Rows 14 and 15.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::redis::RedisCluster;

use super::{plain, under_load};
use crate::{
    ground::Ground,
    support::http::metric,
    trial::{Findings, Order, Trial},
};

/// How long a replica gets no writes before its primary dies: below the 2 s after which it would count as dead.
const BEHIND: Duration = Duration::from_millis(1_500);
/// Intents per second, enough that a failover forgets some.
const HEAVY: u32 = 1_500;
/// Slots that are moved at once: three of 64 shards are in them.
const SLOTS: u16 = 600;

/// Whether a decision waits for a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    No,
    ForOne,
}

/// A replica falls behind, its primary is killed, and the replica takes over without the missing writes.
pub fn promoted(ground: &mut Ground, order: &Order, waits: Waits) -> Result<Findings> {
    let mut trial = plain(ground, order, "promoted")?;
    trial.load_at(0, HEAVY)?;
    let replicas = ("WEIR__REDIS__WAIT_REPLICAS", if waits == Waits::No { "0" } else { "1" });
    let worker = trial.start_ready("only", &[replicas, ("WEIR__REDIS__TIMEOUT", "500ms")])?;
    for _ in 0..order.times {
        trial.decided(2_000)?;
        let cluster = ground.cluster()?;
        let (primary, replica) = pair(cluster)?;
        cluster.freeze(replica);
        trial.live(worker, BEHIND)?;
        cluster.kill(primary);
        cluster.thaw(replica);
        let killed = trial.over()?;
        cluster.wait_primary(replica)?;
        match waits {
            Waits::No => {
                trial.back(&killed)?;
                cluster.restart(primary)?;
            }
            Waits::ForOne => {
                // There is no replica to wait for until the dead node is back as one.
                cluster.restart(primary)?;
                trial.comes_back()?;
            }
        }
    }
    trial.live(worker, Duration::ZERO)?;
    let mut findings = trial.finish(order.times)?;
    let forgot = &findings.verdict;
    findings.notes.push(match waits {
        Waits::No => format!(
            "sends of the last 1.5 s on one of three primaries are forgotten: {} of {} approved were over a cap, {} verdicts are \
             not the model's; with no replica behind, nothing is forgotten",
            forgot.exceeded.count, forgot.approved, forgot.different.count
        ),
        Waits::ForOne => "nothing is forgotten; the shards of that primary wait until it has a replica again".to_owned(),
    });
    Ok(findings)
}

/// A primary with a replica, and the replica.
fn pair(cluster: &RedisCluster) -> Result<(usize, usize)> {
    let found = cluster.primaries()?.into_iter().find_map(|primary| {
        let replica = cluster.replicas_of(primary).ok()?.first().copied()?;
        Some((primary, replica))
    });
    found.context("no primary has a replica")
}

fn loaded(ground: &mut Ground, order: &Order, name: &str) -> Result<(Trial, usize)> {
    let mut trial = under_load(ground, order, name)?;
    let worker = trial.start_ready("only", &[])?;
    trial.decided(500)?;
    Ok((trial, worker))
}

pub fn failed_over(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "failover")?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        let (_, replica) = pair(cluster)?;
        cluster.failover(replica)?;
        trial.comes_back()?;
    }
    trial.live(worker, Duration::ZERO)?;
    trial.finish(order.times)
}

pub fn resharded(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "reshard")?;
    for time in 0..order.times {
        let cluster = ground.cluster()?;
        let primaries = cluster.primaries()?;
        let from = cluster.owner_of(u16::try_from(time % 3)? * 5_000)?;
        let to = primaries.into_iter().find(|node| *node != from).context("no other primary")?;
        let slots = first_slots(cluster, from)?;
        cluster.move_slots(slots.clone(), from, to)?;
        trial.comes_back()?;
        cluster.move_slots(slots, to, from)?;
        trial.comes_back()?;
    }
    redirected(&mut trial, worker)?;
    trial.finish(order.times)
}

/// The first slots that a primary serves.
fn first_slots(cluster: &RedisCluster, node: usize) -> Result<Vec<u16>> {
    Ok(cluster.slots_of(node)?.into_iter().take(SLOTS.into()).collect())
}

/// Checks that the worker was redirected.
fn redirected(trial: &mut Trial, worker: usize) -> Result<()> {
    let told = ["moved", "ask", "try_again"].map(|reason| {
        let label = format!("reason=\"{reason}\"");
        metric(trial.worker(worker), "weir_redis_retries_total", &label).unwrap_or(0.0)
    });
    anyhow::ensure!(told[0] > 0.0, "nothing was moved under the worker");
    trial.note(format!("{} x MOVED, {} x ASK, {} x TRYAGAIN", told[0], told[1], told[2]));
    Ok(())
}

pub fn grown_and_shrunk(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "grown")?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        let new = cluster.add_node()?;
        let from = cluster.owner_of(0)?;
        let slots = first_slots(cluster, from)?;
        cluster.move_slots(slots.clone(), from, new)?;
        trial.comes_back()?;
        let cluster = ground.cluster()?;
        cluster.move_slots(slots, new, from)?;
        cluster.remove_last_node()?;
        trial.comes_back()?;
    }
    redirected(&mut trial, worker)?;
    trial.finish(order.times)
}
