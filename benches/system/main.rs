//! The cost of weir beside the systems it is built on, on real servers: `cargo xtask bench`.
//!
//! A backlog of seeded intents is published once. Then each round drains it four times, on the same servers, each time
//! by a process of its own:
//! * the bare loop: consume and produce in transactions and nothing else, once as records came, once with the bytes that weir
//!   writes ([`bare_loop`]);
//! * the published way: the bare loop with a sorted set per user in between ([`zset`]);
//! * `weir run`, the release binary.
//!
//! It prints medians of the rounds, and ratios within a round. Nothing here passes or
//! fails by time; a run fails when something breaks, or when a part suppresses another number than the caps require.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the person who started it")]

mod bare_loop;
mod budgets;
mod calls;
mod compare;
mod cpu;
mod deferral;
mod drain;
mod goals;
mod http;
mod keyspace;
mod latency;
mod machine;
mod memory;
mod pace;
mod plot;
mod pressure;
mod redis_info;
mod report;
mod rounds;
mod scale;
mod servers;
mod sizes;
mod store;
mod workload;
mod zset;

use std::{num::NonZero, path::PathBuf};

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use weir_core::basis::memory::{DEFAULT_BYTES, ReadsBeside, fitting};
use weir_kafka::native::allocator;

use crate::{
    report::{Measured, Report},
    servers::Servers,
    sizes::Sizes,
    store::Size,
    workload::{Partitioner, Workload},
};

/// The cost of weir, beside a bare consume-produce loop and beside a sorted set per user
///
/// Of an option that is given twice the last one counts.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench --", args_conflicts_with_subcommands = true, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<Child>,
    #[command(flatten)]
    settings: Settings,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Given by cargo to every bench
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

/// The parameters of a run; part of its result.
#[derive(Debug, Clone, Args, serde::Serialize)]
pub struct Settings {
    /// Rounds; figures are their medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Intents in the backlog
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(50_000..=20_000_000))]
    intents: u32,
    /// Users they are for, picked evenly [default: a fifth of the intents]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    users: Option<u32>,
    /// Partitions of each topic
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: i32,
    /// Lanes of the worker and of the bare loop; 0 for weir's default: one per core, as far as worker.memory has room
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=64))]
    lanes: u16,
    /// Intents per batch and commit, at most
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Shards of the keyspace (redis.shards; weir's own default)
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    shards: u16,
    /// Users of the part that measures the store alone
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    store_users: u32,
    /// How publishers choose the partition of an intent
    #[arg(long, value_enum, default_value_t)]
    partitioner: Partitioner,
}

impl Settings {
    fn workload(&self) -> Workload {
        let Self { intents, users, partitioner, .. } = *self;
        Workload { partitioner, ..Workload::new(intents, users.unwrap_or(intents / 5)) }
    }

    fn lane_count(&self) -> usize {
        match self.lanes {
            0 => std::thread::available_parallelism()
                .map_or(1, NonZero::get)
                .min(fitting(DEFAULT_BYTES, ReadsBeside::default())),
            lanes => usize::from(lanes),
        }
    }
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs: every round, too
    Json,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// The cost of HTTP for the lanes, and its latency meanwhile
    Http(http::Load),
    /// All CPU together: worker, Redis and broker, with and without a channel filter
    Cpu(cpu::Cpu),
    /// What it costs to defer an intent, and how fast deferred intents come back
    Deferral(deferral::Deferral),
    /// Bytes, staleness and overshoot of pressure, beside the published method
    Pressure(pressure::Pressure),
    /// How the pace of a route follows its consumer, simulated, with plots
    Pace(pace::PacePlots),
    /// Calls, use and over-grants of budgets, beside one call per intent and the published fixed batch
    Budgets(budgets::Budgets),
    /// The longest script calls, in their worst cases
    Calls(calls::Calls),
    /// The time from an intent's publication to its visible output
    Latency(latency::Load),
    /// Whether an intent costs the same however many users, campaigns, nodes and lanes there are, and in whatever order
    Scale(scale::Scale),
    /// The most memory that a long drain takes
    Memory(memory::Memory),
    /// Two builds of weir, or one under two environments, in turn
    Compare(compare::Compare),
    /// The bare loop, in a process of its own; started by the bench itself
    #[command(hide = true)]
    BareLoop {
        /// The worker's configuration file: of the same Kafka settings
        #[arg(long)]
        config: PathBuf,
        /// What it does besides consuming and producing
        #[arg(long, value_enum)]
        kind: bare_loop::Kind,
    },
}

fn main() -> Result<()> {
    // As weir does.
    allocator::prepare();
    let Cli { child, settings, output, .. } = Cli::parse();
    let text = match child {
        Some(Child::BareLoop { config, kind }) => return bare_loop::run(&config, kind),
        Some(Child::Http(load)) => http::run(&load)?,
        Some(Child::Cpu(cpu)) => cpu::run(&cpu)?,
        Some(Child::Deferral(deferral)) => deferral::run(&deferral)?,
        Some(Child::Pressure(pressure)) => pressure::run(&pressure)?,
        Some(Child::Pace(plots)) => pace::run(&plots)?,
        Some(Child::Budgets(budgets)) => budgets::run(&budgets)?,
        Some(Child::Calls(calls)) => calls::run(&calls)?,
        Some(Child::Latency(load)) => latency::run(&load)?,
        Some(Child::Scale(scale)) => scale::run(&scale)?,
        Some(Child::Memory(memory)) => memory::run(&memory)?,
        Some(Child::Compare(compare)) => compare::run(&compare)?,
        None => run(settings, output)?,
    };
    println!("{text}");
    Ok(())
}

fn run(settings: Settings, output: Output) -> Result<String> {
    let workload = settings.workload();
    // Before anything else runs, since a clock times them.
    eprintln!("the longest script calls");
    let calls = calls::measure(settings.rounds)?;
    let servers = Servers::start(&settings, workload)?;
    let rounds = rounds::all(&servers, settings.rounds)?;
    eprintln!("sizes of records");
    let sizes = Sizes::measure(&servers)?;
    eprintln!("the store alone");
    let size = Size { users: settings.store_users, batch: settings.batch, shards: settings.shards };
    let store = store::measure(&servers, size)?;
    let report = Report::new(servers.machine, settings, workload, Measured { rounds, sizes, store, calls });
    Ok(match output {
        Output::Table => report.to_string(),
        Output::Json => serde_json::to_string_pretty(&report)?,
    })
}
