//! Wrong clocks. Row 20.

use anyhow::{Result, ensure};
use testkit::clock::MovedClock;

use super::plain;
use crate::{
    ground::Ground,
    support::http::metric,
    trial::{Findings, Order, SHORT_SESSION, Trial},
};

/// An hour, in seconds.
const HOUR_S: i64 = 3_600;

fn start(trial: &mut Trial, clock: &MovedClock, instance: &str, ahead_s: i64) -> usize {
    let moved = clock.env(ahead_s);
    let moved = moved.iter().map(|(name, value)| (*name, value.as_str()));
    trial.start(instance, &SHORT_SESSION.into_iter().chain(moved).collect::<Vec<_>>())
}

/// Decisions of a worker that met a send ahead of its clock.
fn seen_ahead(trial: &mut Trial, worker: usize) -> f64 {
    metric(trial.worker(worker), "weir_clock_ahead_total", "").unwrap_or(0.0)
}

/// One worker after the other, each with a clock of its own, takes over all partitions.
pub fn one_after_the_other(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let clock = MovedClock::build()?;
    let mut trial = plain(ground, order, "clock-steps")?;
    trial.load(0)?;
    for _ in 0..order.times {
        for (instance, ahead_s) in [("right", 0), ("ahead", HOUR_S), ("right", 0), ("behind", -HOUR_S)] {
            let worker = start(&mut trial, &clock, instance, ahead_s);
            let mark = trial.over()?;
            trial.back(&mark)?;
            trial.decided(600)?;
            if ahead_s == 0 {
                trial.findings.seen_ahead += seen_ahead(&mut trial, worker);
            }
            trial.worker(worker).terminate();
            trial.ends(worker, 0, &[])?;
        }
    }
    let _last = start(&mut trial, &clock, "right", 0);
    finish(trial, order)
}

/// Three workers at once, an hour and two apart, of whom one after the other is killed so that users change hands.
pub fn side_by_side(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let clock = MovedClock::build()?;
    let mut trial = plain(ground, order, "clocks-apart")?;
    trial.load(0)?;
    let clocks = [("right", 0), ("ahead", HOUR_S), ("behind", -HOUR_S)];
    let mut workers = clocks.map(|(instance, ahead_s)| start(&mut trial, &clock, instance, ahead_s));
    for worker in workers {
        trial.ready(worker)?;
    }
    for time in 0..order.times {
        trial.decided(600)?;
        let place = (time + 1) % 3;
        if place == 0 {
            trial.findings.seen_ahead += seen_ahead(&mut trial, workers[0]);
        }
        trial.worker(workers[place]).kill();
        let mark = trial.over()?;
        trial.back(&mark)?;
        let (instance, ahead_s) = clocks[place];
        workers[place] = start(&mut trial, &clock, instance, ahead_s);
        trial.ready(workers[place])?;
    }
    trial.decided(600)?;
    // Whoever had which partitions: in the end the right one has the users of the others.
    workers[1..].iter().for_each(|worker| trial.worker(*worker).kill());
    let mark = trial.over()?;
    trial.back(&mark)?;
    trial.decided(600)?;
    trial.findings.seen_ahead += seen_ahead(&mut trial, workers[0]);
    finish(trial, order)
}

fn finish(mut trial: Trial, order: &Order) -> Result<Findings> {
    let seen = trial.findings.seen_ahead;
    ensure!(seen > 0.0, "no worker with a right clock has met a send ahead of it");
    trial.note(format!("{seen} decisions met a send more than 5 minutes ahead"));
    trial.finish(order.times)
}
