//! Every setting, declared once: the documentation, the schema, the checks and what the rest of weir reads come from here.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use super::{
    Secret,
    keys::{Form, Otherwise, Setting, section},
    layers::Layers,
    values::{
        DAY, MINUTE, SECOND, address, authorities, between, brokers, bytes_in, filter, flag, http_url, memory, name,
        no_limit_at_0, nodes, non_zero_in, path, pointer, policy_source, prefix, properties, secret, secret_file,
        source, tokens, tokens_file, topic, whole_in, word,
    },
};
pub use crate::edge::kafka::client::Delivery;
use crate::{authorities::Authorities, edge::object_store::Location};

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
        /// Brokers to ask first, `host:port`, several with commas.
        brokers: String = Text required, brokers;
        /// Consumer group. Instances of one group share the load.
        group: String = Text is "weir", name;
        /// Topic that intents are read from.
        intents: String = Text required, topic;
        /// Topic that approved intents are written to.
        approved: String = Text required, topic;
        /// Topic that decisions on suppressed intents are written to.
        suppressed: String = Text required, topic;
        /// Topic for what is not an intent.
        dead_letters: String = Text required, topic;
        /// Topic of refunds, sends that count no longer. Read by the group `<kafka.group>-refunds`.
        refunds: Option<String> = Text unset "none", topic;
        /// `exactly_once` (Kafka transactions) or `at_least_once` (a crash may write the last batch twice).
        delivery: Delivery = Text is "exactly_once", word(DELIVERIES);
        /// Names this instance's transactional ids: unlike any other running instance's, the same after a restart.
        instance: String = Text unset "the host name" or host_name, name;
        /// Whether missing topics are made. For development.
        create_topics: bool = Flag is "false", flag;
        /// Partitions of a topic that is made. 1 to 10000.
        create_partitions: i32 = Whole is "12", whole_in(1, 10_000);
        /// Handed to librdkafka as they are, such as `"security.protocol"`. As a variable, each has its own, with
        /// `_` for `.`: `WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. What weir sets itself is refused.
        properties: BTreeMap<String, Secret> = Properties unset "none" or BTreeMap::new, properties;
    }
}

section! {
    /// `[redis]`
    RedisSettings "redis" {
        /// URLs of any nodes of a cluster, or of one single server: `redis://host:port`, with TLS
        /// `rediss://host:port`.
        nodes: Vec<Secret> = Texts required, nodes;
        /// ACL user.
        username: Option<String> = Text unset "the URL's", name;
        /// Password. Rather use `redis.password_file`.
        password: Option<Secret> = Text unset "the URL's", secret;
        /// File that the password is in.
        password_file: Option<Secret> = Text unset "none", secret_file;
        /// Certificate authority for TLS, a PEM file.
        ca_file: Option<PathBuf> = Text unset "the system's", path;
        /// This client's certificate for TLS, a PEM file.
        cert_file: Option<PathBuf> = Text unset "none", path;
        /// The key of `redis.cert_file`, a PEM file.
        key_file: Option<PathBuf> = Text unset "none", path;
        /// How far back the history of sends reaches: no window of the policy may be longer. 1m to 3660d.
        history: Duration = Duration is "8d", between(MINUTE, 3_660 * DAY);
        /// The most sends that the history of one user holds: weir drops the oldest beyond. No limit of the policy
        /// may be higher. 200 to 50000.
        max_entries: u32 = Whole is "10000", whole_in(200, 50_000);
        /// What every key begins with: letters, digits, `_`, `-`, `.`.
        prefix: String = Text is "weir", prefix;
        /// Shards that the users are spread over. Fixed when the keyspace is made. 1 to 16384.
        shards: u16 = Whole is "128", whole_in(1, 16_384);
        /// Users to expect: sizes the keyspace when it is made. 1 to 10000000000.
        users: u64 = Whole is "10000000", whole_in(1, 10_000_000_000);
        /// Whether weir may set server parameters that save memory (`hash-max-listpack-value`).
        tune: bool = Flag is "false", flag;
        /// Whether a server that may evict keys is accepted, though an evicted history is a forgotten cap.
        allow_eviction: bool = Flag is "false", flag;
        /// Replicas that must have a decision before it is published. 0 to 10.
        wait_replicas: u32 = Whole is "0", whole_in(0, 10);
        /// How long a reply may take. 10ms to 60s.
        timeout: Duration = Duration is "1s", between(SECOND / 100, MINUTE);
        /// How long a shard may be away until its intents go by `[[on_unavailable]]` of the policy, or wait while
        /// others go on; until then, and where this is not set, all of its lane waits. Twice `redis.timeout` to 1d.
        unavailable_after: Option<Duration> = Duration unset "never", between(SECOND / 50, DAY);
    }
}

