//! `weir policy`: validates a policy and shows what it means; replays past intents against one.

mod simulate;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weir_core::{
    basis::document::{
        Format, Problems,
        value::{in_words, length},
    },
    history::{HistoryBounds, MAX_ENTRIES, decide::Scope},
    limit::budget::{Budget, BudgetSpan},
    policy::{
        Action, Bypass, Cap, CapWindow, Caps, Counts, Mode, OnUnavailable, Policy, QuietHours, Selection, Unavailable,
        file::{PolicyBounds, parse_policy},
    },
};

use super::{
    exit::UsageError,
    output::{OutputForm, aligned, lines, print_json},
};
use crate::{
    files::read_file,
    limits::{budget_in_words, limits_in_words},
    selections::{filter_in_words, or_all, selection_in_words},
};
pub use simulate::SimulateArgs;

/// `weir policy ...`
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Validate a policy: show what it means, or everything that is wrong with it
    Check(PolicyCheckArgs),
    /// Replay past intents against one policy or two, and report what would change
    ///
    /// Intents that a policy defers are decided again when they are due. Until then they are held in memory.
    Simulate(Box<SimulateArgs>),
}

pub async fn run(command: &PolicyCommand, out: &mut impl Write) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check(args) => check(args, out),
        PolicyCommand::Simulate(args) => Box::pin(simulate::simulate(args, out)).await,
    }
}

