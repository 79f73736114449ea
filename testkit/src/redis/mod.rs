//! Real Redis servers: single ones (also with TLS and ACL users) and a Cluster that can be broken and resharded.

mod cluster;
mod membership;
mod reshard;
mod server;

pub use cluster::RedisCluster;
pub use reshard::SlotMove;
pub use server::{LONGEST_REPLY, RedisServer, connect};
