//! The command line: one file a verb. `main` turns what comes back into an exit code.

pub mod args;
pub mod assemble;
pub mod check;
mod clocks;
pub mod command_line;
pub mod completions;
pub mod config;
pub mod demo;
pub mod exit;
pub mod explain;
pub mod forget;
pub mod health;
pub mod logging;
pub mod man;
pub mod output;
pub mod plan;
pub mod policy;
pub mod rebuild;
pub mod run;
pub mod segments;
mod signals;
pub mod time_zones;
mod worker;
