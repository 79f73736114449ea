//! The HTTP interface: every endpoint and error, its limits, and that the lanes do not feel it; and the page at `/`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![recursion_limit = "256"]

#[path = "../support/mod.rs"]
mod support;

mod activity;
mod away;
mod budgets;
mod client;
mod crowd;
mod decisions;
mod deferred;
mod demo;
mod endpoints;
mod frozen;
mod guarded;
mod in_process;
mod limits;
mod page;
mod pressure;
mod routes;
mod schemathesis;
mod services;
