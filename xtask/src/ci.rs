//! `ci`: what `.ci/run` runs. Fails at the first step that fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{
    alerts, bounds,
    changes::{self, Changes},
    counts::{self, CountsArgs},
    deploy, faults, fuzz, servers,
    setup::{self, Scope},
    shell::{self, command},
    simulate::{self, SimulateArgs},
    small_loads, tables, test_report,
};

/// Arguments of `cargo xtask ci`.
#[derive(Debug, Args)]
pub struct CiArgs {
    /// How much to run
    #[arg(long, value_enum, default_value_t = Extent::Change)]
    extent: Extent,
    /// A commit that has passed: steps that check nothing that has changed since are left out [default: the last commit that passed on
    /// this machine]
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
}

/// How much CI runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// What every change has to pass: under 25 minutes on two cores
    Change,
    /// Then every measurement with a small load, the ignored tests, ten minutes of each fuzz target, 20,000 seeds of the simulation and
    /// every fault: hours. Before a release
    Everything,
}

/// All steps of a change together end after so many seconds, so that whoever runs CI under a limit sees which step was slow.
const ALL_SECONDS: u64 = 5_000;

/// A step.
struct Step {
    name: &'static str,
    /// After how many seconds it is ended: some three times what it takes on two quiet cores.
    seconds: u64,
    run: fn(&Changes) -> Result<()>,
    /// The files and folders that it checks (`Cargo.` is Cargo.toml and Cargo.lock): where none has changed since a commit that
    /// passed, it is left out. Empty: it always runs.
    of: &'static [&'static str],
}

const fn step(name: &'static str, seconds: u64, run: fn(&Changes) -> Result<()>) -> Step {
    Step { name, seconds, run, of: &[] }
}

const CHANGE: [Step; 12] = [
    step("format", 60, |_| shell::run(command("cargo", &["fmt", "--all", "--check"]))),
    // Cold, it downloads and compiles for 8 minutes.
    step("setup", 900, set_up),
    step("clippy", 900, |_| clippy()),
    // Not advisories: deny.toml says why, and where they are checked.
    step("deny", 60, |_| shell::run(command(setup::tool("cargo-deny"), &["check", "licenses", "bans", "sources"]))),
    Step { of: &DEPLOYED, ..step("deploy", 120, |_| deploy::run()) },
    step("doc", 250, |_| doc()),
    step("alerts", 120, |_| alerts::run()),
    step("build", 800, |_| servers::build_listed()),
    step("test", servers::TEST_SECONDS, test),
    Step { of: &COUNTED, ..step("counts", 300, |_| counts::run(&CountsArgs::default())) },
    // Fuzzing has found nothing in a change for long: here only that the targets compile.
    Step {
        of: &["fuzz/", "crates/core/", "crates/schemas/", ".cargo/", "Cargo.", "rust-toolchain.toml", "xtask/"],
        ..step("fuzz targets", 200, |_| fuzz::check())
    },
    step("faults", 600, |_| faults::run(&["--ci".to_owned()])),
];

/// What is deployed, and the tools that check it.
const DEPLOYED: [&str; 5] = ["deploy/", "docker-compose.yml", "schemas/", "testkit/toolchains.txt", "xtask/"];
/// What instructions are counted of, and with.
const COUNTED: [&str; 6] = ["benches/", "crates/core/", "Cargo.", ".cargo/", "rust-toolchain.toml", "xtask/"];
/// What the examples are, and what they talk to.
const EXAMPLES: [&str; 15] = [
    ".cargo/",
    ".config/",
    "benches/measured",
    "build.rs",
    "templates/",
    "examples/",
    "tests/",
    "testkit/",
    "src/",
    "crates/",
    "lua/",
    "schemas/",
    "Cargo.",
    "rust-toolchain.toml",
    "xtask/",
];

/// These take long and seldom find anything in a change.
const EVERYTHING: [Step; 5] = [
    // Longer than its commands' own deadlines together.
    step("measurements", 5 * 3600, |_| small_loads::run()),
    step("long tests", servers::LONG_SECONDS, |_| servers::long()),
    step("fuzz", 2 * 3600, |_| fuzz::run(600, None)),
    step("simulate", 4 * 3600, |_| simulate::run(&SimulateArgs::many(20_000))),
    step("all faults", 6 * 3600, |_| faults::run(&[])),
];

/// Checks format, lints, dependencies, deploy/ and docs, then tests, counts instructions, and injects faults. Prints how long each step
/// took, also when one fails.
///
/// # Errors
/// At the first step that fails, does not end by its deadline, or leaves processes behind; names it.
pub fn run(args: CiArgs) -> Result<()> {
    // What passes by another commit than the last one that passed here may not have passed as a whole.
    let checked_out = if args.since.is_none() { changes::checked_out() } else { None };
    let (more, all_seconds, changes): (&[Step], _, _) = match args.extent {
        Extent::Change => (&[], ALL_SECONDS, Changes::since(args.since)),
        Extent::Everything => (&EVERYTHING, u64::MAX, Changes::default()),
    };
    // Where no test runs any more, none of an earlier run is shown.
    let profiles = if more.is_empty() { &test_report::PROFILES[..1] } else { test_report::PROFILES };
    profiles.iter().for_each(|profile| test_report::forget(profile));
    tables::begin(profiles);
    if let Some(commit) = changes.none_in(&EXAMPLES) {
        tables::note(format!(
            "test: without the examples: they and what they talk to are as in {commit}, which passed"
        ));
    }
    let start = Instant::now();
    let outcome = CHANGE.iter().chain(more).try_for_each(|step| {
        let left = Duration::from_secs(all_seconds).saturating_sub(start.elapsed());
        run_step(step, &changes, left)
    });
    tables::print();
    outcome?;
    match checked_out.filter(|commit| changes::checked_out().as_ref() == Some(commit)) {
        Some(commit) => changes::passed(&commit),
        None => Ok(()),
    }
}

fn run_step(step: &Step, changes: &Changes, left: Duration) -> Result<()> {
    let name = step.name;
    if let Some(commit) = changes.none_in(step.of).filter(|_| !step.of.is_empty()) {
        tables::leave_out(name, format!("not run: what it checks is as in {commit}, which passed"));
        return Ok(());
    }
    eprintln!("== step {name}, at most {} s", step.seconds);
    tables::begin_step(name);
    let outcome = bounds::within(name, left.min(Duration::from_secs(step.seconds)), || (step.run)(changes));
    tables::end_step();
    outcome.with_context(|| format!("step {name} failed"))
}

/// Without what checks deploy/, where that is left out: helm is compiled.
fn set_up(changes: &Changes) -> Result<()> {
    let scope = if changes.none_in(&DEPLOYED).is_some() { Scope::Tests } else { Scope::Everything };
    setup::run(scope)
}

fn test(changes: &Changes) -> Result<()> {
    match changes.none_in(&EXAMPLES) {
        Some(_) => servers::run_listed(&["-E".to_owned(), "not binary(examples)".to_owned()]),
        None => servers::run_listed(&[]),
    }
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
