//! The servers behind `cargo xtask test` and `cargo xtask stack`.
//!
//! A program of its own, so that xtask builds in seconds and can install the C tools that this one needs to build.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the person who started it")]

mod exec;
mod stack;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Starts weir's servers on this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the servers that tests share on free ports, run a command with their names in its environment, end them
    Exec(exec::ExecArgs),
    /// Start the servers on fixed ports with topics, a policy and segments, and keep them up until Ctrl-C
    Stack(stack::StackArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Exec(args) => exec::run(&args),
        Command::Stack(args) => stack::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
