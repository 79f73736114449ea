//! Runs a command with the shared servers up.

use std::{
    os::unix::process::parent_id,
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Args;
use testkit::{process::run_beside_parent, stack::Servers};

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start the servers that tests/security shares, too
    #[arg(long)]
    secured: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Starts the servers, runs the command, ends the servers.
///
/// # Errors
/// When a server or the command cannot be started, or who started this process has ended. The command's own failure is the exit code.
pub fn run(args: &ExecArgs) -> Result<ExitCode> {
    // Servers take seconds to start: who has started this process may have ended by then.
    let (start, parent) = (Instant::now(), parent_id());
    let servers = Servers::start(args.secured)?;
    println!("servers are up after {:.1?}:", start.elapsed());
    let env = servers.env();
    for (name, value) in &env {
        println!("  {name}={value}");
    }
    let (program, rest) = args.command.split_first().context("no command")?;
    let status = run_beside_parent(parent, Command::new(program).args(rest).envs(env))?;
    // A command ended by a signal has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    drop(servers);
    println!("servers have ended; {program} gave {code}");
    Ok(ExitCode::from(code))
}
