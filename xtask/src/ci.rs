//! `ci`: what `.ci/run` runs. Fails at the first step that fails.

use std::{
    os::unix::process::CommandExt as _,
    process::{self, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{
    alerts, bounds,
    changes::{self, Changes},
    counts::{self, CountsArgs},
    deploy, fuzz,
    rows::{self, Plan, Planned},
    servers, setup,
    shell::{self, command},
    simulate::{self, SimulateArgs},
    small_loads, tables, test_report,
};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// What every change has to pass: under 25 minutes on two cores
    Change,
    /// Then every measurement with a small load, the ignored tests, ten minutes of each fuzz target, 20,000 seeds of the simulation and
    /// every fault: hours. Before a release
    Everything,
}

#[derive(Debug, Args)]
pub struct StepArgs {
    /// Its name
    name: String,
    /// After how many seconds it is ended
    #[arg(long)]
    seconds: u64,
    /// The process that starts it
    #[arg(long)]
    parent: u32,
    /// A part of it is left out
    #[arg(long)]
    in_part: bool,
    /// It has a lower priority
    #[arg(long)]
    beside: bool,
}

/// All steps of a change together end after so many seconds, so that whoever runs CI under a limit of 90 minutes sees which step was slow:
/// with the build of xtask in `.ci/run`, they take 89.
const ALL_SECONDS: u64 = 4_800;

struct Step {
    name: &'static str,
    /// After how many seconds it is ended: three times or more what it takes on two quiet cores, because a slower machine has to pass,
    /// too; more where it waits for another row or for the network.
    seconds: u64,
    /// `true`: a part of it is left out.
    run: fn(bool) -> Result<()>,
    /// The files and folders that it checks, between spaces (`Cargo.` is Cargo.toml and Cargo.lock): where none has changed since a
    /// commit that passed, it is left out. Empty: it always runs.
    of: &'static str,
    /// The same for a part of it.
    part_of: &'static str,
}

const fn step(name: &'static str, seconds: u64, run: fn(bool) -> Result<()>) -> Step {
    Step { name, seconds, run, of: "", part_of: "" }
}

/// Rows of steps that run side by side.
type Stage = &'static [&'static [Step]];

/// What needs only the processor runs beside what mostly waits: for the network, or for servers. cargo locks target/debug in `build`,
/// `benches`, `docs` and `faults`: none of them is beside another.
const CHANGE: [Stage; 3] = [
    &[
        // Cold, it installs a compiler.
        &[step("tools", 600, |_| setup::to_build())],
        &[step("format", 120, |_| shell::run(command("cargo", &["fmt", "--all", "--check"])))],
    ],
    &[
        &[step("build", servers::BUILD_SECONDS, |_| servers::build_listed())],
        &[
            step("setup", servers::SETUP_SECONDS, |_| setup::run()),
            step("deny", 120, |_| deny()),
            // Cold, it downloads and compiles for minutes.
            Step { of: DEPLOYED, ..step("deploy", 900, |_| deploy::run()) },
            step("alerts", 240, |_| alerts::run()),
        ],
    ],
    &[
        &[Step { part_of: EXAMPLES, ..step("test", servers::TEST_SECONDS, test) }],
        &[
            step("benches", 600, |_| benches()),
            step("docs", 900, |_| docs()),
            // Instructions do not depend on what else runs.
            Step { of: COUNTED, ..step("counts", 1_200, |_| counts::run(&CountsArgs::default())) },
            step("faults", 900, |_| servers::faults(&["--ci".to_owned()])),
        ],
    ],
];

/// The steps in which clippy is the compiler: it lints and compiles in one go, where `cargo clippy` would check all dependencies once more.
/// They share what they build: one of them without clippy would build all of the workspace again.
const LINTED: [&str; 4] = ["build", "benches", "docs", "faults"];
/// What `cargo clippy -- -D warnings` sets.
const LINTS: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// What is deployed, and the tools that check it.
const DEPLOYED: &str = "deploy/ docker-compose.yml schemas/ testkit/toolchains.txt xtask/";
/// What instructions are counted of, and with.
const COUNTED: &str = "benches/ crates/core/ crates/oracle/ Cargo. .cargo/ rust-toolchain.toml xtask/";
/// What the examples are, and what they talk to.
const EXAMPLES: &str = ".cargo/ .config/ benches/measured build.rs templates/ examples/ tests/ testkit/ src/ crates/ lua/ \
                        schemas/ Cargo. rust-toolchain.toml xtask/";

/// These take long and seldom find anything in a change. Nothing is beside what measures.
const EVERYTHING: [Stage; 1] = [&[&[
    step("docs of programs", 900, |_| docs_of_programs()),
    // Longer than its commands' own deadlines together.
    step("measurements", 5 * 3600, |_| small_loads::run()),
    step("long tests", servers::LONG_SECONDS, |_| servers::long()),
    step("fuzz", 2 * 3600, |_| fuzz::run(600, None)),
    step("simulate", 4 * 3600, |_| simulate::run(&SimulateArgs::many(20_000))),
    step("all faults", 6 * 3600, |_| servers::faults(&[])),
]]];

