//! Where a Redis node listens.

use redis::ConnectionAddr;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddr {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl NodeAddr {
    /// The address in a parsed URL, and whether it wants TLS; `None` for a Unix socket.
    pub(super) fn of(addr: &ConnectionAddr) -> Option<(Self, bool)> {
        match addr {
            ConnectionAddr::Tcp(host, port) => Some((Self { host: host.clone(), port: *port }, false)),
            ConnectionAddr::TcpTls { host, port, .. } => Some((Self { host: host.clone(), port: *port }, true)),
            // A Unix socket; the enum is the crate's own and open.
            ConnectionAddr::Unix(_) | _ => None,
        }
    }

    /// The `host:port` of a redirect; a host that the node does not know of itself is the one that was asked.
    pub(super) fn of_redirect(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::announced(host, port.parse().ok()?, asked))
    }

    pub(super) fn announced(host: &str, port: u16, asked: &Self) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host.is_empty() || host == "?" { &asked.host } else { host };
        Self { host: host.to_owned(), port }
    }
}