/// `weir policy check`
#[derive(Debug, Clone, Args)]
pub struct PolicyCheckArgs {
    /// The policy, a .toml or .json file
    file: PathBuf,
    /// How far back the history reaches (redis.history): no window may be longer
    #[arg(long, value_name = "DURATION", default_value = "8d", value_parser = length)]
    history: Duration,
    /// Most sends in one user's history (redis.max_entries): no limit may be higher
    #[arg(long, value_name = "N", default_value_t = MAX_ENTRIES)]
    max_entries: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidPolicy {
    /// There is no such file, or its name does not end in `.toml` or `.json`.
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Problems(#[from] Problems),
}

impl From<InvalidPolicy> for UsageError {
    fn from(invalid: InvalidPolicy) -> Self {
        Self(invalid.to_string())
    }
}

/// Checks a policy and prints what it means. With `--output json`, problems are printed to `out` as well.
pub fn check(args: &PolicyCheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let retention_ms = i64::try_from(args.history.as_millis()).unwrap_or(i64::MAX);
    let policy = read(&args.file, HistoryBounds { retention_ms, max_entries: args.max_entries });
    let printed = match (args.output, &policy) {
        (OutputForm::Text, Ok(policy)) => {
            write!(out, "{}", in_text(&args.file.display().to_string(), policy)).map_err(anyhow::Error::from)
        }
        (OutputForm::Text, Err(_)) => Ok(()),
        (OutputForm::Json, Ok(policy)) => print_json(&in_json(policy), out),
        (OutputForm::Json, Err(error)) => print_json(&json!({"valid": false, "problems": problems(error)}), out),
    };
    // What was found counts, also where nobody reads it.
    policy.map_err(UsageError::from)?;
    printed
}

pub(super) fn read(file: &Path, bounds: impl Into<PolicyBounds>) -> Result<Policy, InvalidPolicy> {
    let name = file.display().to_string();
    let unreadable = |reason: String| InvalidPolicy::Unreadable(format!("{name}: {reason}"));
    let format = Format::of_name(&name)
        .ok_or_else(|| unreadable("is neither a .toml nor a .json file: its ending says how it is read".into()))?;
    let text = read_file(file).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    Ok(parse_policy(&name, &text, format, bounds)?)
}

fn problems(error: &InvalidPolicy) -> Vec<Value> {
    match error {
        InvalidPolicy::Unreadable(message) => vec![json!({"place": null, "message": message})],
        InvalidPolicy::Problems(problems) => problems
            .all()
            .iter()
            .map(|problem| json!({"place": problem.place(), "message": problem.message()}))
            .collect(),
    }
}

fn in_text(name: &str, policy: &Policy) -> String {
    let segments = policy.segments.iter().map(|(name, caps)| (name.as_str(), caps));
    let all = segments.chain([("(everybody else)", &policy.default)]);
    let table = aligned(all.flat_map(|(name, caps)| rows(name, caps)), 0..0);
    let mut sentences = vec![format!("{name} is valid: version {}.", policy.version)];
    match policy.mode {
        Mode::Enforce => {}
        Mode::Shadow => sentences.push("Shadow: weir decides and reports, and approves every intent.".into()),
    }
    sentences.push(format!("Time zone {} where an intent names none.", policy.timezone.name()));
    sentences.extend(policy.max_age_ms.map(|ms| format!("Intents older than {} have expired.", in_words(ms))));
    sentences.extend(policy.quiet_hours.as_ref().map(quiet_in_words));
    sentences.extend(policy.stops.iter().map(stop_in_words));
    sentences.extend(limits_in_words(policy));
    if policy.defers() {
        sentences.push(format!("Intents are deferred for at most {}.", in_words(policy.defer_max_ms)));
    }
    sentences.extend(policy.bypass.iter().map(bypass_in_words));
    sentences.extend(policy.on_unavailable.iter().map(unavailable_in_words));
    format!("{}\n\n{}", sentences.join("\n"), lines(&table))
}

fn rows(segment: &str, caps: &Caps) -> Vec<[String; 3]> {
    let first = |index: usize| if index == 0 { segment.to_owned() } else { String::new() };
    match caps {
        Caps::Unlimited => vec![[first(0), String::new(), "unlimited".to_owned()]],
        Caps::Limited(caps) => {
            let row = |(index, cap): (usize, &Cap)| [first(index), cap.name.to_string(), cap_in_words(cap)];
            caps.iter().enumerate().map(row).collect()
        }
    }
}

fn cap_in_words(cap: &Cap) -> String {
    let amount = if cap.limit == 0 { "never any".into() } else { format!("at most {} {}", cap.limit, cap.window) };
    let scope = match cap.scope {
        Scope::Every => "",
        Scope::SameCampaign => ", of each campaign",
    };
    let then = match cap.action {
        Action::Suppress => "",
        Action::Defer => "; others are deferred",
    };
    format!("{amount}{scope}{}{then}", filter_in_words(&cap.filter, ", of "))
}

fn quiet_in_words(quiet: &QuietHours) -> String {
    let (from, to) = (quiet.from.strftime("%H:%M"), quiet.to.strftime("%H:%M"));
    let what = filter_in_words(&quiet.filter, " of ");
    let hours = format!("from {from} to {to} by the user's clock");
    match quiet.action {
        Action::Suppress => format!("Intents{what} are suppressed {hours}."),
        Action::Defer if quiet.spread_ms == 0 => format!("Intents{what} are deferred {hours}."),
        Action::Defer => {
            format!("Intents{what} are deferred {hours}, and spread over the {} after that.", in_words(quiet.spread_ms))
        }
    }
}

fn stop_in_words(selection: &Selection) -> String {
    format!("Stopped: {}.", selection_in_words(selection))
}

fn bypass_in_words(rule: &Bypass) -> String {
    let counts = match rule.counts {
        Counts::Yes => "recorded, and counts",
        // A policy has no such rule.
        Counts::Later => "recorded later, and counts",
        Counts::No => "not recorded",
    };
    format!("Never capped: {} ({counts}).", selection_in_words(&rule.selection))
}

fn unavailable_in_words(rule: &OnUnavailable) -> String {
    let what = or_all(filter_in_words(&rule.filter, ""), "all else");
    let action = match rule.action {
        Unavailable::Wait => "waits",
        Unavailable::Approve => "is approved, and recorded later",
        Unavailable::Suppress => "is suppressed",
    };
    format!("While Redis is unavailable for longer than redis.unavailable_after: {what} {action}.")
}

fn in_json(policy: &Policy) -> Value {
    let segments: serde_json::Map<_, _> =
        policy.segments.iter().map(|(name, caps)| (name.clone(), caps_in_json(caps))).collect();
    json!({
        "valid": true,
        "version": policy.version,
        "timezone": policy.timezone.name(),
        "shadow": policy.mode == Mode::Shadow,
        "max_age_ms": policy.max_age_ms,
        "longest_window_ms": policy.longest_window_ms(),
        "segments": segments,
        "default": caps_in_json(&policy.default),
        "bypass": policy.bypass.iter().map(bypass_in_words).collect::<Vec<_>>(),
        "on_unavailable": policy.on_unavailable.iter().map(unavailable_in_words).collect::<Vec<_>>(),
        "stop": policy.stops.iter().map(stop_in_words).collect::<Vec<_>>(),
        "limits": limits_in_words(policy).collect::<Vec<_>>(),
        "budgets": policy.budgets.iter().map(budget_in_json).collect::<Vec<_>>(),
        "defer_max_ms": policy.defers().then_some(policy.defer_max_ms),
        "quiet_hours": policy.quiet_hours.as_ref().map(quiet_in_words),
    })
}

fn caps_in_json(caps: &Caps) -> Value {
    match caps {
        Caps::Unlimited => json!("unlimited"),
        Caps::Limited(caps) => caps.iter().map(cap_in_json).collect(),
    }
}

fn cap_in_json(cap: &Cap) -> Value {
    let (kind, window) = match &cap.window {
        CapWindow::Sliding { text, .. } => ("window", text.to_string()),
        CapWindow::Per(period) => ("per", period.as_str().to_owned()),
    };
    json!({"name": &*cap.name, "limit": cap.limit, kind: window, "in_words": cap_in_words(cap)})
}

fn budget_in_json(budget: &Budget) -> Value {
    let (kind, span) = match &budget.span {
        BudgetSpan::Rolling { text, .. } => ("window", json!(&**text)),
        BudgetSpan::Per(period) => ("per", json!(period.as_str())),
        BudgetSpan::Total => ("total", json!(true)),
    };
    json!({"name": &*budget.name, "limit": budget.limit, kind: span, "in_words": budget_in_words(budget)})
}

#[cfg(test)]
mod tests;