/// Checks format, lints, dependencies, deploy/ and docs, tests, counts instructions, and injects faults. Prints when each step began and
/// how long it took, also when one fails.
///
/// # Errors
/// At the first step that fails, does not end by its deadline, or leaves processes behind; names it, and ends what runs beside it.
pub fn run(args: CiArgs) -> Result<()> {
    // What passes by another commit than the last one that passed here may not have passed as a whole.
    let checked_out = if args.since.is_none() { changes::checked_out() } else { None };
    let (more, all_seconds, changes): (&[Stage], _, _) = match args.extent {
        Extent::Change => (&[], Some(ALL_SECONDS), Changes::since(args.since)),
        Extent::Everything => (&EVERYTHING, None, Changes::default()),
    };
    // Where no test runs any more, none of an earlier run is shown.
    let profiles = if more.is_empty() { &test_report::PROFILES[..1] } else { test_report::PROFILES };
    profiles.iter().for_each(|profile| test_report::forget(profile));
    tables::begin(profiles);
    if let Some(commit) = changes.none_in(EXAMPLES) {
        tables::leave_out("examples", format!("not run: they and what they talk to are as in {commit}, which passed"));
    }
    let end = all_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let outcome = CHANGE.iter().chain(more).try_for_each(|stage| {
        let rows: Vec<Vec<Planned>> = stage.iter().map(|row| planned(row, &changes)).collect();
        rows::run(&Plan { rows: &rows, end, outputs: &shell::of_ci(""), process: &process_of })
    });
    tables::print();
    outcome?;
    match checked_out.filter(|commit| changes::checked_out().as_ref() == Some(commit)) {
        Some(commit) => changes::passed(&commit),
        None => Ok(()),
    }
}

/// Runs a step, in a process of its own.
pub fn run_step(args: &StepArgs) -> Result<()> {
    rows::begin_step(args.parent, args.beside)?;
    let mut steps = CHANGE.iter().chain(&EVERYTHING).flat_map(|stage| stage.iter().copied().flatten());
    let step = steps.find(|step| step.name == args.name).with_context(|| format!("there is no step {}", args.name))?;
    bounds::within(step.name, Duration::from_secs(args.seconds), || (step.run)(args.in_part))
}

/// The steps of a row, without the ones that are left out: the table says why.
fn planned(row: &[Step], changes: &Changes) -> Vec<Planned> {
    let unchanged = |of: &str| changes.none_in(of).filter(|_| !of.is_empty());
    let mut planned = Vec::new();
    for &Step { name, seconds, of, part_of, .. } in row {
        let in_part = unchanged(part_of).is_some();
        match unchanged(of) {
            Some(commit) => tables::leave_out(name, format!("not run: what it checks is as in {commit}, which passed")),
            None => planned.push(Planned { name, seconds, in_part }),
        }
    }
    planned
}

fn process_of(step: &Planned, limit: Duration, is_beside: bool) -> Command {
    // This program, also where cargo has built another in its place meanwhile.
    let mut process = command("/proc/self/exe", &["ci-step", step.name]);
    // For lists of processes.
    process.arg0("xtask");
    process.arg("--seconds").arg(limit.as_secs().to_string()).arg("--parent").arg(process::id().to_string());
    process.args(step.in_part.then_some("--in-part")).args(is_beside.then_some("--beside"));
    if LINTED.contains(&step.name) {
        process.envs(LINTS);
    }
    process
}

/// Not advisories: deny.toml says why, and where they are checked. By whom a crate is needed is 1,600 lines of the warnings that pass: only what
/// fails is shown with it.
fn deny() -> Result<()> {
    let check = |options: &[&str]| {
        let args = [&["check"][..], options, &["licenses", "bans", "sources"]].concat();
        shell::run(command(setup::tool("cargo-deny"), &args))
    };
    if let Err(failed) = check(&["--hide-inclusion-graph"]) {
        // For its output alone: it may pass.
        let _ = check(&["--allow", "duplicate"]);
        return Err(failed);
    }
    fuzz::check_lock()
}

/// In part: without the examples.
fn test(in_part: bool) -> Result<()> {
    let without = ["-E", "not binary(examples)"].map(str::to_owned);
    servers::run_listed(if in_part { &without } else { &[] })
}

/// With what the tests are: of benches alone, cargo would build anew what macros share with them, and weir with it.
fn benches() -> Result<()> {
    shell::run(command("cargo", &["build", "-q", "--locked", "--workspace", "--all-targets"]))
}

/// The docs of all libraries, and their tests, which nextest does not run: code that is not to compile. Of one crate alone, cargo would
/// build what it needs once more, with fewer features.
fn docs() -> Result<()> {
    let (rustdoc, target) = (shell::workspace().join("xtask/rustdoc.sh"), shell::workspace().join("target/doc"));
    let mut docs = command("cargo", &["test", "--locked", "--doc", "--workspace"]);
    shell::run(docs.env("RUSTDOC", rustdoc).env("WEIR_DOCS", target))
}

fn docs_of_programs() -> Result<()> {
    let args = ["doc", "--locked", "--workspace", "--no-deps", "--bins"];
    shell::run(command("cargo", &args).env("RUSTDOCFLAGS", "-D warnings"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_has_a_name_of_its_own() {
        let rows = CHANGE.iter().chain(&EVERYTHING).flat_map(|stage| stage.iter().copied());
        let names: Vec<&str> = rows.flatten().map(|step| step.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(LINTED.iter().all(|linted| names.contains(linted)), "{names:?}");
    }
}
