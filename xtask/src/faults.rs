//! `faults`: the catalogue of faults, on servers that it starts itself.

use anyhow::Result;

use crate::{setup, shell::command, temporary};

pub fn run(args: &[String]) -> Result<()> {
    setup::run()?;
    let mut faults = command("cargo", &["test", "-q", "--locked", "--workspace", "--test", "faults", "--"]);
    faults.args(args);
    temporary::run(faults)
}
