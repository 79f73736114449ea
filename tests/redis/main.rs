//! The Redis edge and its scripts, on real servers; and the same decisions by the reference and the embedded store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../redis_support/mod.rs"]
mod redis_support;

mod activity;
mod budgets;
mod calls;
mod cluster;
mod differential;
mod faults;
mod full_history;
mod keyspace;
mod lengthen;
mod names;
mod permits;
mod plan_memory;
mod rebuild_frozen;
mod refunds;
mod services;
mod share;
mod sweep;
