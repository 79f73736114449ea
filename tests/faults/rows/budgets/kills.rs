//! Workers that spend budgets and are killed. Row 35a.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::redis::RedisCluster;
use weir_core::limit::budget::BudgetId;

use super::{
    BUDGETS, OFFERED, PREPAID_LIMIT, Prepaid, judged,
    nodes::{granted_of, sends_of, wait_spent},
    spent, sum,
};
use crate::{
    ground::Ground,
    rows::plain,
    support::POLICY,
    trial::{Findings, Order, SHORT_SESSION, Trial},
};

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
        let length = trial.some_time(200, 3_000);
        trial.live(workers[place], length)?;
        kill(&mut trial, &mut workers, place);
    }
    trial.comes_back()?;
    wait_spent(&trial, ground.cluster()?, PREPAID_LIMIT)?;
    trial.unload()?;
    trial.scene.wait_until_drained();
    let spent = spent(&trial)?;
    for number in with_totals {
        let approved = spent.get(&format!("kills of {:?}", campaign(number))).map_or(0, |spent| sum(spent));
        ensure!(approved == INTENTS, "{approved} of {INTENTS} are approved of {}", campaign(number));
    }
    trial.note(format!("of a total of {LIMIT} a kill lost {most_lost}, or less"));
    // It is spent within seconds: kills lose what they may of what is left then.
    judged(trial, order.times, Prepaid { least: 0, limit: PREPAID_LIMIT })
}
