//! `ci`: what `.ci/run` runs. Fails at the first step that fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{
    alerts, bounds,
    counts::{self, CountsArgs},
    deploy, faults, fuzz, servers,
    setup::{self, Scope},
    shell::{self, command},
    simulate::{self, SimulateArgs},
    test_report,
};

/// Arguments of `cargo xtask ci`.
#[derive(Debug, Args)]
pub struct CiArgs {
    /// How much to run
    #[arg(long, value_enum, default_value_t = Extent::Change)]
    extent: Extent,
}

/// How much CI runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// What every change has to pass: under 25 minutes on two cores
    Change,
    /// Then the ignored tests, ten minutes of each fuzz target, 20,000 seeds of the simulation and every fault: hours. Before a release
    Everything,
}

/// All steps of a change together end after so many seconds, so that whoever runs CI under a limit sees which step was slow.
const ALL_SECONDS: u64 = 5_000;

/// A name, after how many seconds it is ended, and what it runs. A deadline is some three times what the step takes on two quiet cores.
type Step = (&'static str, u64, fn() -> Result<()>);

const CHANGE: [Step; 12] = [
    ("format", 60, || shell::run(command("cargo", &["fmt", "--all", "--check"]))),
    ("setup", 600, || setup::run(Scope::Everything)),
    ("clippy", 400, clippy),
    // Not advisories: deny.toml says why, and where they are checked.
    ("deny", 60, || shell::run(command(setup::tool("cargo-deny"), &["check", "licenses", "bans", "sources"]))),
    ("deploy", 120, deploy::run),
    ("doc", 200, doc),
    ("alerts", 120, alerts::run),
    ("build", 600, servers::build),
    ("test", servers::TEST_SECONDS, || servers::run(&[], &[])),
    ("counts", 300, || counts::run(&CountsArgs::default())),
    // Fuzzing has found nothing in a change for long: here only that the targets compile.
    ("fuzz targets", 120, fuzz::check),
    ("faults", 600, || faults::run(&["--ci".to_owned()])),
];

/// These take long and seldom find anything in a change.
const EVERYTHING: [Step; 4] = [
    ("long tests", 3 * 3600, servers::long),
    ("fuzz", 2 * 3600, || fuzz::run(600, None)),
    ("simulate", 4 * 3600, || simulate::run(&SimulateArgs::many(20_000))),
    ("all faults", 6 * 3600, || faults::run(&[])),
];

/// Checks format, lints, dependencies, deploy/ and docs, then tests, counts instructions, and injects faults. Prints how long each step
/// took, also when one fails.
///
/// # Errors
/// At the first step that fails, does not end by its deadline, or leaves processes behind; names it.
pub fn run(args: &CiArgs) -> Result<()> {
    let (more, all_seconds): (&[Step], _) = match args.extent {
        Extent::Change => (&[], ALL_SECONDS),
        Extent::Everything => (&EVERYTHING, u64::MAX),
    };
    let start = Instant::now();
    let mut took: Vec<(&str, Duration)> = Vec::new();
    let outcome = CHANGE.iter().chain(more).try_for_each(|&(name, seconds, step)| {
        eprintln!("== step {name}, at most {seconds} s");
        let of_all = Duration::from_secs(all_seconds).saturating_sub(start.elapsed());
        let began = Instant::now();
        let outcome = bounds::within(name, of_all.min(Duration::from_secs(seconds)), step);
        took.push((name, began.elapsed()));
        outcome.with_context(|| format!("step {name} failed"))
    });
    eprintln!("{}", test_report::slowest_and_flaky("default"));
    eprintln!("steps:");
    for (name, time) in &took {
        eprintln!("{name:<12}{:>6} s", time.as_secs());
    }
    eprintln!("{:<12}{:>6} s", "all", start.elapsed().as_secs());
    outcome
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
