//! `test` and `stack`: build the program that starts the servers (testkit's weir-servers), and run it. `bench` and `faults` start servers
//! of their own.

use std::{ffi::OsStr, fs, os::unix::process::CommandExt, path::PathBuf, process::Command, thread, time::Duration};

use anyhow::{Context, Result};

use crate::{
    bounds, setup,
    shell::{self, Profile, built, command},
    temporary, test_report,
};

/// Tests that run at a time per core: they wait for servers most of the time.
const TESTS_PER_CORE: usize = 3;
/// How many tests run at a time, for nextest.
const THREADS: &str = "NEXTEST_TEST_THREADS";
/// After how many seconds the setup, which downloads, and a build from nothing are ended.
pub const SETUP_SECONDS: u64 = 900;
pub const BUILD_SECONDS: u64 = 1_800;
/// After how many seconds a run of all tests is ended: more than `global-timeout` in .config/nextest.toml, which names the tests that
/// still run, and the start of the servers.
pub const TEST_SECONDS: u64 = 2_700;
/// The same for the tests that are ignored in a change.
pub const LONG_SECONDS: u64 = 3 * 3600;

/// Runs the tests that these arguments of `cargo nextest run` choose while the shared servers are up, and names the slowest.
pub fn test(args: &[String]) -> Result<()> {
    test_with(&[], args)
}

pub fn test_with(env: &[(&str, &OsStr)], args: &[String]) -> Result<()> {
    bounds::within("setup", Duration::from_secs(SETUP_SECONDS), || {
        setup::run()?;
        if args.iter().any(|arg| arg.starts_with("--run-ignored")) { setup::serializers() } else { Ok(()) }
    })?;
    bounds::within("build", Duration::from_secs(BUILD_SECONDS), build)?;
    let profile = profile(args);
    let seconds = if profile == test_report::PROFILES[0] { TEST_SECONDS } else { LONG_SECONDS };
    let outcome = bounds::within("test", Duration::from_secs(seconds), || run(env, args));
    eprintln!("{}", test_report::slowest_and_flaky(profile));
    outcome
}

/// The profile of .config/nextest.toml that these arguments name.
fn profile(args: &[String]) -> &str {
    let apart = args.windows(2).find(|pair| ["--profile", "-P"].contains(&&*pair[0])).map(|pair| &*pair[1]);
    args.iter().find_map(|arg| arg.strip_prefix("--profile=")).or(apart).unwrap_or(test_report::PROFILES[0])
}

/// Runs the tests that are ignored in a change, one at a time.
pub fn long() -> Result<()> {
    setup::serializers()?;
    let args = "--profile everything --test-threads 1 --run-ignored only --no-tests pass".split(' ').map(str::to_owned);
    run(&[], &args.collect::<Vec<_>>())
}

/// Builds all tests and what they start.
pub fn build() -> Result<()> {
    // The binaries of testkit and of weir are built with the tests, so with the same features.
    shell::run(nextest("run", &["--no-run", "--cargo-quiet"]))
}

/// The same for [`run_listed()`].
pub fn build_listed() -> Result<()> {
    let args = ["--cargo-quiet", "--list-type", "binaries-only", "--message-format", "json"];
    let binaries = shell::stdout(nextest("list", &args))?;
    let list = list();
    fs::create_dir_all(shell::of_ci("")).context("cannot make the folder target/ci")?;
    fs::write(&list, binaries).with_context(|| format!("cannot write {}", list.display()))
}

/// Where nextest finds the binaries of the tests.
fn list() -> PathBuf {
    shell::of_ci("tests.json")
}

pub fn run(env: &[(&str, &OsStr)], args: &[String]) -> Result<()> {
    beside_servers(nextest("run", args), env, args)
}

/// Runs the tests that [`build_listed()`] has built. It does not ask cargo whether they are: cargo would wait for another one that
/// builds or checks meanwhile. So the arguments may choose tests, but nothing that is built.
pub fn run_listed(args: &[String]) -> Result<()> {
    let mut tests = command(setup::tool("cargo-nextest"), &["nextest", "run", "--binaries-metadata"]);
    tests.arg(list()).args(args);
    beside_servers(tests, &[], args)
}

fn beside_servers(tests: Command, env: &[(&str, &OsStr)], args: &[String]) -> Result<()> {
    test_report::forget(profile(args));
    let mut exec = command(built(Profile::Dev, "weir-servers"), &["exec"]);
    if are_secured(args) {
        exec.arg("--secured");
    }
    exec.arg("--").arg(tests.get_program()).args(tests.get_args()).envs(env.iter().copied());
    if std::env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        exec.env(THREADS, (cores * TESTS_PER_CORE).to_string());
    }
    temporary::run(exec)
}

/// Whether tests may run that need secured servers: unless only others are named.
fn are_secured(args: &[String]) -> bool {
    let named: Vec<&str> = args.windows(2).filter(|pair| pair[0] == "--test").map(|pair| pair[1].as_str()).collect();
    named.is_empty() || named.contains(&"security")
}

fn nextest<S: AsRef<OsStr>>(verb: &str, args: &[S]) -> Command {
    let mut nextest = command(setup::tool("cargo-nextest"), &["nextest", verb, "--locked", "--workspace"]);
    nextest.args(args);
    nextest
}

/// Keeps the stack up until Ctrl-C.
pub fn stack(args: &[String]) -> Result<()> {
    setup::run()?;
    shell::run(command("cargo", &["build", "-q", "--workspace", "--bins"]))?;
    let mut stack = command(built(Profile::Dev, "weir-servers"), &["stack", "--weir"]);
    stack.arg(built(Profile::Dev, "weir")).args(args);
    // Replaces this process, so that Ctrl-C reaches one process that ends the servers in order.
    let said = shell::say(&stack);
    let error = stack.exec();
    Err(error).with_context(|| format!("cannot start `{said}`"))
}

/// Builds weir as it is released and runs benches/system with these arguments.
pub fn bench(args: &[String]) -> Result<()> {
    setup::run()?;
    // The bench profile is the release profile; cargo builds the weir binary with it, by the same features.
    let bench = ["bench", "-q", "--locked", "-p", "weir", "--bench", "system", "--"];
    shell::run(command("cargo", &bench).args(args))
}

/// Runs the catalogue of faults.
pub fn faults(args: &[String]) -> Result<()> {
    setup::run()?;
    let mut faults = command("cargo", &["test", "-q", "--locked", "--workspace", "--test", "faults", "--"]);
    faults.args(args);
    temporary::run(faults)
}
