//! Budgets while something breaks. Rows 35, 38, 41 and 42.

mod nodes;

use std::ops::RangeInclusive;

pub use self::nodes::{Whose, all_lost, clock_ahead, old_snapshot, replies_lost, unreplicated};
use self::nodes::{granted_of, id, node_of, sends_of, wait_spent};
use super::*;

/// Several times what these allow is asked for. The load's rate and costs are those of `support/workload.rs`.
const BUDGETS: &str = r#"
[[budgets]]
name = "rate"
channel = "email"
limit = 300
window = "10s"
[[budgets]]
name = "prepaid"
channel = "push"
limit = 600
total = true
[[budgets]]
name = "share"
each = "campaign"
limit = 4_000
per = "month"
"#;
const RATE_LIMIT: u64 = 300;
const RATE_WINDOW_MS: i64 = 10_000;
const PREPAID_LIMIT: u64 = 600;
const SHARE_LIMIT: u64 = 4_000;
/// That of `POLICY`.
const ZONE: &str = "Asia/Singapore";
/// Intents per second.
const OFFERED: u32 = 600;

fn with_budgets(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let trial = plain(ground, order, name)?;
    // In the zone of the model, which tells when a day's cap frees.
    trial.scene.write_policy(&format!("{POLICY}{BUDGETS}"));
    Ok(trial)
}

/// What was approved of each budget: (when, cost), in order of time.
fn spent(trial: &Trial) -> Result<BTreeMap<String, Vec<(i64, u64)>>> {
    let mut spent: BTreeMap<String, Vec<(i64, u64)>> = BTreeMap::new();
    for (_, decision) in trial.scene.every_decision().into_iter().filter(|(_, decision)| decision.approved()) {
        let intent: serde_json::Value = serde_json::from_slice(decision.record.value.as_deref().unwrap_or_default())?;
        let cost = intent["cost"].as_u64().unwrap_or(1);
        let names = approval(&decision.record)["budgets"].as_array().cloned().unwrap_or_default();
        for name in names.iter().filter_map(serde_json::Value::as_str) {
            let is_each = ["share", "totals", "kills"].contains(&name);
            let name = if is_each { format!("{name} of {}", intent["campaign"]) } else { name.to_owned() };
            spent.entry(name).or_default().push((decision.at_ms, cost));
        }
    }
    spent.values_mut().for_each(|all| all.sort_unstable());
    Ok(spent)
}

/// The most that was spent in a window of this length.
fn fullest(spent: &[(i64, u64)], window_ms: i64) -> u64 {
    let (mut from, mut sum, mut most) = (0, 0, 0);
    for (at, cost) in spent {
        sum += cost;
        while spent[from].0 <= at - window_ms {
            sum -= spent[from].1;
            from += 1;
        }
        most = most.max(sum);
    }
    most
}

/// What is approved of the budget `prepaid` where it is spent, and nothing of it is lost.
fn all_of(limit: u64) -> RangeInclusive<u64> {
    limit * 99 / 100..=limit
}

/// Checks that no budget was exceeded, and that all of them were spent.
fn judged(mut trial: Trial, times: usize, of_prepaid: RangeInclusive<u64>) -> Result<Findings> {
    let (least, limit) = of_prepaid.clone().into_inner();
    trial.drain()?;
    let spent = spent(&trial)?;
    let rate = fullest(&spent["rate"], RATE_WINDOW_MS);
    let prepaid = sum(&spent["prepaid"]);
    ensure!(rate <= RATE_LIMIT, "{rate} of {RATE_LIMIT} in a window");
    ensure!(rate * 100 >= RATE_LIMIT * 90, "{rate} of {RATE_LIMIT} in the fullest window: the budget was hardly spent");
    ensure!(of_prepaid.contains(&prepaid), "{prepaid} of {limit} in total, {least} at least");
    let mut shares = 0;
    for (name, all) in spent.iter().filter(|(name, _)| name.starts_with("share")) {
        // Where a month ends meanwhile, each has its own.
        for of_month in all.chunk_by(|(at, _), (then, _)| month(*at) == month(*then)) {
            let share = sum(of_month);
            ensure!(share <= SHARE_LIMIT, "{share} of {SHARE_LIMIT}: {name}");
        }
        shares += 1;
    }
    ensure!(shares > 1, "campaigns have budgets of their own: {:?}", spent.keys());
    trial.note(format!("fullest window {rate} of {RATE_LIMIT}; in total {prepaid} of {limit}"));
    trial.finish(times)
}

/// The year and the month of a time in the zone of the policy.
fn month(at_ms: i64) -> (i16, i8) {
    let at = jiff::Timestamp::from_millisecond(at_ms).unwrap().in_tz(ZONE).unwrap();
    (at.year(), at.month())
}

fn sum(spent: &[(i64, u64)]) -> u64 {
    spent.iter().map(|(_, cost)| cost).sum()
}

/// A worker that holds leases and has a transaction open is frozen for longer than those of the rolling budget last, and wakes beside its
/// successor.
pub fn frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_budgets(ground, order, "budget-frozen")?;
    trial.load_at(2_000, OFFERED)?;
    let workers = [trial.start("one", &SHORT_SESSION), trial.start("two", &SHORT_SESSION)];
    trial.all_ready(workers)?;
    for time in 0..order.times {
        let (holder, other) = (workers[time % 2], workers[(time + 1) % 2]);
        trial.freeze_within_a_transaction(holder)?;
        trial.live(other, Duration::from_secs(8))?;
        trial.worker(holder).thaw();
        trial.comes_back()?;
    }
    judged(trial, order.times, all_of(PREPAID_LIMIT))
}

