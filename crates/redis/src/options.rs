//! `[redis]`, as the edge needs it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use redis::{ClientTlsConfig, TlsCertificates};
use weir_core::history::{HistoryBounds, MAX_ENTRIES};

use super::{
    address::NodeAddr,
    keyspace::Meta,
    network::{Network, Tcp},
};

/// Files with certificates for TLS, in PEM, read for each connection: they may be replaced. Without a CA the system's are used.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    pub ca: Option<PathBuf>,
    /// This client's certificate chain and its key, where the servers ask for one.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    pub(super) fn read(&self) -> io::Result<TlsCertificates> {
        let client = |(certificate, key): &(PathBuf, PathBuf)| -> io::Result<ClientTlsConfig> {
            Ok(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        };
        Ok(TlsCertificates {
            client_tls: self.client.as_ref().map(client).transpose()?,
            root_cert: self.ca.as_deref().map(read).transpose()?,
        })
    }
}

/// A small local file, read by whoever connects.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{} cannot be read: {error}", path.display())))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenMissing {
    /// Make it: the first start, or `weir check --create`.
    Create,
    Refuse,
}

/// Whether a server that may evict keys is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// No: an evicted history is a cap forgotten.
    Refuse,
    /// Yes, with a warning (`redis.allow_eviction`).
    Allow,
}

/// Whether weir may set what makes the server hold histories compactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    Advise,
    /// Set it where allowed (`redis.tune`).
    Set,
    /// Look, and say that the next start sets it (`redis.tune`).
    Announce,
}

/// All of `[redis]`, checked.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Where to ask first: any nodes of a cluster, or one single server. At least one.
    pub nodes: Vec<NodeAddr>,
    pub username: Option<String>,
    pub password: Option<Password>,
    /// Database number; 0 for a cluster.
    pub database: i64,
    /// `Some` for `rediss://`.
    pub tls: Option<TlsFiles>,
    /// What all keys begin with: letters, digits, `_`, `-`, `.`; at most 64.
    pub prefix: String,
    /// Shards of a keyspace that is made, and what one that is there must have.
    pub shards: u16,
    /// Expected users: how many keys a keyspace gets when it is made.
    pub users: u64,
    /// How long sends are remembered in a keyspace that is made, in milliseconds; one that is there remembers them for as long at the least.
    pub history_ms: i64,
    pub max_entries: u32,
    pub max_totals: u32,
    pub tuning: Tuning,
    pub eviction: Eviction,
    pub absent: Absent,
    /// How many replicas must have a write before it is answered; 0 for none.
    pub wait_replicas: u32,
    pub response_timeout: Duration,
    pub connect_timeout: Duration,
    /// How often a batch is tried before the error is reported, at least 1.
    pub tries: usize,
    /// How long one batch may take while it is being answered; no setting.
    pub admit_time: Duration,
    /// How nodes are reached: [`Tcp`], but in the simulation.
    pub network: Arc<dyn Network>,
}

/// What to do where a keyspace is opened while some of its nodes do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Refuse for now: all shards are needed.
    Refuse,
    /// Open it without them: whether they have their histories shows when they are asked.
    Leave,
}

/// Who gives a password that ends, as a signed one does.
pub trait Passwords: Send + Sync {
    /// The password of a connection that is made now. It must not wait: what has to be fetched is fetched before.
    ///
    /// # Errors
    /// Why there is none, without secrets.
    fn password(&self) -> Result<String, String>;
}

/// A password; never shown.
#[derive(Clone)]
pub enum Password {
    Given(String),
    /// That of a file, without a final newline, read for each connection: it may be replaced, as a token that expires is.
    File(PathBuf),
    /// One that is made for each connection.
    Made(Arc<dyn Passwords>),
}

impl Password {
    pub(super) fn read(&self) -> io::Result<String> {
        let path = match self {
            Self::Given(password) => return Ok(password.clone()),
            Self::Made(by) => return by.password().map_err(io::Error::other),
            Self::File(path) => path,
        };
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display()));
        let text = String::from_utf8(read(path)?).map_err(|_| wrong("is not UTF-8"))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(wrong("is empty")),
            password => Ok(password.to_owned()),
        }
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOptions {
    #[error(
        "redis.nodes: {url:?} is not a Redis URL ({reason}); write redis://host:port or, with TLS, rediss://host:port"
    )]
    Url {
        /// The text, without its password.
        url: String,
        reason: String,
    },
    #[error("redis.nodes is empty: name at least one node, such as \"redis://127.0.0.1:6379\"")]
    NoNodes,
    #[error("redis.nodes: all nodes must have the same scheme, user, password and database")]
    Mixed,
}

impl RedisOptions {
    /// Options for these URLs, the rest as it is unless set: prefix `weir`, 128 shards, a million users, 8
    /// days of history, no waiting for replicas, 2 s for a reply and 1 s for a connection, 8 tries.
    pub fn for_urls<S: AsRef<str>>(urls: &[S]) -> Result<Self, BadOptions> {
        let mut nodes = Vec::new();
        let mut shared: Option<(Option<String>, Option<String>, i64, bool)> = None;
        for url in urls {
            let parsed = redis::IntoConnectionInfo::into_connection_info(url.as_ref())
                .map_err(|error| BadOptions::Url { url: without_password(url.as_ref()), reason: error.to_string() })?;
            let (addr, tls) = NodeAddr::of(parsed.addr()).ok_or_else(|| BadOptions::Url {
                url: without_password(url.as_ref()),
                reason: "a Unix socket cannot be reached from elsewhere".to_owned(),
            })?;
            nodes.push(addr);
            let settings = parsed.redis_settings();
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let this = (owned(settings.username()), owned(settings.password()), settings.db(), tls);
            if shared.get_or_insert_with(|| this.clone()) != &this {
                return Err(BadOptions::Mixed);
            }
        }
        let (username, password, database, tls) = shared.ok_or(BadOptions::NoNodes)?;
        Ok(Self {
            nodes,
            username,
            password: password.map(Password::Given),
            database,
            tls: tls.then(TlsFiles::default),
            prefix: "weir".to_owned(),
            shards: 128,
            users: 1_000_000,
            history_ms: 8 * 24 * 3600 * 1000,
            max_entries: MAX_ENTRIES,
            max_totals: 100_000,
            tuning: Tuning::Advise,
            eviction: Eviction::Refuse,
            absent: Absent::Refuse,
            wait_replicas: 0,
            response_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            tries: 8,
            admit_time: Duration::from_secs(5),
            network: Arc::new(Tcp),
        })
    }

    pub(super) fn bounds(&self, meta: &Meta) -> HistoryBounds {
        HistoryBounds { retention_ms: meta.history_ms, max_entries: self.max_entries }
    }
}

/// A URL with what is between `//` and `@` left out.
fn without_password(url: &str) -> String {
    match (url.find("//"), url.rfind('@')) {
        (Some(slashes), Some(at)) if slashes < at => format!("{}//…{}", &url[..slashes], &url[at..]),
        _ => url.to_owned(),
    }
}
