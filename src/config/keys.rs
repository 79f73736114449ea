//! Every setting: its name, form, default and meaning. Documentation and schema are made from this table.

mod render;

pub use render::{markdown, schema_text};

/// What a setting's value looks like in the file. (A variable is always text; lists have commas in it.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// A whole number.
    Whole,
    /// true or false.
    Flag,
    /// A length of time: "60s".
    Duration,
    /// A list of strings.
    Texts,
    /// A table of names and values that weir does not know itself.
    Properties,
}

/// What holds where a setting is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// It must be given.
    Required,
    /// This, written as in a variable.
    Is(&'static str),
    /// Nothing, which means this.
    Unset(&'static str),
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its path in the file: `kafka.brokers`.
    pub key: &'static str,
    /// What its value looks like.
    pub form: Form,
    /// What holds where it is not given.
    pub default: Otherwise,
    /// What it does, and its bounds.
    pub meaning: &'static str,
}

impl Setting {
    /// The environment variable that sets it: `WEIR__KAFKA__BROKERS`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_uppercase().replace('.', "__"))
    }
}

/// What the environment variables of weir begin with.
pub const PREFIX: &str = "WEIR__";

use Form::{Duration, Flag, Properties, Text, Texts, Whole};
use Otherwise::{Is, Required, Unset};

const fn setting(key: &'static str, form: Form, default: Otherwise, meaning: &'static str) -> Setting {
    Setting { key, form, default, meaning }
}

