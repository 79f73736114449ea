//! `fuzz`: every reader of foreign bytes under libFuzzer, from the stored corpus.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{
    setup,
    shell::{self, command, workspace},
};

/// The targets, as in fuzz/Cargo.toml.
const TARGETS: [&str; 10] =
    ["intent", "framed", "deferral", "refund", "approved", "history", "reply", "manifest", "bitmap", "policy"];
/// Memory limit: more than any target needs, a fuzzer's own tables included.
const MEMORY_LIMIT_MB: u32 = 512;
/// No input may take longer than this, in seconds.
const SLOWEST_INPUT_S: u32 = 5;

/// Runs the stored corpus of each target, then fuzzes it for so many seconds; as many at once as there are cores.
pub fn run(seconds: u32, only: Option<&str>) -> Result<()> {
    let targets: Vec<&str> = TARGETS.into_iter().filter(|target| only.is_none_or(|only| only == *target)).collect();
    ensure!(!targets.is_empty(), "there is no such target; there are: {}", TARGETS.join(", "));
    setup::tools()?;
    setup::cargo_tools()?;
    shell::run(command(setup::tool("cargo-fuzz"), &["build", "--sanitizer", "none"]))?;
    shell::at_once(&targets, |target| one(target, seconds)).map(drop)
}

/// Whether fuzz/Cargo.lock fits the crates that are fuzzed. What the targets run compiles in a test of weir-schemas.
pub fn check_lock() -> Result<()> {
    shell::run(command("cargo", &["tree", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--depth", "0"]))
}

/// Fuzzes one target. New inputs go to their own folder, so that the stored corpus changes only by hand.
fn one(target: &str, seconds: u32) -> Result<()> {
    let found = workspace().join("fuzz/target/found").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let log = workspace().join(format!("fuzz/target/fuzz-{target}.log"));
    let file = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut fuzz = command(setup::tool("cargo-fuzz"), &["run", "--sanitizer", "none", target]);
    fuzz.arg(&found).arg(format!("fuzz/corpus/{target}")).arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_LIMIT_MB}"),
        format!("-timeout={SLOWEST_INPUT_S}"),
    ]);
    fuzz.stderr(file.try_clone()?).stdout(file);
    shell::run(fuzz)
        .with_context(|| format!("{target}: what it said is in {}, the input in fuzz/artifacts", log.display()))
}
