//! The Kafka edge of weir: a group member that reads batches, and a transactional producer that commits them.
//!
//! It depends on `weir-core` alone, whose ports it implements. It and `weir-inflate` beside it are the only crates of weir with `unsafe`
//! code: here it is in [`native`] and its folder, which call librdkafka where its wrapper has no function, or copies.

#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

mod broker_watchdog;
pub mod client;
mod client_end;
pub mod committed;
pub mod conflicts;
pub mod context;
pub mod extents;
pub mod group_progress;
mod identity;
pub mod limits;
pub mod native;
pub mod new_topics;
mod offsets;
mod output_topics;
pub mod partition_reader;
pub mod produce_rounds;
pub mod producer;
pub mod properties;
pub mod property_files;
pub mod range;
mod read_before;
pub mod rights;
pub mod session;
pub mod sink;
mod sizes;
pub mod source;
pub mod tokens;
pub mod topic_settings;
pub mod topics;
pub mod transaction;
pub mod waiting_topics;
pub mod wheel_topics;

#[cfg(test)]
mod tests;
