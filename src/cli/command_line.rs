//! All verbs and their arguments.

use clap::{Parser, Subcommand};

use super::{check, completions, config, demo, explain, forget, health, man, plan, policy, rebuild, run, segments};
use crate::config::check_log_filter;

/// Frequency caps for marketing messages: send-intents in from Kafka, approved and suppressed ones out
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, arg_required_else_help = true, max_term_width = 110)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Log filter: error, warn, info, debug or trace, also for a part of weir (info,weir_kafka=debug). For `run`, it overrides
    /// log.level; other commands log nothing without it
    #[arg(long, global = true, value_name = "FILTER", value_parser = check_log_filter)]
    pub log_level: Option<String>,
}

/// What weir can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run everything on this machine with nothing installed: traffic, decisions, a summary
    Demo(demo::DemoArgs),
    /// Run the worker
    Run(run::RunArgs),
    /// Read everything, connect to everything, change nothing; report what is wrong and what to do
    Check(check::CheckArgs),
    /// Ask a running worker on this machine whether it is alive, or ready: for containers
    Health(health::HealthArgs),
    /// Show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Rebuild lost histories from the approved and refunds topics
    Rebuild(rebuild::RebuildArgs),
    /// Build, inspect and query sets of segments
    #[command(subcommand)]
    Segments(Box<segments::SegmentsCommand>),
    /// Validate policies, and replay past intents against them
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Explain why a user's intents were suppressed, and when the next one is allowed
    Explain(explain::ExplainArgs),
    /// Delete a user's history in Redis, and report what stays in Redis and Kafka
    Forget(forget::ForgetArgs),
    /// Estimate capacity for a number of users and a rate: Redis, workers, Kafka, queue wait
    Plan(Box<plan::PlanArgs>),
    /// Print a script that completes commands and options in a shell
    Completions(completions::CompletionsArgs),
    /// Write the man pages
    Man(man::ManArgs),
}
