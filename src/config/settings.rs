//! Every setting, declared once: the documentation, the schema, the checks and what the rest of weir reads come from here.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use super::{
    Secret, checks,
    keys::{Form, Otherwise, Setting, section},
    layers::Layers,
    values::{
        DAY, MINUTE, SECOND, address, authorities, between, brokers, bytes_in, filter, flag, http_url, memory, name,
        no_limit_at_0, nodes, non_zero_in, path, pointer, policy_source, prefix, properties, secret, secret_file,
        source, tokens, tokens_file, topic, topics, whole_in, word,
    },
};
use crate::{authorities::Authorities, object_store::Location};
pub use weir_kafka::client::Delivery;

/// All settings.
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
    /// `[activity]`
    pub activity: ActivitySettings,
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[http]`
    pub http: HttpSettings,
    /// `[log]`
    pub log: LogSettings,
}

/// `[intent]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentSettings {
    /// The place of each field.
    pub fields: IntentFields,
}

/// `[activity]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivitySettings {
    /// The place of each field of a record of `kafka.activity`.
    pub fields: ActivityFields,
}

/// What a command that reads or makes sets of segments needs of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentAccess {
    /// How S3 is reached.
    pub s3: S3Settings,
    /// What is taken off user ids before they are read as numbers.
    pub user_id_prefix: Option<String>,
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

const DELIVERIES: &[(&str, Delivery)] =
    &[("exactly_once", Delivery::ExactlyOnce), ("at_least_once", Delivery::AtLeastOnce)];
const LOG_FORMATS: &[(&str, LogFormat)] =
    &[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];

fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

section! {
    /// `[kafka]`
    KafkaSettings "kafka" {
        /// Bootstrap brokers, `host:port`, separated by commas.
        brokers: String = Text required, brokers;
        /// Consumer group. Instances of one group share the load.
        group: String = Text is "weir", name;
        /// Topic of intents.
        intents: String = Text required, topic;
        /// Topic of approved intents.
        approved: String = Text required, topic;
        /// Topic of suppressed decisions.
        suppressed: String = Text required, topic;
        /// Dead-letter topic, for invalid records.
        dead_letters: String = Text required, topic;
        /// Topic of refunds: approved intents that no longer count. Read by the group `<kafka.group>-refunds`.
        refunds: Option<String> = Text unset "none", topic;
        /// Topic of reports of active users, for `[pressure]` of the policy. Read by the group `<kafka.group>-activity`.
        activity: Option<String> = Text unset "none", topic;
        /// Prefix of the topics of deferred intents, `<prefix>-hours` and `<prefix>-minutes`. If unset, nothing is deferred.
        /// Read by the group `<kafka.group>-later`.
        deferred: Option<String> = Text unset "none", topic;
        /// Earlier values of `kafka.deferred`: weir empties their topics, and defers to the new ones.
        deferred_before: Vec<String> = Texts unset "none" or Vec::new, topics;
        /// `exactly_once` (Kafka transactions) or `at_least_once` (a crash may write the last batch twice).
        delivery: Delivery = Text is "exactly_once", word(DELIVERIES);
        /// Names this instance's transactional ids: unique among running instances, stable over restarts.
        instance: String = Text unset "the host name" or host_name, name;
        /// Create missing topics. For development.
        create_topics: bool = Flag is "false", flag;
        /// Partitions of a created topic. 1 to 10000.
        create_partitions: i32 = Whole is "12", whole_in(1, 10_000);
        /// Shares of created topics of deferred intents: so many lanes can work on one bucket. Such topics have 96 and 120
        /// partitions a share. 1 to 64.
        create_shares: u16 = Whole is "1", whole_in(1, 64);
        /// Passed to librdkafka unchanged, such as `"security.protocol"`. Each has its own variable, with `_` for
        /// `.`: `WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. Properties that weir sets itself are rejected.
        properties: BTreeMap<String, Secret> = Properties unset "none" or BTreeMap::new, properties;
    }
}

