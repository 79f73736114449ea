//! The commands beside the worker: `check`, `rebuild`, `explain`, `policy simulate` and `segments`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../redis_support/mod.rs"]
mod redis_support;
#[path = "../support/mod.rs"]
mod support;

mod check;
mod check_registry;
mod check_topics;
mod compose;
mod explain;
mod lengthen;
mod rebuild;
mod rebuild_budgets;
mod replay;
mod segments;
