//! Tests without servers: configuration, policy files, the command line, schemas, docs and the sources themselves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod activity;
mod cli;
mod command_line;
mod config;
mod config_show;
mod deploy;
mod docs;
mod health;
mod ideas;
mod kafka_properties;
mod metrics;
mod observability;
mod performance;
mod policy_files;
mod program;
mod promises;
mod schema_files;
mod schemas;
mod tidy;
mod time_zones;
mod toml_in_docs;
