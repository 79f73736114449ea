//! Pressure while something breaks. Row 36.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use testkit::{clock::MovedClock, worker::Worker};

use super::{clocks, lost::table_node, plain};
use crate::{
    ground::Ground,
    support::{POLICY, http::metric},
    trial::{Findings, Order, RATE, SHORT_SESSION, Trial},
};

/// Fewer than half of the load's users. The window is longer than a case.
const PRESSURE: &str = "[pressure]\nmax_active_users = 2_000\nwindow = \"2h\"\n";
const MOST: usize = 2_000;
const MINUTE_S: i64 = 60;

fn with_pressure(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let trial = plain(ground, order, name)?;
    trial.scene.write_policy(&format!("{POLICY}{PRESSURE}"));
    Ok(trial)
}

fn active(worker: &Worker) -> f64 {
    metric(worker, "weir_pressure_active_users", "").unwrap_or(0.0)
}

/// Waits until a worker counts so many active users.
fn filled(trial: &mut Trial, worker: usize, percent: usize) -> Result<()> {
    let wanted = (MOST * percent / 100) as f64;
    trial.until_of(worker, &format!("{wanted} users are active"), |worker| active(worker) >= wanted)
}

/// Checks that no more users came in than may be active, but for those of a second of the load for each of `losses`, and that no active
/// user was turned away, but for `forgotten`.
fn judged(mut trial: Trial, times: usize, worker: usize, (losses, forgotten): (usize, usize)) -> Result<Findings> {
    filled(&mut trial, worker, 99)?;
    trial.decided(3_000)?;
    trial.unload()?;
    trial.scene.wait_until_drained();
    let (mut came, mut denied) = (BTreeMap::new(), Vec::new());
    for (id, decision) in trial.scene.every_decision() {
        // Its place in the load: a user's intents are decided in this order.
        let place: u64 = id.rsplit('-').next().unwrap_or_default().parse()?;
        let user = decision.record.key.clone().unwrap_or_default();
        if decision.approved() {
            let first = came.entry(user).or_insert(place);
            *first = place.min(*first);
        } else if decision.reason() == "pressure" {
            denied.push((user, place));
        }
    }
    let turned_away = denied.iter().filter(|(user, place)| came.get(user).is_some_and(|came| came < place)).count();
    let count = came.len();
    ensure!(count <= MOST * 102 / 100 + losses * RATE as usize, "{count} users of {MOST} came in");
    ensure!(count >= MOST * 97 / 100, "{count} users of {MOST} came in");
    ensure!(denied.len() > 1_000, "{} were kept out", denied.len());
    ensure!(turned_away <= forgotten, "{turned_away} active users were turned away");
    trial.note(format!("{count} users of {MOST} came in; {turned_away} active users were turned away"));
    trial.finish(times)
}

/// The log of activity and the members are deleted, while users come in and when nobody may any more.
pub fn log_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-lost")?;
    let workers = ["one", "two"].map(|name| trial.start(name, &SHORT_SESSION));
    for worker in workers {
        trial.ready(worker)?;
    }
    trial.load(0)?;
    for time in 0..order.times {
        filled(&mut trial, workers[0], 99 * (time + 1) / order.times - 10)?;
        let (cluster, prefix) = (ground.cluster()?, trial.scene.name.clone());
        let node = table_node(cluster, &prefix)?;
        let keys = ["activity", "activity-members"].map(|key| format!("{prefix}:{{{prefix}}}:{key}"));
        let deleted: u64 = cluster.node(node).query(&["DEL", &keys[0], &keys[1]])?;
        ensure!(deleted == 2, "{deleted} of the two keys were deleted");
        let mark = trial.over()?;
        trial.back(&mark)?;
    }
    judged(trial, order.times, workers[0], (order.times, 0))
}

/// One of two workers is killed while users come in; the other has the whole maximum then, and the successor reads who is active.
pub fn member_killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-killed")?;
    let stays = trial.start("stays", &SHORT_SESSION);
    let mut dies = trial.start("dies", &SHORT_SESSION);
    for worker in [stays, dies] {
        trial.ready(worker)?;
    }
    trial.load(0)?;
    for time in 0..order.times {
        filled(&mut trial, stays, 90 * (time + 1) / order.times)?;
        trial.worker(dies).kill();
        let mark = trial.over()?;
        trial.back(&mark)?;
        dies = trial.start("dies", &SHORT_SESSION);
        trial.ready(dies)?;
    }
    // Whom it had not told yet: of its last second.
    judged(trial, order.times, stays, (order.times, order.times * RATE as usize))
}

/// The clock of one of two workers is a minute ahead, or behind.
pub fn clock_off(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let moved = MovedClock::build()?;
    let mut trial = with_pressure(ground, order, "pressure-clock")?;
    let clocks = [("right", moved.clock(0)?), ("wrong", moved.clock(MINUTE_S)?)];
    let workers = clocks.each_ref().map(|(instance, clock)| clocks::start(&mut trial, instance, clock));
    for worker in workers {
        trial.ready(worker)?;
    }
    trial.load(0)?;
    for time in 0..order.times {
        filled(&mut trial, workers[0], 90 * (time + 1) / order.times)?;
        clocks[1].1.set(if time % 2 == 0 { -MINUTE_S } else { MINUTE_S })?;
        let mark = trial.over()?;
        trial.back(&mark)?;
    }
    judged(trial, order.times, workers[0], (0, 0))
}
