//! The worker of weir: the loop between Kafka and the store. A lane polls, decides and commits batches; beside it run the
//! readers of refunds, reports of deliveries and activity, the refreshing of segments and policy, and the supervision of the threads.
//!
//! It depends on `weir-core` alone, and knows Kafka and Redis only as the ports there. What it counts it reports to an
//! [`observer`]; it knows neither metrics nor HTTP.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]
#![cfg_attr(test, allow(clippy::disallowed_types, reason = "tests see what their fakes have seen; no lane waits"))]

pub mod activity;
mod backoff;
pub mod budgets;
pub mod clock;
pub mod deferred_shards;
pub mod delivery_reports;
mod group_loop;
pub mod lane;
pub mod observer;
pub mod pressure;
pub mod refresh;
pub mod refunds;
pub mod routes;
pub mod share;
pub mod status;
pub mod supervise;
#[cfg(test)]
mod tests;
pub mod topic_reader;
pub mod trace;
