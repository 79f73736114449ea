//! What `cargo xtask counts` runs under valgrind: without an argument it names the cases, one a line with what it counts;
//! with a case's name it does that once to be warm, and once in a function of its own that callgrind looks at.

#![allow(clippy::print_stdout, reason = "it prints what there is to count")]

use std::hint::black_box;

use anyhow::{Context, Result};
use weir_pure::{Case, cases};

fn main() -> Result<()> {
    let Some(wanted) = std::env::args().nth(1) else {
        cases().iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let (_, setup) = cases().into_iter().find(|(name, _)| *name == wanted).context("there is no such case")?;
    let mut case = setup();
    (case.run)();
    counted(&mut case);
    println!("{}", case.operations);
    Ok(())
}

/// What callgrind counts. Its name stands in xtask/src/counts.rs.
#[inline(never)]
fn counted(case: &mut Case) {
    (black_box(case).run)();
}