section! {
    /// `[redis]`
    RedisSettings "redis" {
        /// URLs of any nodes of a cluster, or of a single server: `redis://host:port`, with TLS
        /// `rediss://host:port`.
        nodes: Vec<Secret> = Texts required, nodes;
        /// ACL user.
        username: Option<String> = Text unset "the URL's", name;
        /// Password. Prefer `redis.password_file`.
        password: Option<Secret> = Text unset "the URL's", secret;
        /// File with the password.
        password_file: Option<Secret> = Text unset "none", secret_file;
        /// Certificate authority for TLS, a PEM file.
        ca_file: Option<PathBuf> = Text unset "the system's", path;
        /// This client's certificate for TLS, a PEM file.
        cert_file: Option<PathBuf> = Text unset "none", path;
        /// The key of `redis.cert_file`, a PEM file.
        key_file: Option<PathBuf> = Text unset "none", path;
        /// Length of the history: no window of the policy may be longer. 1m to 3660d.
        history: Duration = Duration is "8d", between(MINUTE, 3_660 * DAY);
        /// Most sends in one user's history: weir drops the oldest beyond. No limit of the policy may be higher. 200
        /// to 50000.
        max_entries: u32 = Whole is "10000", whole_in(200, 50_000);
        /// Prefix of every key: letters, digits, `_`, `-`, `.`.
        prefix: String = Text is "weir", prefix;
        /// Number of shards. Fixed when the keyspace is created. 1 to 16384.
        shards: u16 = Whole is "128", whole_in(1, 16_384);
        /// Expected users: sizes the keyspace when it is created. 1 to 10000000000.
        users: u64 = Whole is "10000000", whole_in(1, 10_000_000_000);
        /// Let weir set server parameters that save memory (`hash-max-listpack-value`).
        tune: bool = Flag is "false", flag;
        /// Accept a server that may evict keys, though an evicted history is a forgotten cap.
        allow_eviction: bool = Flag is "false", flag;
        /// Replicas that must have a decision before it is published. 0 to 10.
        wait_replicas: u32 = Whole is "0", whole_in(0, 10);
        /// Timeout of a reply. 10ms to 60s.
        timeout: Duration = Duration is "1s", between(SECOND / 100, MINUTE);
        /// How long a shard may be unavailable before its intents follow `[[on_unavailable]]` of the policy, or wait
        /// while others continue. Until then, and if unset, its whole lane waits. Twice `redis.timeout` to 1d.
        unavailable_after: Option<Duration> = Duration unset "never", between(SECOND / 50, DAY);
    }
}

section! {
    /// `[segments]`
    SegmentsSettings "segments" {
        /// Manifest of the segments: a file, or `s3://bucket/key`.
        source: Location = Text required, source;
        /// Polling interval. 1s to 1d.
        refresh: Duration = Duration is "60s", between(SECOND, DAY);
        /// Prefix to remove from a user id before it is read as a number (`u` for `u42`).
        user_id_prefix: Option<String> = Text unset "none", name;
    }
}

section! {
    /// `[policy]`
    PolicySettings "policy" {
        /// The policy: a file or `s3://bucket/key` that ends in `.toml` or `.json`.
        source: Location = Text required, policy_source;
        /// Polling interval. 1s to 1d.
        refresh: Duration = Duration is "10s", between(SECOND, DAY);
    }
}

section! {
    /// `[s3]`
    S3Settings "s3" {
        /// URL of an S3-compatible store that is not AWS.
        endpoint: Option<String> = Text unset "AWS", http_url;
        /// Region.
        region: Option<String> = Text unset "the AWS default chain's", name;
        /// Name buckets in the path, not in the host name.
        force_path_style: bool = Flag is "false", flag;
        /// Certificate authority of the store at `s3.endpoint`, a PEM file. No other is trusted then.
        ca_file: Option<Authorities> = Text unset "the system's", authorities;
    }
}

section! {
    /// `[intent.fields]`: JSON pointers.
    IntentFields "intent.fields" {
        /// JSON pointer to the intent's id.
        id: String = Text is "/id", pointer;
        /// JSON pointer to the user id.
        user_id: String = Text is "/user_id", pointer;
        /// JSON pointer to the channel.
        channel: String = Text is "/channel", pointer;
        /// JSON pointer to the category.
        category: String = Text is "/category", pointer;
        /// JSON pointer to the campaign.
        campaign: String = Text is "/campaign", pointer;
        /// JSON pointer to the cost.
        cost: String = Text is "/cost", pointer;
        /// JSON pointer to the creation time.
        created_at: String = Text is "/created_at", pointer;
        /// JSON pointer to the expiry time.
        expires_at: String = Text is "/expires_at", pointer;
        /// JSON pointer to the earliest time to send.
        not_before: String = Text is "/not_before", pointer;
        /// JSON pointer to the user's time zone.
        timezone: String = Text is "/timezone", pointer;
    }
}

section! {
    /// `[activity.fields]`: JSON pointers.
    ActivityFields "activity.fields" {
        /// JSON pointer to the user id of a record of `kafka.activity`.
        user_id: String = Text is "/user_id", pointer;
        /// JSON pointer to the time at which the user was active. Without it, the record's timestamp counts.
        at: String = Text is "/at", pointer;
    }
}

