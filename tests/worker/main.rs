//! The built worker between a real Kafka and a real Redis.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod activity;
mod budgets;
mod clock;
mod contract;
mod deferral;
mod delivery;
mod end_to_end;
mod figures;
mod formats;
mod formats_written;
mod group;
mod joining;
mod large;
mod memory;
mod offsets;
mod pressure;
mod refunds_topic;
mod replay;
mod reports;
mod retries;
mod run;
mod traces;
mod unavailable;
mod wheels;
