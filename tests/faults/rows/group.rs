//! The worker's process: killed, asked to stop; and its consumer group: zombies, storms, stalls, twins. Rows 1 to 6 and 13.

use super::*;

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
        trial.live_some_time(workers[place], 200, 5_000)?;
        trial.worker(workers[place]).kill();
        workers[place] = trial.start(["one", "two"][place], &SHORT_SESSION);
    }
    trial.comes_back()?;
    let steady = workers.map(|worker| trial.worker(worker).exit());
    ensure!(steady == [None, None], "a worker ended by itself: {steady:?}");
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

/// One worker freezes with a transaction open and wakes beside its successor.
pub fn frozen(ground: &mut Ground, order: &Order, length: Duration) -> Result<Findings> {
    let mut trial = plain(ground, order, "frozen")?;
    trial.load(0)?;
    let (zombie, successor) = (trial.start("zombie", &SMALL), trial.start("successor", &SMALL));
    for _ in 0..order.times {
        trial.all_ready([zombie, successor])?;
        trial.freeze_within_a_transaction(zombie)?;
        trial.live(successor, length)?;
        trial.worker(zombie).thaw();
        trial.comes_back()?;
        [zombie, successor].into_iter().try_for_each(|worker| trial.live(worker, Duration::ZERO))?;
    }
    trial.finish(order.times)
}

/// One worker, four, two, one, while partitions are added once.
pub fn storm(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let trial = plain(ground, order, "storm")?;
    let refresh = ("WEIR__KAFKA__PROPERTIES__TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000");
    let env = [SMALL[0], SMALL[1], SMALL[2], refresh];
    let (mut trial, mut steady) = trial.at_work("steady", &env)?;
    for time in 0..order.times {
        let more = ["b", "c", "d"].map(|name| trial.start(&format!("{name}-{time}"), &env));
        trial.all_ready(more)?;
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
        trial.live_some_time(steady, 0, 2_000)?;
        trial.worker(steady).kill();
        steady = more[2];
        trial.comes_back_with(steady)?;
    }
    trial.finish_noting(order.times, format!("4 partitions became {}", PARTITIONS + 2))
}

/// Redis does not answer for longer than the poll interval.
pub fn stalled_past_the_poll_interval(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const INTERVAL_MS: &str = "6000";
    const PAUSE: Duration = Duration::from_secs(12);
    let (mut trial, worker) = plain(ground, order, "stalled")?
        .at_work("stalled", &[("WEIR__KAFKA__PROPERTIES__MAX_POLL_INTERVAL_MS", INTERVAL_MS)])?;
    trial.decided(500)?;
    let rebalances = metric(trial.worker(worker), "weir_rebalances_total", "");
    for _ in 0..order.times {
        pause(ground.cluster()?, PAUSE)?;
        trial.live(worker, PAUSE)?;
        trial.comes_back()?;
    }
    let after = metric(trial.worker(worker), "weir_rebalances_total", "");
    ensure!(rebalances == after, "it lost its place in the group: {rebalances:?} rebalances, then {after:?}");
    trial.finish_noting(order.times, "the member kept its partitions")
}

/// Two workers with one instance name.
pub fn twins(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, mut older) = plain(ground, order, "twins")?.at_work("twin", &SMALL)?;
    for _ in 0..order.times {
        trial.decided(200)?;
        let newer = trial.start("twin", &SMALL);
        trial.ends(older, 1, &["took over the transactional id", "kafka.instance"])?;
        trial.comes_back()?;
        older = newer;
    }
    trial.live(older, Duration::from_secs(3))?;
    trial.finish_noting(order.times, "the older one exits with 1 and the reason, the newer one continues")
}