/// The node that counts the total is emptied when it is spent; `weir rebuild` counts it again.
pub fn wiped(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_budgets(ground, order, "budget-wiped")?;
    trial.load_at(2_000, OFFERED)?;
    let worker = trial.start_ready("only", &SHORT_SESSION)?;
    for _ in 0..order.times {
        trial.decided(6_000)?;
        let (cluster, prepaid) = (ground.cluster()?, id("prepaid"));
        ensure!(granted_of(&trial, cluster, &prepaid)? > 0, "nothing of {prepaid} is granted");
        let node = node_of(cluster, &prepaid)?;
        lost::flush(cluster, node)?;
        trial.until_of(worker, "the loss is counted", |worker| metric(worker, "weir_shards_lost", "") > Some(0.0))?;
        lost::rebuild(trial.worker(worker).folder(), &[], 0)?;
        trial.comes_back()?;
    }
    trial.decided(6_000)?;
    judged(trial, order.times, all_of(PREPAID_LIMIT))
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// Of so many kills, what one loses is judged: for that, the group has to be whole before and behind it.
const JUDGED: usize = 5;
/// Of the total of such a kill.
const LIMIT: u64 = 10_000;
/// The intents of its campaign come in groups, so that a worker asks for tokens several times until it is killed.
const GROUPS: u64 = 6;
const GROUP: u64 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// They are fewer than a fiftieth of the limit: no second spends more than that.
const INTENTS: u64 = GROUPS * GROUP;
/// What a worker holds of it, at the most: a fiftieth and half as much again. Those whose intents it was deciding are lost, too.
const MOST_LOST: u64 = LIMIT / 50 * 3 / 2 + INTENTS;

/// The campaign of a kill, which has a total of its own.
fn campaign(kill: usize) -> String {
    format!("kill-{kill}")
}

fn totals(kills: &[usize]) -> String {
    let campaigns: Vec<String> = kills.iter().copied().map(campaign).collect();
    format!(
        "[[budgets]]\nname = \"kills\"\ncampaign = {campaigns:?}\neach = \"campaign\"\nlimit = {LIMIT}\ntotal = true\n\
         best_effort = true\n"
    )
}

/// Kills a worker; its successor starts at once.
fn kill(trial: &mut Trial, workers: &mut [usize], place: usize) {
    trial.worker(workers[place]).kill();
    workers[place] = trial.start(NAMES[place], &SHORT_SESSION);
}

/// Kills a worker while intents take from the total of this kill. How much of that is lost.
fn lost_by(number: usize, trial: &mut Trial, cluster: &RedisCluster, workers: &mut [usize]) -> Result<u64> {
    for worker in &*workers {
        trial.ready(*worker)?;
    }
    let place = number % workers.len();
    let first = u64::try_from(number)? * INTENTS;
    let last = 1 + trial.numbers.u64(..GROUPS - 1);
    let id = BudgetId { name: "kills".into(), campaign: Some(campaign(number).into()) };
    let granted = |trial: &Trial| granted_of(trial, cluster, &id);
    for group in 0..GROUPS {
        let from = first + group * GROUP;
        trial.publish(sends_of(&campaign(number), from..from + GROUP))?;
        if group == 0 {
            trial.until("tokens of the total are granted", || granted(trial).is_ok_and(|granted| granted > 0))?;
        } else if group == last {
            kill(trial, workers, place);
        } else {
            trial.live(workers[place], PAUSE)?;
        }
    }
    trial.comes_back()?;
    // All of its intents are approved by now. The others give back what they hold of it, as no more come.
    trial.until(&format!("at most {MOST_LOST} of {LIMIT} tokens of {id} are lost"), || {
        granted(trial).is_ok_and(|granted| granted <= INTENTS + MOST_LOST)
    })?;
    let granted = granted(trial)?;
    let lost = granted.checked_sub(INTENTS);
    lost.with_context(|| format!("{granted} tokens of {id} are granted for {INTENTS} approvals"))
}

/// One worker, then four, then two, which are killed all the while.
pub fn killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let with_totals: Vec<usize> = (0..order.times).step_by(JUDGED).collect();
    let mut trial = plain(ground, order, "budget-killed")?;
    trial.scene.write_policy(&format!("{POLICY}{BUDGETS}{}", totals(&with_totals)));
    trial.load_at(2_000, OFFERED)?;
    let mut workers = vec![trial.start(NAMES[0], &SHORT_SESSION)];
    trial.ready(workers[0])?;
    let mut most_lost = 0;
    for time in 0..order.times {
        let wanted = match time * 3 / order.times {
            0 => 1,
            1 => 4,
            _ => 2,
        };
        while workers.len() < wanted {
            workers.push(trial.start(NAMES[workers.len()], &SHORT_SESSION));
        }
        for worker in workers.split_off(wanted) {
            // One that does not listen for signals yet is ended by them.
            trial.ready(worker)?;
            trial.stop(worker)?;
        }
        if with_totals.contains(&time) {
            most_lost = most_lost.max(lost_by(time, &mut trial, ground.cluster()?, &mut workers)?);
            continue;
        }
        let place = time % workers.len();
        trial.live_some_time(workers[place], 200, 3_000)?;
        kill(&mut trial, &mut workers, place);
    }
    trial.comes_back()?;
    wait_spent(&trial, ground.cluster()?, PREPAID_LIMIT)?;
    trial.drain()?;
    let spent = spent(&trial)?;
    for number in with_totals {
        let approved = spent.get(&format!("kills of {:?}", campaign(number))).map_or(0, |spent| sum(spent));
        ensure!(approved == INTENTS, "{approved} of {INTENTS} are approved of {}", campaign(number));
    }
    trial.note(format!("of a total of {LIMIT} a kill lost {most_lost}, or less"));
    // It is spent within seconds: kills lose what they may of what is left then.
    judged(trial, order.times, 0..=PREPAID_LIMIT)
}
