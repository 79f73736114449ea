//! `weir plan`: estimates capacity for a number of users and a rate, from measured constants.

mod estimate;
mod measured;
mod quantity;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, value_parser};
use serde::Serialize;
use serde_json::json;

use super::{
    exit::UsageError,
    output::{OutputForm, aligned, lines, print_json},
    policy,
};
use estimate::{Estimate, PolicyFigures};
pub use measured::{Curve, Measured, measured};
use quantity::{bytes, count, seconds, share};

/// What the measured constants were read from.
const MEASURED: &str =
    "benches/measured.json (cargo xtask bench), benches/measured-rebuild.json (cargo bench --bench rebuild)";
const DAY_S: f64 = 86_400.0;
const MIB: f64 = 1_048_576.0;

/// `weir plan`. The bounds are far beyond what exists; they keep every result a number.
#[derive(Debug, Clone, Args, Serialize)]
pub struct PlanArgs {
    /// Users with a history: 270M
    #[arg(long, value_name = "N", value_parser = count(1.0, 1e10))]
    users: f64,
    /// Intents per second, averaged over days: 10k
    #[arg(long, value_name = "N", value_parser = count(0.001, 1e9))]
    rate: f64,
    /// Intents per second at the peak: 100k
    #[arg(long, value_name = "N", value_parser = count(0.001, 1e9))]
    peak: f64,
    /// Sends per user within the history [default: what the rate gives and the policy allows]
    #[arg(long, value_name = "N", value_parser = count(0.001, MOST_SENDS))]
    sends: Option<f64>,
    /// Share of intents that weir approves
    #[arg(long = "approved-share", value_name = "SHARE", default_value = "100%", value_parser = share)]
    approved: f64,
    /// How far back the history reaches (redis.history)
    #[arg(long, value_name = "DURATION", default_value = "8d", value_parser = seconds(60.0, 3660.0 * DAY_S))]
    history: f64,
    /// Replicas of each Redis primary
    #[arg(long, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(0..=5))]
    replicas: u32,
    /// Memory of a Redis node
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = bytes(64.0 * MIB, 1e14))]
    node_memory: f64,
    /// Lanes of one instance (worker.lanes)
    #[arg(long, value_name = "N", default_value = "4", value_parser = value_parser!(u32).range(1..=256))]
    lanes: u32,
    /// Partitions of the intents topic, if it exists
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    partitions: Option<u32>,
    /// Bytes of an intent and its key
    #[arg(long, value_name = "SIZE", default_value = "500", value_parser = bytes(1.0, 2.0 * MIB))]
    intent_size: f64,
    /// Round trip to the brokers
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = seconds(0.0, 60.0))]
    round_trip: f64,
    /// Time after which an intent must be delivered
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds(0.001, 365.0 * DAY_S))]
    delivery_timeout: f64,
    /// The part of it that weir and delivery need for one intent
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = seconds(0.0, DAY_S))]
    processing: f64,
    /// Intents of a blast
    #[arg(long, value_name = "N", default_value = "10M", value_parser = count(1.0, 1e12))]
    blast: f64,
    /// Campaigns that have a total of their own (a budget of --policy with each and total)
    #[arg(long, value_name = "N", value_parser = count(0.0, 1e9), default_value = "0")]
    campaigns: f64,
    /// The policy, a .toml or .json file: how many caps there are, and how many sends it allows
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    #[serde(skip)]
    output: OutputForm,
}

/// The most sends per user: far beyond what anybody is sent within a history, and beyond what was measured.
const MOST_SENDS: f64 = 1e4;

pub fn run(args: &PlanArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let policy = args.policy.as_deref().map(|path| read_policy(path, args.history)).transpose()?;
    let plan = Estimate::new(args, policy.as_ref(), &measured()?).map_err(UsageError)?;
    match args.output {
        OutputForm::Text => Ok(write!(out, "{}", in_text(&plan))?),
        OutputForm::Json => print_json(
            &json!({"inputs": args, "lines": plan.lines, "remarks": plan.remarks, "measured": MEASURED}),
            out,
        ),
    }
}

fn in_text(plan: &Estimate) -> String {
    let mut text = String::new();
    for of_section in plan.lines.chunk_by(|one, next| one.section == next.section) {
        let rows = of_section.iter().map(|line| [line.name, &line.text, line.formula.as_str()].map(str::to_owned));
        text += &format!("{}\n{}\n", of_section[0].section, lines(&aligned(rows, 1..2)));
    }
    for remark in &plan.remarks {
        text += &format!("Note: {remark}\n\n");
    }
    text + &format!("Measured constants: {MEASURED}\n")
}

fn read_policy(path: &Path, history_s: f64) -> Result<PolicyFigures, UsageError> {
    let history_ms = (history_s * 1000.0) as i64;
    Ok(PolicyFigures::of(&policy::read(path, history_ms)?, history_ms))
}

#[cfg(test)]
mod tests;
