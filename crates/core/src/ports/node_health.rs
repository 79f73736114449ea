//! How the nodes of a store are.

use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeHealth {
    /// `host:port`.
    pub node: String,
    /// What is wrong; `None` where it answers.
    pub trouble: Option<String>,
    pub answered_ms: f64,
    /// used_memory, in bytes; `None` where the node does not tell.
    pub used_bytes: Option<u64>,
    /// maxmemory, in bytes; `None` where there is none or the node does not tell.
    pub limit_bytes: Option<u64>,
    pub replicas: Option<u64>,
    pub commands_per_s: Option<u64>,
}
