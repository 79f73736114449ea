//! What the HTTP interface may take: its limits, and who may ask.

use std::{num::NonZeroU32, time::Duration};

/// A bearer token. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

/// Every bound of the interface.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Each is good; none: users' data is shown on a loopback address only.
    pub tokens: Vec<Token>,
    /// Threads of their own, at least 1.
    pub threads: usize,
    /// Open connections, at most; at least 1.
    pub connections: usize,
    /// Requests worked on at the same time, at most; at least 1.
    pub concurrency: usize,
    /// Requests a second from one address; no limit where `None`.
    pub rate: Option<NonZeroU32>,
    /// Requests from one address that may come at once.
    pub burst: NonZeroU32,
    /// Largest body of a request.
    pub body_bytes: usize,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long a client may take to send a head or a body, to take an answer, or to be idle.
    pub read_timeout: Duration,
}

impl Default for HttpOptions {
    /// What the settings are unless they are set.
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            threads: 1,
            connections: 1024,
            concurrency: 256,
            rate: NonZeroU32::new(1000),
            burst: NonZeroU32::MIN.saturating_add(1999),
            body_bytes: 1 << 20,
            timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(10),
        }
    }
}