section! {
    /// `[segments]`
    SegmentsSettings "segments" {
        /// The segments' manifest: a file, or `s3://bucket/key`.
        source: Location = Text required, source;
        /// How often it is looked at. 1s to 1d.
        refresh: Duration = Duration is "60s", between(SECOND, DAY);
        /// What is taken off a user id before it is read as a number (`u` for `u42`).
        user_id_prefix: Option<String> = Text unset "none", name;
    }
}

section! {
    /// `[policy]`
    PolicySettings "policy" {
        /// The policy: a file or `s3://bucket/key` that ends in `.toml` or `.json`.
        source: Location = Text required, policy_source;
        /// How often it is looked at. 1s to 1d.
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
        /// Whether buckets are named in the path, not in the host name.
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
        /// JSON pointer to the time it was made.
        created_at: String = Text is "/created_at", pointer;
        /// JSON pointer to the time it expires.
        expires_at: String = Text is "/expires_at", pointer;
        /// JSON pointer to the time it is due.
        not_before: String = Text is "/not_before", pointer;
        /// JSON pointer to the user's time zone.
        timezone: String = Text is "/timezone", pointer;
    }
}

section! {
    /// `[worker]`
    WorkerSettings "worker" {
        /// Lanes, each with its own consumer and producer. 0 (one a core) to 256.
        lanes: usize = Whole is "0", whole_in(0, 256);
        /// Intents decided together, at most. 1 to 100000.
        batch: usize = Whole is "10000", whole_in(1, 100_000);
        /// How long an intent may take from being read to being committed. 1ms to 10s.
        commit_interval: Duration = Duration is "50ms", between(SECOND / 1000, 10 * SECOND);
        /// How long a stop may take. 1s to 10m.
        drain: Duration = Duration is "20s", between(SECOND, 10 * MINUTE);
        /// What the process may take, without the segments: all queues and batches are sized by it. With kB, MB, GB,
        /// KiB, MiB or GiB. 88MiB to 1TiB; each lane takes 40 MiB at the least.
        memory: u64 = Text is "300MiB", bytes_in(memory());
    }
}

section! {
    /// `[http]`
    HttpSettings "http" {
        /// Address and port of the HTTP interface. Port 0: any free one.
        listen: SocketAddr = Text is "127.0.0.1:8080", address;
        /// Bearer token for what shows or changes a user's data; several with commas while one is replaced by
        /// another. Rather use `http.token_file`.
        token: Vec<Secret> = Text unset "none" or Vec::new, tokens;
        /// File that the token (or tokens) is in. Read at the start.
        token_file: Vec<Secret> = Text unset "none" or Vec::new, tokens_file;
        /// Threads of their own that HTTP runs on. 1 to 64.
        threads: usize = Whole is "1", whole_in(1, 64);
        /// Open connections, at most; when one more comes, the one that has been idle the longest is closed. 10 to
        /// 100000.
        connections: usize = Whole is "1024", whole_in(10, 100_000);
        /// Requests that are worked on at the same time, at most; others are answered 503. 1 to 10000.
        concurrency: usize = Whole is "256", whole_in(1, 10_000);
        /// Requests a second from one address, at most; others are answered 429. 0 (no limit) to 1000000.
        rate: Option<NonZeroU32> = Whole is "1000", no_limit_at_0(1_000_000);
        /// Requests from one address that may come at once. 1 to 1000000.
        burst: NonZeroU32 = Whole is "2000", non_zero_in(1_000_000);
        /// Largest body of a request, in bytes. 1024 to 16777216.
        body_bytes: usize = Whole is "1048576", whole_in(1024, 16_777_216);
        /// How long an answer may take. 100ms to 5m.
        timeout: Duration = Duration is "5s", between(SECOND / 10, 5 * MINUTE);
        /// How long a client may take to send a request's head or body, to take an answer, or to be idle. 100ms to
        /// 5m.
        read_timeout: Duration = Duration is "10s", between(SECOND / 10, 5 * MINUTE);
    }
}

