//! `faults`: the catalogue of faults, on servers that it starts itself.

use std::process::Command;

use anyhow::Result;

use crate::{
    setup::{self, Scope},
    shell::{self, command},
    temporary,
};

/// Builds tests/faults.
///
/// # Errors
/// When it does not build.
pub fn build() -> Result<()> {
    shell::run(cargo_test(&["--no-run"]))
}

/// Runs tests/faults with these arguments.
///
/// # Errors
/// When something is missing or does not build, or a row of the catalogue breaks a promise.
pub fn run(args: &[String]) -> Result<()> {
    setup::run(Scope::Tests)?;
    let mut faults = cargo_test(&["--"]);
    faults.args(args);
    temporary::run(faults)
}

fn cargo_test(more: &[&str]) -> Command {
    let mut test = command("cargo", &["test", "-q", "--locked", "--workspace", "--test", "faults"]);
    test.args(more);
    test
}
