//! Kafka: a group member that reads batches, and a transactional producer that commits them.

pub mod client;
pub mod native;
pub mod producer;
pub mod rights;
pub mod sink;
pub mod source;
pub mod topics;
pub mod witness;
