//! Wrong clocks. Rows 20 and 33.

use weir_core::basis::clocks::MAX_SKEW_MS;

use super::*;

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;

/// Waits until a worker has intents that it does not decide, and reports why.
fn refuses(trial: &mut Trial, worker: usize) -> Result<()> {
    let wrong = "this machine's clock shows";
    trial.until_of(worker, "the log says that it refuses", |worker| worker.log().contains(wrong))?;
    trial.until_of(worker, "it refuses to decide", |worker| {
        let (status, said) = get(worker, "/readyz");
        status == 503 && said.contains(wrong)
    })?;
    let refusing = metric(trial.worker(worker), "weir_clock_wrong", "");
    ensure!(refusing == Some(1.0), "weir_clock_wrong is {refusing:?}");
    Ok(())
}

/// Checks that each decision was made within 5 minutes of the true time.
fn by_the_true_time(trial: &mut Trial, began_ms: i64) -> Result<()> {
    trial.unload()?;
    let right = began_ms - MAX_SKEW_MS..=now_ms() + MAX_SKEW_MS;
    let wrong = trial.scene.every_decision().into_iter().find(|(_, decision)| !right.contains(&decision.at_ms));
    ensure!(wrong.is_none(), "decided by the wrong clock: {:?}", wrong.map(|(id, decision)| (id, decision.at_ms)));
    Ok(())
}

/// Two workers with clocks 4 minutes apart are killed one after the other, so that users change hands.
pub fn minutes_apart(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "clocks-apart")?;
    trial.load(0)?;
    let clocks = [("right", ProcessClock::ahead(0)?), ("ahead", ProcessClock::ahead(4 * MINUTE_S)?)];
    let mut workers = clocks.each_ref().map(|(instance, clock)| trial.start_by(instance, clock));
    trial.all_ready(workers)?;
    for time in 0..order.times {
        trial.decided(600)?;
        let place = time % workers.len();
        trial.worker(workers[place]).kill();
        trial.comes_back()?;
        workers[place] = trial.start_by(clocks[place].0, &clocks[place].1);
        trial.ready(workers[place])?;
    }
    trial.decided(600)?;
    trial.finish(order.times)
}

/// A worker's clock jumps by an hour, ahead and behind, and is corrected; then it is wrong from the start.
pub fn hour_off(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let clock = ProcessClock::ahead(0)?;
    let began_ms = now_ms();
    let mut trial = plain(ground, order, "clock-jumps")?;
    trial.load(0)?;
    let mut worker = trial.start_by("only", &clock);
    trial.ready(worker)?;
    for time in 0..order.times {
        for ahead_s in [HOUR_S, -HOUR_S] {
            trial.decided(300)?;
            clock.set(ahead_s)?;
            if time % 2 == 1 {
                trial.worker(worker).kill();
                worker = trial.start_by("only", &clock);
            }
            refuses(&mut trial, worker)?;
            clock.set(0)?;
            trial.comes_back()?;
        }
    }
    by_the_true_time(&mut trial, began_ms)?;
    trial.note("each time the worker waited, reported it in log, metric and `/readyz`, and continued by itself");
    trial.finish(order.times)
}

/// A clock jumps eight days ahead, past the history, and a worker starts with it: nothing in Redis changes.
pub fn days_ahead(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let clock = ProcessClock::ahead(0)?;
    let began_ms = now_ms();
    let mut trial = plain(ground, order, "clock-days-ahead")?;
    let mut worker = trial.start_by("only", &clock);
    trial.ready(worker)?;
    for time in 0..order.times {
        // All of these are recorded before the clock is wrong, and more come then.
        let ends = trial.scene.done() + 600;
        trial.publish_some(600)?;
        trial.until("all is decided", || trial.scene.done() >= ends)?;
        let prefix = trial.scene.name.clone();
        let before = contents(ground.cluster()?, &prefix)?;
        clock.set(8 * DAY_S)?;
        if time % 2 == 1 {
            trial.worker(worker).kill();
            worker = trial.start_by("only", &clock);
        }
        trial.publish_some(300)?;
        refuses(&mut trial, worker)?;
        ensure!(contents(ground.cluster()?, &prefix)? == before, "a history changed while the clock was wrong");
        clock.set(0)?;
        let mark = trial.over()?;
        trial.publish_some(300)?;
        trial.back(&mark)?;
    }
    by_the_true_time(&mut trial, began_ms)?;
    trial.finish_noting(order.times, "histories in Redis were unchanged, byte for byte")
}

/// All keys of a keyspace, as the nodes store them, but for the table of commits: it is written a moment after a commit.
fn contents(cluster: &RedisCluster, prefix: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for node in cluster.primaries()? {
        let keys: Vec<String> = cluster.node(node).query(&["KEYS", &format!("{prefix}:*")])?;
        for key in keys.into_iter().filter(|key| !key.ends_with("commits")) {
            all.insert(key.clone(), cluster.node(node).query(&["DUMP", &key])?);
        }
    }
    ensure!(!all.is_empty(), "the keyspace {prefix} is not there");
    Ok(all)
}
