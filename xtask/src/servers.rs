//! `test` and `stack`: build the program that starts the servers (testkit's weir-servers), and run it.

use std::{ffi::OsStr, os::unix::process::CommandExt};

use anyhow::{Context, Result};

use crate::{
    setup::{self, Scope},
    shell::{self, Profile, built, command},
};

/// Runs `cargo test --workspace` with these arguments while the shared servers are up.
///
/// # Errors
/// When something is missing, does not build or start, or a test fails.
pub fn test(args: &[String]) -> Result<()> {
    test_with(&[], args)
}

/// The same with more in the tests' environment.
///
/// # Errors
/// As [`test()`].
pub fn test_with(env: &[(&str, &OsStr)], args: &[String]) -> Result<()> {
    setup::run(Scope::Tests)?;
    // Not `cargo build`: without dev-dependencies cargo picks other features and compiles most of the tree again.
    // Selecting an integration test of testkit builds its binaries.
    shell::run(command("cargo", &["test", "-q", "--workspace", "--no-run", "--test", "kit"]))?;
    let mut exec = command(built(Profile::Dev, "weir-servers"), &["exec", "--", "cargo", "test", "--workspace"]);
    exec.args(args).envs(env.iter().copied());
    shell::run(exec)
}

/// Keeps the stack up until Ctrl-C.
///
/// # Errors
/// When something is missing, does not build or start.
pub fn stack(args: &[String]) -> Result<()> {
    setup::run(Scope::Tests)?;
    shell::run(command("cargo", &["build", "-q", "--workspace", "--bins"]))?;
    let mut stack = command(built(Profile::Dev, "weir-servers"), &["stack", "--weir"]);
    stack.arg(built(Profile::Dev, "weir")).args(args);
    // Replaces this process, so that Ctrl-C reaches one process that ends the servers in order.
    let said = shell::say(&stack);
    let error = stack.exec();
    Err(error).with_context(|| format!("cannot start `{said}`"))
}
