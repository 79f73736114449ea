//! The pure parts of weir, everything between poll and produce but Redis, as cases that can be timed (`benches/pure.rs`)
//! and counted (`main.rs`, which `cargo xtask counts` runs).
//!
//! The modules are compiled from their own files, without the rest of weir.
#![allow(
    dead_code,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "the modules are whole, their callers are not here"
)]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a case that cannot be set up should say so and end")]

mod cases;
#[path = "../../../src/domain/mod.rs"]
pub mod domain;
pub mod metrics;
#[path = "../../../src/edge/redis/reply.rs"]
mod reply_format;
pub mod worker;
mod workload;

pub use cases::{Case, cases};
