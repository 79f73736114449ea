//! `simulate`: many seeds of the simulation, or one seed with its whole trace.

use anyhow::Result;
use clap::Args;

use crate::shell::{self, command};

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// How many seeds to run
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this seed, and print its whole trace
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Build with optimization: takes minutes, and pays from some 10,000 seeds
    #[arg(long)]
    release: bool,
}

impl SimulateArgs {
    /// The first seeds, optimised: so many that the build pays.
    pub const fn many(seeds: u64) -> Self {
        Self { seeds, from: 0, seed: None, release: true }
    }
}

/// Runs seeds until one breaks a promise.
pub fn run(args: &SimulateArgs) -> Result<()> {
    let mut test = command("cargo", &["test", "-q", "-p", "weir-simulation"]);
    if args.release {
        test.arg("--release");
    }
    test.args(["--", "--nocapture", "--ignored", "in_chosen_seeds"]);
    match args.seed {
        Some(seed) => test.env("WEIR_SIM_SEED", seed.to_string()),
        None => test.env("WEIR_SIM_SEEDS", args.seeds.to_string()).env("WEIR_SIM_FROM", args.from.to_string()),
    };
    shell::run(test)
}
