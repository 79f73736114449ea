//! Deterministic simulation: lanes and the Redis edge as they are, on a fake Kafka and a fake Redis Cluster, in one thread
//! and in virtual time, with faults from a seed. docs/simulation.md describes it and how to replay a seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_types, reason = "one thread, but the Redis edge's futures must be Send")]
#![allow(missing_docs, reason = "a test")]

mod broker;
mod budgets;
mod chaos;
mod check;
mod cluster;
mod commands;
mod delivery;
mod downstream;
mod env;
mod group;
mod growth;
mod lanes;
mod ledger;
mod link;
mod paced;
mod permits;
mod phases;
mod prelude;
mod pressure;
mod process;
mod rebuild;
mod refunds;
mod retries;
mod rings;
mod rules;
mod run;
mod sabotage;
mod script;
mod seeds;
mod sends;
mod services;
mod sink;
mod snapshots;
mod source;
mod store;
mod tale;
mod tells;
mod till;
mod time;
mod truth;
mod wheel;
mod workload;
