//! Budgets while something breaks. Rows 35, 38, 41 and 42.

mod kills;
mod nodes;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};

pub use self::{
    kills::killed,
    nodes::{Whose, all_lost, clock_ahead, old_snapshot, replies_lost, unreplicated},
};
use super::{lost, plain};
use crate::{
    ground::Ground,
    support::{POLICY, approval},
    trial::{Findings, Order, SHORT_SESSION, Trial},
};

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

/// What is approved of the budget `prepaid`, at the least and at the most.
#[derive(Debug, Clone, Copy)]
struct Prepaid {
    least: u64,
    limit: u64,
}

impl Prepaid {
    /// It is spent, and nothing of it is lost.
    const fn spent(limit: u64) -> Self {
        Self { least: limit * 99 / 100, limit }
    }
}

/// Checks that no budget was exceeded, and that all of them were spent.
fn judged(mut trial: Trial, times: usize, Prepaid { least, limit }: Prepaid) -> Result<Findings> {
    trial.drain()?;
    let spent = spent(&trial)?;
    let rate = fullest(&spent["rate"], RATE_WINDOW_MS);
    let prepaid = sum(&spent["prepaid"]);
    ensure!(rate <= RATE_LIMIT, "{rate} of {RATE_LIMIT} in a window");
    ensure!(rate * 100 >= RATE_LIMIT * 90, "{rate} of {RATE_LIMIT} in the fullest window: the budget was hardly spent");
    ensure!((least..=limit).contains(&prepaid), "{prepaid} of {limit} in total, {least} at least");
    let mut shares = 0;
    for (name, all) in spent.iter().filter(|(name, _)| name.starts_with("share")) {
        let share = sum(all);
        ensure!(share <= SHARE_LIMIT, "{share} of {SHARE_LIMIT}: {name}");
        shares += 1;
    }
    ensure!(shares > 1, "campaigns have budgets of their own: {:?}", spent.keys());
    trial.note(format!("fullest window {rate} of {RATE_LIMIT}; in total {prepaid} of {limit}"));
    trial.finish(times)
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
    judged(trial, order.times, Prepaid::spent(PREPAID_LIMIT))
}

/// The node that counts the total is emptied when it is spent; `weir rebuild` counts it again.
pub fn wiped(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_budgets(ground, order, "budget-wiped")?;
    trial.load_at(2_000, OFFERED)?;
    let worker = trial.start_ready("only", &SHORT_SESSION)?;
    for _ in 0..order.times {
        trial.decided(6_000)?;
        lost::lose_and_rebuild(ground, &mut trial, worker, "prepaid")?;
        trial.comes_back()?;
    }
    trial.decided(6_000)?;
    judged(trial, order.times, Prepaid::spent(PREPAID_LIMIT))
}