/// All settings, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    setting("kafka.brokers", Text, Required, "Bootstrap brokers, `host:port`, separated by commas."),
    setting("kafka.group", Text, Is("weir"), "Consumer group. Instances of one group share the load."),
    setting("kafka.intents", Text, Required, "Topic of intents."),
    setting("kafka.approved", Text, Required, "Topic of approved intents."),
    setting("kafka.suppressed", Text, Required, "Topic of suppressed decisions."),
    setting("kafka.dead_letters", Text, Required, "Dead-letter topic, for invalid records."),
    setting(
        "kafka.refunds",
        Text,
        Unset("none"),
        "Topic of refunds: approved intents that no longer count. Read by the group `<kafka.group>-refunds`.",
    ),
    setting(
        "kafka.delivery",
        Text,
        Is("exactly_once"),
        "`exactly_once` (Kafka transactions) or `at_least_once` (a crash may write the last batch twice).",
    ),
    setting(
        "kafka.instance",
        Text,
        Unset("the host name"),
        "Names this instance's transactional ids: unique among running instances, stable over restarts.",
    ),
    setting("kafka.create_topics", Flag, Is("false"), "Create missing topics. For development."),
    setting("kafka.create_partitions", Whole, Is("12"), "Partitions of a created topic. 1 to 10000."),
    setting(
        "kafka.properties",
        Properties,
        Unset("none"),
        "Passed to librdkafka unchanged, such as `\"security.protocol\"`. Each has its own variable, with `_` for \
         `.`: `WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. Properties that weir sets itself are rejected.",
    ),
    setting(
        "redis.nodes",
        Texts,
        Required,
        "URLs of any nodes of a cluster, or of a single server: `redis://host:port`, with TLS `rediss://host:port`.",
    ),
    setting("redis.username", Text, Unset("the URL's"), "ACL user."),
    setting("redis.password", Text, Unset("the URL's"), "Password. Prefer `redis.password_file`."),
    setting("redis.password_file", Text, Unset("none"), "File with the password."),
    setting("redis.ca_file", Text, Unset("the system's"), "Certificate authority for TLS, a PEM file."),
    setting("redis.cert_file", Text, Unset("none"), "This client's certificate for TLS, a PEM file."),
    setting("redis.key_file", Text, Unset("none"), "The key of `redis.cert_file`, a PEM file."),
    setting(
        "redis.history",
        Duration,
        Is("8d"),
        "Length of the history: no window of the policy may be longer. 1m to 3660d.",
    ),
    setting(
        "redis.max_entries",
        Whole,
        Is("10000"),
        "Most sends in one user's history: weir drops the oldest beyond. No limit of the policy may be higher. 200 to \
         50000.",
    ),
    setting("redis.prefix", Text, Is("weir"), "Prefix of every key: letters, digits, `_`, `-`, `.`."),
    setting("redis.shards", Whole, Is("128"), "Number of shards. Fixed when the keyspace is created. 1 to 16384."),
    setting(
        "redis.users",
        Whole,
        Is("10000000"),
        "Expected users: sizes the keyspace when it is created. 1 to 10000000000.",
    ),
    setting(
        "redis.tune",
        Flag,
        Is("false"),
        "Let weir set server parameters that save memory (`hash-max-listpack-value`).",
    ),
    setting(
        "redis.allow_eviction",
        Flag,
        Is("false"),
        "Accept a server that may evict keys, though an evicted history is a forgotten cap.",
    ),
    setting(
        "redis.wait_replicas",
        Whole,
        Is("0"),
        "Replicas that must have a decision before it is published. 0 to 10.",
    ),
    setting("redis.timeout", Duration, Is("1s"), "Timeout of a reply. 10ms to 60s."),
    setting(
        "redis.unavailable_after",
        Duration,
        Unset("never"),
        "How long a shard may be unavailable before its intents follow `[[on_unavailable]]` of the policy, or wait \
         while others continue. Until then, and if unset, its whole lane waits. Twice `redis.timeout` to 1d.",
    ),
    setting("segments.source", Text, Required, "Manifest of the segments: a file, or `s3://bucket/key`."),
    setting("segments.refresh", Duration, Is("60s"), "Polling interval. 1s to 1d."),
    setting(
        "segments.user_id_prefix",
        Text,
        Unset("none"),
        "Prefix to remove from a user id before it is read as a number (`u` for `u42`).",
    ),
    setting(
        "policy.source",
        Text,
        Required,
        "The policy: a file or `s3://bucket/key` that ends in `.toml` or `.json`.",
    ),
    setting("policy.refresh", Duration, Is("10s"), "Polling interval. 1s to 1d."),
    setting("s3.endpoint", Text, Unset("AWS"), "URL of an S3-compatible store that is not AWS."),
    setting("s3.region", Text, Unset("the AWS default chain's"), "Region."),
    setting("s3.force_path_style", Flag, Is("false"), "Name buckets in the path, not in the host name."),
    setting(
        "s3.ca_file",
        Text,
        Unset("the system's"),
        "Certificate authority of the store at `s3.endpoint`, a PEM file. No other is trusted then.",
    ),
    setting("intent.fields.id", Text, Is("/id"), "JSON pointer to the intent's id."),
    setting("intent.fields.user_id", Text, Is("/user_id"), "JSON pointer to the user id."),
    setting("intent.fields.channel", Text, Is("/channel"), "JSON pointer to the channel."),
    setting("intent.fields.category", Text, Is("/category"), "JSON pointer to the category."),
    setting("intent.fields.campaign", Text, Is("/campaign"), "JSON pointer to the campaign."),
    setting("intent.fields.cost", Text, Is("/cost"), "JSON pointer to the cost."),
    setting("intent.fields.created_at", Text, Is("/created_at"), "JSON pointer to the creation time."),
    setting("intent.fields.expires_at", Text, Is("/expires_at"), "JSON pointer to the expiry time."),
    setting("intent.fields.not_before", Text, Is("/not_before"), "JSON pointer to the earliest time to send."),
    setting("intent.fields.timezone", Text, Is("/timezone"), "JSON pointer to the user's time zone."),
    setting("worker.lanes", Whole, Is("0"), "Lanes, each with its own consumer and producer. 0 (one per core) to 256."),
    setting("worker.batch", Whole, Is("10000"), "Most intents decided together. 1 to 100000."),
    setting(
        "worker.commit_interval",
        Duration,
        Is("50ms"),
        "Target time from reading an intent to committing it. 1ms to 10s.",
    ),
    setting("worker.drain", Duration, Is("20s"), "Longest time to stop. 1s to 10m."),
    setting(
        "worker.memory",
        Text,
        Is("300MiB"),
        "Memory of the process without segments: sizes all queues and batches. In kB, MB, GB, KiB, MiB or GiB. 88MiB \
         to 1TiB; each lane takes at least 40 MiB.",
    ),
    setting("http.listen", Text, Is("127.0.0.1:8080"), "Address and port of the HTTP interface. Port 0: any free one."),
    setting(
        "http.token",
        Text,
        Unset("none"),
        "Bearer token for endpoints that show or change a user's data; several, with commas, while one replaces \
         another. Prefer `http.token_file`.",
    ),
    setting("http.token_file", Text, Unset("none"), "File with the token or tokens. Read at start."),
    setting("http.threads", Whole, Is("1"), "Threads for HTTP. 1 to 64."),
    setting(
        "http.connections",
        Whole,
        Is("1024"),
        "Most open connections; one more closes the longest idle one. 10 to 100000.",
    ),
    setting("http.concurrency", Whole, Is("256"), "Most requests in progress; others get 503. 1 to 10000."),
    setting(
        "http.rate",
        Whole,
        Is("1000"),
        "Most requests per second from one address; others get 429. 0 (no limit) to 1000000.",
    ),
    setting("http.burst", Whole, Is("2000"), "Requests allowed at once from one address. 1 to 1000000."),
    setting("http.body_bytes", Whole, Is("1048576"), "Largest request body, in bytes. 1024 to 16777216."),
    setting("http.timeout", Duration, Is("5s"), "Timeout of an answer. 100ms to 5m."),
    setting(
        "http.read_timeout",
        Duration,
        Is("10s"),
        "Timeout for a client to send a head or body, read an answer, or be idle. 100ms to 5m.",
    ),
    setting("log.format", Text, Is("auto"), "`text`, `json`, or `auto`: text on a terminal, otherwise JSON."),
    setting(
        "log.level",
        Text,
        Is("info"),
        "Filter: `error` `warn` `info` `debug` `trace`, also for a part of weir: `info,weir_kafka=debug`.",
    ),
];

