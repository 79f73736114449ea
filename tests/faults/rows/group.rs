//! The consumer group: zombies, storms, stalls, twins. Rows 3 to 6.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{pause, plain, under_load};
use crate::{
    ground::Ground,
    support::http::metric,
    trial::{Findings, Order, PARTITIONS, SMALL},
};

/// One worker freezes with a transaction open and wakes beside its successor.
pub fn frozen(ground: &mut Ground, order: &Order, length: Duration) -> Result<Findings> {
    let mut trial = under_load(ground, order, "frozen")?;
    let (zombie, successor) = (trial.start("zombie", &SMALL), trial.start("successor", &SMALL));
    for _ in 0..order.times {
        trial.all_ready([zombie, successor])?;
        trial.freeze_within_a_transaction(zombie)?;
        trial.live(successor, length)?;
        trial.worker(zombie).thaw();
        let thawed = trial.over()?;
        trial.back(&thawed)?;
        for worker in [zombie, successor] {
            trial.live(worker, Duration::ZERO)?;
        }
    }
    trial.finish(order.times)
}

/// One worker, four, two, one, while partitions are added once.
pub fn storm(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "storm")?;
    let refresh = ("WEIR__KAFKA__PROPERTIES__TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000");
    let env = [SMALL[0], SMALL[1], SMALL[2], refresh];
    trial.load(0)?;
    let mut steady = trial.start_ready("steady", &env)?;
    for time in 0..order.times {
        let more: Vec<usize> = ["b", "c", "d"].map(|name| trial.start(&format!("{name}-{time}"), &env)).into();
        for worker in &more {
            trial.ready(*worker)?;
        }
        if time == 0 {
            trial.kafka.grow_topic(&trial.scene.topic("intents"), PARTITIONS + 2)?;
            // A new publisher knows of them at once.
            trial.unload()?;
            trial.load(0)?;
        }
        trial.comes_back()?;
        // Two leave at once: one is asked to, one is killed.
        trial.worker(more[0]).terminate();
        trial.worker(more[1]).kill();
        trial.ends(more[0], 0, &[])?;
        let length = trial.some_time(0, 2_000);
        trial.live(steady, length)?;
        trial.worker(steady).kill();
        steady = more[2];
        trial.comes_back()?;
        trial.live(steady, Duration::ZERO)?;
    }
    trial.note(format!("4 partitions became {}", PARTITIONS + 2));
    trial.finish(order.times)
}

/// Redis does not answer for longer than the poll interval.
pub fn stalled_past_the_poll_interval(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const INTERVAL_MS: &str = "6000";
    const PAUSE: Duration = Duration::from_secs(12);
    let mut trial = under_load(ground, order, "stalled")?;
    let worker = trial.start_ready("stalled", &[("WEIR__KAFKA__PROPERTIES__MAX_POLL_INTERVAL_MS", INTERVAL_MS)])?;
    trial.decided(500)?;
    let rebalances = metric(trial.worker(worker), "weir_rebalances_total", "");
    for _ in 0..order.times {
        pause(ground.cluster()?, PAUSE)?;
        trial.live(worker, PAUSE)?;
        trial.comes_back()?;
    }
    let after = metric(trial.worker(worker), "weir_rebalances_total", "");
    ensure!(rebalances == after, "it lost its place in the group: {rebalances:?} rebalances, then {after:?}");
    trial.note("the member kept its partitions");
    trial.finish(order.times)
}

/// Two workers with one instance name.
pub fn twins(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = under_load(ground, order, "twins")?;
    let mut older = trial.start_ready("twin", &SMALL)?;
    for _ in 0..order.times {
        trial.decided(200)?;
        let newer = trial.start("twin", &SMALL);
        trial.ends(older, 1, &["took over the transactional id", "kafka.instance"])?;
        trial.comes_back()?;
        older = newer;
    }
    trial.live(older, Duration::from_secs(3))?;
    trial.note("the older one exits with 1 and the reason, the newer one continues");
    trial.finish(order.times)
}