section! {
    /// `[worker]`
    WorkerSettings "worker" {
        /// Lanes, each with its own consumer and producer. 0 (one per core) to 256.
        lanes: usize = Whole is "0", whole_in(0, 256);
        /// Most intents decided together. 1 to 100000.
        batch: usize = Whole is "10000", whole_in(1, 100_000);
        /// Target time from reading an intent to committing it. 1ms to 10s.
        commit_interval: Duration = Duration is "50ms", between(SECOND / 1000, 10 * SECOND);
        /// Longest time to stop. 1s to 10m.
        drain: Duration = Duration is "20s", between(SECOND, 10 * MINUTE);
        /// Memory of the process without segments: sizes all queues and batches. In kB, MB, GB, KiB, MiB or GiB.
        /// 88MiB to 1TiB; each lane takes at least 40 MiB.
        memory: u64 = Text is "300MiB", bytes_in(memory());
    }
}

section! {
    /// `[http]`
    HttpSettings "http" {
        /// Address and port of the HTTP interface. Port 0: any free one.
        listen: SocketAddr = Text is "127.0.0.1:8080", address;
        /// Bearer token for endpoints that show or change a user's data; several, with commas, while one replaces
        /// another. Prefer `http.token_file`.
        token: Vec<Secret> = Text unset "none" or Vec::new, tokens;
        /// File with the token or tokens. Read at start.
        token_file: Vec<Secret> = Text unset "none" or Vec::new, tokens_file;
        /// Threads for HTTP. 1 to 64.
        threads: usize = Whole is "1", whole_in(1, 64);
        /// Most open connections; one more closes the longest idle one. 10 to 100000.
        connections: usize = Whole is "1024", whole_in(10, 100_000);
        /// Most requests in progress; others get 503. 1 to 10000.
        concurrency: usize = Whole is "256", whole_in(1, 10_000);
        /// Most requests per second from one address; others get 429. 0 (no limit) to 1000000.
        rate: Option<NonZeroU32> = Whole is "1000", no_limit_at_0(1_000_000);
        /// Requests allowed at once from one address. 1 to 1000000.
        burst: NonZeroU32 = Whole is "2000", non_zero_in(1_000_000);
        /// Largest request body, in bytes. 1024 to 16777216.
        body_bytes: usize = Whole is "1048576", whole_in(1024, 16_777_216);
        /// Timeout of an answer. 100ms to 5m.
        timeout: Duration = Duration is "5s", between(SECOND / 10, 5 * MINUTE);
        /// Timeout for a client to send a head or body, read an answer, or be idle. 100ms to 5m.
        read_timeout: Duration = Duration is "10s", between(SECOND / 10, 5 * MINUTE);
    }
}

section! {
    /// `[log]`
    LogSettings "log" {
        /// `text`, `json`, or `auto`: text on a terminal, otherwise JSON.
        format: LogFormat = Text is "auto", word(LOG_FORMATS);
        /// Filter: `error` `warn` `info` `debug` `trace`, also for a part of weir: `info,weir_kafka=debug`.
        level: String = Text is "info", filter;
    }
}

impl Settings {
    /// Checks everything; `None` where something is wrong, which is noted.
    pub(super) fn read(layers: &Layers<'_>) -> Option<Self> {
        // Each section is checked before the first `?`, so that all problems are noted.
        let (kafka, redis, segments) =
            (KafkaSettings::read(layers), RedisSettings::read(layers), SegmentsSettings::read(layers));
        let (policy, s3) = (PolicySettings::read(layers), S3Settings::read(layers));
        let (fields, activity) = (IntentFields::read(layers), ActivityFields::read(layers));
        let (worker, http, log) = (WorkerSettings::read(layers), HttpSettings::read(layers), LogSettings::read(layers));
        checks::together(layers, kafka.as_ref(), redis.as_ref());
        Some(Self {
            kafka: kafka?,
            redis: redis?,
            segments: segments?,
            policy: policy?,
            s3: s3?,
            intent: IntentSettings { fields: fields? },
            activity: ActivitySettings { fields: activity? },
            worker: worker?,
            http: http?,
            log: log?,
        })
    }
}

impl RedisSettings {
    /// The password, given or from its file.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref().or(self.password_file.as_ref())
    }
}

impl HttpSettings {
    /// The bearer tokens, each of which is good; none where users' data is for this machine alone.
    pub fn tokens(&self) -> impl Iterator<Item = &Secret> {
        self.token.iter().chain(&self.token_file)
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        super::defaults(Self::read).expect("all settings of HTTP have a default, which a test parses")
    }
}
