//! Two builds of weir, or one under two environments, in turn on the same servers: `cargo xtask bench compare`.
//!
//! A machine changes its speed by more than most changes gain, so the two drain the same backlog one right after the
//! other, in an order that changes from round to round, and figures are ratios of the two in one round.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::{
    Settings,
    report::{Ratio, median, table},
    rounds::{self, Capped, Program},
    servers::Servers,
};

/// The other side of the comparison.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// The other build's binary [default: this one]
    #[arg(long)]
    other: Option<PathBuf>,
    /// An environment variable of the other one, NAME=VALUE
    #[arg(long = "env", value_parser = variable)]
    variables: Vec<(String, String)>,
    #[command(flatten)]
    pub settings: Settings,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub fn run(compare: &Compare) -> Result<String> {
    let Settings { rounds, intents, .. } = compare.settings;
    let this = Program::this();
    let binary = compare.other.clone().unwrap_or_else(|| this.binary.clone());
    let other = Program { binary, env: compare.variables.clone() };
    let servers = Servers::start(&compare.settings, compare.settings.workload())?;
    let drain = |program: &Program| Ok::<_, anyhow::Error>(rounds::weir(&servers, program, |_| Ok(()))?.capped);
    eprintln!("a drain to warm up");
    drain(&this)?;
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let mut in_turn = [(&this, &mut ours), (&other, &mut others)];
        if round % 2 == 0 {
            in_turn.reverse();
        }
        for (program, drained) in in_turn {
            drained.push(drain(program).with_context(|| program.binary.display().to_string())?);
        }
    }
    let figures: [(&str, Of); 4] = [
        ("intents/s", |capped| capped.drained.intents_per_s),
        ("worker CPU, us per intent", |capped| capped.drained.cpu_us),
        ("resident memory at most, MiB", |capped| capped.drained.resident_mib),
        ("Redis CPU, us per decision", |capped| capped.redis.cpu_us),
    ];
    let row = |(name, of): (&str, Of)| {
        let [this, other] = [&ours, &others].map(|drains| drains.iter().map(of).collect::<Vec<_>>());
        let [of_this, of_other] = [&this, &other].map(|all| format!("{:.2}", median(all)));
        [name.to_owned(), of_this, of_other, Ratio::of(&this, &other).to_string()]
    };
    let table = table(["", "this", "other", "this : other"], figures.map(row));
    Ok(format!("{}\n{rounds} rounds of {intents} intents\n\n{table}", servers.machine))
}

type Of = fn(&Capped) -> f64;
