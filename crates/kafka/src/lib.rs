//! The Kafka edge of weir: a group member that reads batches, and a transactional producer that commits them.
//!
//! It depends on `weir-core` alone, whose ports it implements. It is the only crate of weir that allows `unsafe`: [`native`]
//! and its folder call librdkafka where its wrapper has no function, or copies.

pub mod client;
mod identity;
pub mod limits;
pub mod native;
mod offsets;
mod outbox;
pub mod producer;
mod pulse;
pub mod range;
mod read_before;
pub mod rights;
pub mod sink;
mod sizes;
pub mod source;
pub mod span;
pub mod topic_settings;
pub mod topics;
pub mod transaction;
pub mod waves;
pub mod witness;
