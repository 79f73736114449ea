//! Runs a command with the shared servers up.

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Args;
use testkit::{
    process::run_beside_parent,
    stack::{ServerPorts, Servers},
};

/// What to run.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Starts the servers, runs the command, ends the servers.
///
/// # Errors
/// When a server or the command cannot be started, or who started this process has ended. The command's own failure is the exit code.
pub fn run(args: &ExecArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let servers = Servers::start(ServerPorts::lease()?)?;
    println!("servers are up after {:.1?}:", start.elapsed());
    for (name, value) in servers.env() {
        println!("  {name}={value}");
    }
    let (program, rest) = args.command.split_first().context("no command")?;
    let status = run_beside_parent(Command::new(program).args(rest).envs(servers.env()))?;
    // A command ended by a signal has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    drop(servers);
    println!("servers have ended; {program} gave {code}");
    Ok(ExitCode::from(code))
}
