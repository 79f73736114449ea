//! `faults`: the catalogue of faults, on servers that it starts itself.

use anyhow::Result;

use crate::{
    setup::{self, Scope},
    shell::command,
    temporary,
};

pub fn run(args: &[String]) -> Result<()> {
    setup::run(Scope::Tests)?;
    let mut faults = command("cargo", &["test", "-q", "--locked", "--workspace", "--test", "faults", "--"]);
    faults.args(args);
    temporary::run(faults)
}
