//! The package `weir`: the command line, the configuration, HTTP, metrics, and the sources of segments and policies. It puts
//! the other crates together: `weir-core` decides, `weir-schemas` reads formats beside JSON, `weir-kafka` and `weir-redis` talk to
//! the outside, `weir-worker` is the loop between them. `weir-oracle` gives admissions to services that ask. The binary is `main.rs`.
//! See ARCHITECTURE.md for the walk of one intent.

#![recursion_limit = "256"]
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

pub mod authorities;
pub mod aws_iam;
pub mod cli;
pub mod config;
pub mod deferred;
pub mod files;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod object_store;
pub mod policy_source;
pub mod query;
pub mod routes;
pub mod schemas;
pub mod segments;
pub mod selections;
pub mod time_zones;
pub mod traces;
pub mod vitals;
