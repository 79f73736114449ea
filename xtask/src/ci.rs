//! What CI runs: the quick checks first.

use anyhow::Result;

use crate::{
    counts::{self, CountsArgs},
    faults, fuzz, servers,
    setup::{self, Scope},
    shell::{self, command},
};

/// How long each target is fuzzed.
const FUZZ_SECONDS: u32 = 60;

/// Checks format, lints, dependencies and docs, then tests, counts instructions, fuzzes, and injects some of every kind of fault.
///
/// # Errors
/// At the first check that fails.
pub fn run() -> Result<()> {
    shell::run(command("cargo", &["fmt", "--all", "--check"]))?;
    setup::run(Scope::Everything)?;
    shell::run(command("cargo", &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // `--all-targets` covers the targets that `cargo test` runs, so the fault catalogue is checked separately.
    shell::run(command("cargo", &["clippy", "--locked", "--workspace", "--test", "faults", "--", "-D", "warnings"]))?;
    // Not advisories: deny.toml has the reason, and where they are checked.
    shell::run(command("cargo", &["deny", "check", "licenses", "bans", "sources"]))?;
    let mut doc = command("cargo", &["doc", "--locked", "--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    shell::run(doc)?;
    // All of them, so that one run reports every failure.
    servers::test(&["--no-fail-fast".to_owned()])?;
    counts::run(&CountsArgs::default())?;
    fuzz::run(FUZZ_SECONDS, None)?;
    faults::run(&["--ci".to_owned()])
}
