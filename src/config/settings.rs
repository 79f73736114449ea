//! Checked settings, as the rest of weir gets them.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use super::Secret;
use crate::authorities::Authorities;

/// All settings. What each means is said in [`super::keys::SETTINGS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[kafka]`
    pub kafka: KafkaSettings,
    /// `[redis]`
    pub redis: RedisSettings,
    /// `[segments]`
    pub segments: SegmentsSettings,
    /// `[policy]`
    pub policy: PolicySettings,
    /// `[s3]`
    pub s3: S3Settings,
    /// `[intent]`
    pub intent: IntentSettings,
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[http]`
    pub http: HttpSettings,
    /// `[log]`
    pub log: LogSettings,
}

/// How a batch's outputs and offsets become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In one Kafka transaction.
    ExactlyOnce,
    /// Outputs first, then offsets: a crash repeats the last batch.
    AtLeastOnce,
}

/// `[kafka]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// Topic of intents.
    pub intents: String,
    /// Topic of approved intents.
    pub approved: String,
    /// Topic of suppressed ones.
    pub suppressed: String,
    /// Topic of what is no intent.
    pub dead_letters: String,
    /// Topic of refunds, where there is one.
    pub refunds: Option<String>,
    /// How outputs become visible.
    pub delivery: Delivery,
    /// Names this instance's transactional ids.
    pub instance: String,
    /// Whether missing topics are made.
    pub create_topics: bool,
    /// Partitions of a topic that is made.
    pub create_partitions: i32,
    /// Handed to librdkafka as they are; none that weir sets itself.
    pub properties: BTreeMap<String, Secret>,
}

/// `[redis]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// URLs with `redis://` or `rediss://`, at least one, all of the same scheme.
    pub nodes: Vec<Secret>,
    /// ACL user; goes before the one in a URL.
    pub username: Option<String>,
    /// Password; goes before the one in a URL.
    pub password: Option<Secret>,
    /// Files for TLS.
    pub tls: RedisTls,
    /// How far back the history reaches.
    pub history: Duration,
    /// The most entries of a user's history.
    pub max_entries: u32,
    /// What every key begins with.
    pub prefix: String,
    /// Shards of a keyspace that is made.
    pub shards: u16,
    /// Users that a keyspace is made for.
    pub users: u64,
    /// Whether weir may set server parameters that save memory.
    pub tune: bool,
    /// Whether a server that may evict keys is accepted.
    pub allow_eviction: bool,
    /// Replicas that must have a write before it counts.
    pub wait_replicas: u32,
    /// How long a reply may take.
    pub timeout: Duration,
    /// How long a shard may be away until its intents go by the policy's rules; `None`: they wait.
    pub unavailable_after: Option<Duration>,
}

/// Files for TLS to Redis, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Certificate authority; the system's where there is none.
    pub ca_file: Option<PathBuf>,
    /// This client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Where a manifest or policy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// An object of S3 or a store like it.
    S3 {
        /// The bucket.
        bucket: String,
        /// The object's key.
        key: String,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
        }
    }
}

/// `[segments]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentsSettings {
    /// The manifest.
    pub source: Source,
    /// How often it is looked at.
    pub refresh: Duration,
    /// What is taken off a user id before it is read as a number.
    pub user_id_prefix: Option<String>,
}

/// `[policy]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// The policy; its name ends in `.toml` or `.json`.
    pub source: Source,
    /// How often it is looked at.
    pub refresh: Duration,
}

/// `[s3]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Settings {
    /// URL of a store that is not AWS.
    pub endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Whether the bucket is named in the path.
    pub force_path_style: bool,
    /// Who vouches for the store's certificate; the system's authorities where there is none.
    pub authorities: Option<Authorities>,
}

/// What a command that reads or makes sets of segments wants to know of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentAccess {
    /// How S3 is reached.
    pub s3: S3Settings,
    /// What is taken off user ids before they are read as numbers.
    pub user_id_prefix: Option<String>,
}

/// `[intent]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentSettings {
    /// Where each field is.
    pub fields: IntentFields,
}

/// `[intent.fields]`: JSON pointers, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the pointer to the field of its name")]
pub struct IntentFields {
    pub id: String,
    pub user_id: String,
    pub channel: String,
    pub category: String,
    pub campaign: String,
    pub cost: String,
    pub created_at: String,
    pub expires_at: String,
    pub not_before: String,
    pub timezone: String,
}

/// `[worker]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Lanes; 0: one a core.
    pub lanes: usize,
    /// Intents decided together, at most.
    pub batch: usize,
    /// How long an intent may take from being read to being committed.
    pub commit_interval: Duration,
    /// How long a stop may take.
    pub drain: Duration,
    /// What the process may take without the segments, in bytes.
    pub memory_bytes: u64,
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Address and port.
    pub listen: SocketAddr,
    /// Bearer tokens for what shows or changes a user's data, each of which is good; none where empty.
    pub tokens: Vec<Secret>,
    /// Threads that HTTP runs on.
    pub threads: usize,
    /// Open connections, at most.
    pub connections: usize,
    /// Requests worked on at the same time, at most.
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

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// A filter as tracing-subscriber's `EnvFilter` reads it.
    pub level: String,
}
