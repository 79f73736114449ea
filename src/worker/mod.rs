//! The loop between Kafka and the store: ports (what it needs of the outside), desk, lane, supervision.

mod backoff;
pub mod clock;
pub mod desk;
pub mod inquiry;
pub mod lane;
mod letter;
pub mod limits;
pub mod output;
pub mod owing;
pub mod ports;
pub mod record;
pub mod refresh;
pub mod refunds;
pub mod status;
pub mod supervise;
pub mod vitals;
