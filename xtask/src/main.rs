//! weir's chores. `cargo xtask --help` lists them.

#![allow(clippy::print_stderr, reason = "it says what it does to the person who started it")]
#![allow(clippy::disallowed_methods, reason = "`bounds` ends what a step has started at the step's deadline")]

mod alerts;
mod bounds;
mod changes;
mod ci;
mod counts;
mod deploy;
mod flakes;
mod fuzz;
mod image;
mod notices;
mod redis_versions;
mod release;
mod rows;
mod sanitize;
mod servers;
mod setup;
mod shell;
mod simulate;
mod small_loads;
mod tables;
mod temporary;
mod test_report;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// weir's chores.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Install the tools that builds and tests need (as root on Debian), or print what to install
    Setup,
    /// Set up, start Kafka, Redis and S3 once, run all tests against them, end them
    Test {
        /// For `cargo nextest run`: `-- --test redis`, `-- -E 'test(rebuild)'`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run Kafka, a Redis Cluster and an S3 with topics, a sample policy and segments, to try weir with
    #[command(disable_help_flag = true)]
    Stack {
        /// `--with-worker`, `--kafka-port`, ...: see `cargo xtask stack --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure what weir costs beside a bare consume-produce loop and a sorted set per user, on servers of its own
    #[command(disable_help_flag = true)]
    Bench {
        /// `--rounds`, `--intents`, `--output json`, ...: see `cargo xtask bench --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the tests of the Redis edge on Redis 6.2 and 8.2 and on Valkey, whose programs PyPI has for x86_64
    RedisVersions {
        /// Only tests whose names have this in them
        filters: Vec<String>,
    },
    /// Count the instructions of the pure parts under callgrind, and compare with benches/counts.json
    Counts(counts::CountsArgs),
    /// Fuzz every reader of foreign bytes from the corpus in fuzz/, one target per core at a time
    Fuzz {
        /// One target only
        target: Option<String>,
        /// How long each target runs, in seconds
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Build weir with AddressSanitizer and run the tests that pass records through it, for the `unsafe` in the Kafka edge
    Sanitize,
    /// Run seeds of the simulation: lanes and the Redis edge on a fake Kafka and a fake Redis Cluster, with faults from the seed
    Simulate(simulate::SimulateArgs),
    /// Check the alerts and the dashboard in deploy/ with promtool (Debian's package prometheus)
    Alerts,
    /// Inject every fault of the catalogue into real servers, judge the committed output, and write the table of
    /// docs/reliability.md
    #[command(disable_help_flag = true)]
    Faults {
        /// `--rows 1,4,16c`, `--ci`, `--times N`, ...: see `cargo xtask faults --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check the chart with helm and the schemas of Kubernetes, and the compose file
    Deploy,
    /// Build the image by the Dockerfile without an engine (as root on Debian: buildah on a debootstrap), and run weir in it
    Image,
    /// Write the licences of everything in the binary to a file
    Notices {
        /// The file
        out: PathBuf,
    },
    /// Make the files of a release for this processor: archive, parts list (SBOM), checksums
    Release {
        /// The tag of the release: it must agree with Cargo.toml and CHANGELOG.md
        #[arg(long)]
        tag: Option<String>,
        /// The folder for the files
        #[arg(long, default_value = "target/releases")]
        into: PathBuf,
    },
    /// Check format, lints, dependencies and docs, then test, count and inject some faults: what CI runs
    Ci(ci::CiArgs),
    /// Run one step of `ci`, which starts it so
    #[command(hide = true)]
    CiStep(ci::StepArgs),
}

fn main() -> Result<()> {
    match Cli::parse().chore {
        Chore::Setup => setup::everything(),
        Chore::Test { args } => servers::test(&args),
        Chore::Stack { args } => servers::stack(&args),
        Chore::Bench { args } => servers::bench(&args),
        Chore::RedisVersions { filters } => redis_versions::run(&filters),
        Chore::Counts(args) => counts::run(&args),
        Chore::Fuzz { target, seconds } => fuzz::run(seconds, target.as_deref()),
        Chore::Sanitize => sanitize::run(),
        Chore::Alerts => alerts::run(),
        Chore::Simulate(args) => simulate::run(&args),
        Chore::Faults { args } => servers::faults(&args),
        Chore::Deploy => deploy::run(),
        Chore::Image => image::run(),
        Chore::Notices { out } => notices::run(&out),
        Chore::Release { tag, into } => release::run(tag.as_deref(), &into),
        Chore::Ci(args) => ci::run(args),
        Chore::CiStep(args) => ci::run_step(&args),
    }
}
