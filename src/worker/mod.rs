//! The loop between Kafka and the store: ports (what it needs of the outside), batch, lane, supervision.

pub mod clock;
pub mod ports;
pub mod record;
pub mod status;
pub mod supervise;
pub mod refresh;
pub mod desk;
pub mod lane;