/// Settings of a later version, which are rejected with the reason.
pub const NOT_YET: [(&str, &str); 1] = [(
    "kafka.deferred",
    "is not available in this version of weir, which cannot defer intents: remove it; intents that are too early are \
     suppressed, with the time from which they may be sent",
)];

/// Properties that are weir's to set, and why.
pub const REFUSED_PROPERTIES: [(&str, &str); 16] = [
    ("acks", "weir needs all: fewer may lose what was decided"),
    ("bootstrap.servers", "set kafka.brokers"),
    ("delivery.report.only.error", "weir reads the delivery reports"),
    ("enable.auto.commit", "offsets are committed with the decisions"),
    ("enable.auto.offset.store", "offsets are committed with the decisions"),
    ("enable.idempotence", "without it, records may be written twice or in another order"),
    ("enable.partition.eof", "weir does not read it"),
    ("group.id", "set kafka.group"),
    ("group.instance.id", "each lane is a member of the group; they would share the name"),
    ("isolation.level", "weir reads committed intents only"),
    ("metadata.broker.list", "set kafka.brokers"),
    ("partition.assignment.strategy", "weir rebuilds its lanes by it"),
    ("partitioner", "the partition is that of Java's default partitioner, so that a user's records stay in order"),
    ("request.required.acks", "weir needs all: fewer may lose what was decided"),
    ("transactional.id", "set kafka.instance"),
    ("transaction.timeout.ms", "weir sets it: it bounds how long a dead instance holds up readers"),
];