section! {
    /// `[log]`
    LogSettings "log" {
        /// `text`, `json`, or `auto`: text on a terminal, JSON otherwise.
        format: LogFormat = Text is "auto", word(LOG_FORMATS);
        /// Filter: `error` `warn` `info` `debug` `trace`, also for a part of weir: `info,weir::edge=debug`.
        level: String = Text is "info", filter;
    }
}

impl Settings {
    /// Checks everything; `None` where something is wrong, which is noted.
    pub(super) fn read(layers: &Layers<'_>) -> Option<Self> {
        // Each section is checked before the first `?`, so that all problems are noted.
        let (kafka, redis, segments) =
            (KafkaSettings::read(layers), RedisSettings::read(layers), SegmentsSettings::read(layers));
        let (policy, s3, fields) = (PolicySettings::read(layers), S3Settings::read(layers), IntentFields::read(layers));
        let (worker, http, log) = (WorkerSettings::read(layers), HttpSettings::read(layers), LogSettings::read(layers));
        distinct_topics(layers);
        one_source_of_a_secret(layers);
        certificate_and_key(layers);
        longer_than_a_time_out(layers, redis.as_ref());
        Some(Self {
            kafka: kafka?,
            redis: redis?,
            segments: segments?,
            policy: policy?,
            s3: s3?,
            intent: IntentSettings { fields: fields? },
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

/// A record written to one topic must not be read or taken for one of another.
fn distinct_topics(layers: &Layers<'_>) {
    const TOPICS: [&str; 5] =
        ["kafka.intents", "kafka.approved", "kafka.suppressed", "kafka.dead_letters", "kafka.refunds"];
    let topics = TOPICS.map(|key| layers.given(key, topic));
    for (number, topic) in topics.iter().enumerate() {
        if let Some(name) = topic
            && let Some(before) = topics[..number].iter().position(|before| before == topic)
        {
            let reason = format!("and {} are both {name:?}: each must be a topic of its own", TOPICS[before]);
            layers.note(TOPICS[number], &reason);
        }
    }
}

fn one_source_of_a_secret(layers: &Layers<'_>) {
    for (key, file_key) in [("redis.password", "redis.password_file"), ("http.token", "http.token_file")] {
        if layers.is_given(key) && layers.is_given(file_key) {
            layers.note(file_key, &format!("and {key} are both set: keep one"));
        }
    }
}

fn certificate_and_key(layers: &Layers<'_>) {
    let (certificate, key) = ("redis.cert_file", "redis.key_file");
    match (layers.is_given(certificate), layers.is_given(key)) {
        (true, true) | (false, false) => {}
        (true, false) => layers.note(certificate, "needs redis.key_file, the key of the certificate"),
        (false, true) => layers.note(key, "needs redis.cert_file, the certificate of the key"),
    }
}

fn longer_than_a_time_out(layers: &Layers<'_>, redis: Option<&RedisSettings>) {
    if let Some(RedisSettings { timeout, unavailable_after: Some(after), .. }) = redis
        && *after < 2 * *timeout
    {
        layers.note("redis.unavailable_after", "must be at least twice redis.timeout");
    }
}
