//! `bench`: the cost of weir, measured on servers that it starts itself.

use anyhow::Result;

use crate::{
    setup,
    shell::{self, command},
};

/// Builds weir as it is released and runs benches/system with these arguments.
pub fn run(args: &[String]) -> Result<()> {
    setup::run()?;
    // The bench profile is the release profile; cargo builds the weir binary with it, by the same features.
    let mut bench = command("cargo", &["bench", "-q", "--locked", "-p", "weir", "--bench", "system", "--"]);
    bench.args(args);
    shell::run(bench)
}
