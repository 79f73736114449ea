//! The loop between Kafka and the store: ports (what it needs of the outside), batch, lane, supervision.

pub mod ports;
pub mod refresh;
