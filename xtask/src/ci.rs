//! What CI runs: the quick checks first.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{
    alerts,
    counts::{self, CountsArgs},
    deploy, faults, fuzz, servers,
    setup::{self, Scope},
    shell::{self, command},
    simulate::{self, SimulateArgs},
};

/// Arguments of `cargo xtask ci`.
#[derive(Debug, Args)]
pub struct CiArgs {
    /// How much of it to run
    #[arg(long, value_enum, default_value_t = Extent::Change)]
    extent: Extent,
}

/// How much CI runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// What every change has to pass: under 25 minutes on two cores
    Change,
    /// Then ten minutes of each fuzz target, 20,000 seeds of the simulation and every fault: hours. Before a release
    Everything,
}

/// A name and what it runs.
type Step = (&'static str, fn() -> Result<()>);

const CHANGE: [Step; 11] = [
    ("format", || shell::run(command("cargo", &["fmt", "--all", "--check"]))),
    ("setup", || setup::run(Scope::Everything)),
    ("clippy", clippy),
    // Not advisories: deny.toml says why, and where they are checked.
    ("deny", || shell::run(command("cargo", &["deny", "check", "licenses", "bans", "sources"]))),
    ("deploy", deploy::run),
    ("doc", doc),
    ("alerts", alerts::run),
    // All of them, so that one run reports all that fail.
    ("test", || servers::test(&["--no-fail-fast".to_owned()])),
    ("counts", || counts::run(&CountsArgs::default())),
    // Fuzzing has found nothing in a change for long: here only that the targets compile.
    ("fuzz targets", fuzz::check),
    ("faults", || faults::run(&["--ci".to_owned()])),
];

/// These take long and seldom find anything in a change.
const EVERYTHING: [Step; 3] = [
    ("fuzz", || fuzz::run(600, None)),
    ("simulate", || simulate::run(&SimulateArgs::many(20_000))),
    ("all faults", || faults::run(&[])),
];

/// Checks format, lints, dependencies, deploy/ and docs, then tests, counts instructions, and injects faults.
///
/// # Errors
/// At the first step that fails.
pub fn run(args: &CiArgs) -> Result<()> {
    let more: &[Step] = match args.extent {
        Extent::Change => &[],
        Extent::Everything => &EVERYTHING,
    };
    let mut took: Vec<(&str, Duration)> = Vec::new();
    for (name, step) in CHANGE.iter().chain(more) {
        let start = Instant::now();
        step().with_context(|| format!("step {name}"))?;
        took.push((name, start.elapsed()));
    }
    for (name, time) in &took {
        eprintln!("{name:<12}{:>6} s", time.as_secs());
    }
    eprintln!("{:<12}{:>6} s", "all", took.iter().map(|(_, time)| time).sum::<Duration>().as_secs());
    Ok(())
}

fn clippy() -> Result<()> {
    // `--all-targets` means those that `cargo test` runs; the fault catalogue is none of them.
    ["--all-targets", "--test=faults"].iter().try_for_each(|targets| {
        shell::run(command("cargo", &["clippy", "--locked", "--workspace", targets, "--", "-D", "warnings"]))
    })
}

fn doc() -> Result<()> {
    let mut doc = command("cargo", &["doc", "--locked", "--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    shell::run(doc)
}
