//! The worker's process: killed, asked to stop. Rows 1, 2, 13.

use std::time::Duration;

use anyhow::Result;
use testkit::kafka::{Api, Fate, Moment, Trap};

use super::tapped;
use crate::{
    ground::Ground,
    trial::{Findings, Order, SHORT_SESSION},
};

/// Intents published before a case begins, so that batches are full from the start.
const BACKLOG: usize = 2_000;

/// The tap kills the worker at the request; its successor starts at once, as under a supervisor.
pub fn killed_at(ground: &mut Ground, order: &Order, api: Api, moment: Moment) -> Result<Findings> {
    let mut trial = tapped(ground, order, "killed-at")?;
    trial.load(BACKLOG)?;
    let mut worker = trial.start_ready("victim", &SHORT_SESSION)?;
    for _ in 0..order.times {
        let fate = Fate::Kill(trial.worker(worker).pid());
        ground.kafka()?.tap(0).arm(Trap { api, moment, fate });
        trial.until("the worker is killed", || ground.kafka().is_ok_and(|kafka| kafka.tap(0).is_sprung()))?;
        trial.worker(worker).kill();
        worker = trial.start("victim", &SHORT_SESSION);
        trial.comes_back()?;
    }
    trial.finish(order.times)
}

pub fn killed_at_random(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = tapped(ground, order, "killed-at-random")?;
    trial.load(BACKLOG)?;
    // Two workers, so that what one has left open is met by the other while it works.
    let mut workers = [trial.start("one", &SHORT_SESSION), trial.start("two", &SHORT_SESSION)];
    trial.ready(workers[0])?;
    for time in 0..order.times {
        let place = time % 2;
        let length = trial.some_time(200, 5_000);
        trial.live(workers[place], length)?;
        trial.worker(workers[place]).kill();
        workers[place] = trial.start(["one", "two"][place], &SHORT_SESSION);
    }
    trial.comes_back()?;
    let steady = workers.map(|worker| trial.worker(worker).exit());
    anyhow::ensure!(steady == [None, None], "a worker ended by itself: {steady:?}");
    trial.finish(order.times)
}

pub fn terminated(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = tapped(ground, order, "terminated")?;
    let small = [SHORT_SESSION[0], SHORT_SESSION[1], ("WEIR__WORKER__BATCH", "200")];
    trial.load(BACKLOG)?;
    let mut longest = Duration::ZERO;
    for _ in 0..order.times {
        let worker = trial.start("stopped", &small);
        trial.decided(200)?;
        let asked = std::time::Instant::now();
        trial.stop(worker)?;
        longest = longest.max(asked.elapsed());
        let next = trial.start("next", &SHORT_SESSION);
        trial.comes_back()?;
        trial.stop(next)?;
    }
    trial.note(format!("exit 0 within {:.1} s of SIGTERM", longest.as_secs_f64()));
    let _last = trial.start("last", &SHORT_SESSION);
    trial.finish(order.times)
}
