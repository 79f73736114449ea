//! The pure parts of weir, everything between poll and produce but Redis, as cases that are counted (`main.rs`, which
//! `cargo xtask counts` runs).

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a case that cannot be set up should say so and end")]

mod cases;
pub mod timers;
mod workload;

pub use cases::{Case, cases};
