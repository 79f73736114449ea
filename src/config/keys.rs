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
    setting("kafka.brokers", Text, Required, "Brokers to ask first, `host:port`, several with commas."),
    setting("kafka.group", Text, Is("weir"), "Consumer group. Instances of one group share the load."),
    setting("kafka.intents", Text, Required, "Topic that intents are read from."),
    setting("kafka.approved", Text, Required, "Topic that approved intents are written to."),
    setting("kafka.suppressed", Text, Required, "Topic that decisions on suppressed intents are written to."),
    setting("kafka.dead_letters", Text, Required, "Topic for what is not an intent."),
    setting(
        "kafka.refunds",
        Text,
        Unset("none"),
        "Topic of refunds, sends that count no longer. Read by the group `<kafka.group>-refunds`.",
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
        "Names this instance's transactional ids: unlike any other running instance's, the same after a restart.",
    ),
    setting("kafka.create_topics", Flag, Is("false"), "Whether missing topics are made. For development."),
    setting("kafka.create_partitions", Whole, Is("12"), "Partitions of a topic that is made. 1 to 10000."),
    setting(
        "kafka.properties",
        Properties,
        Unset("none"),
        "Handed to librdkafka as they are, such as `\"security.protocol\"`. As a variable, each has its own, with `_` \
         for `.`: `WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. What weir sets itself is refused.",
    ),
    setting(
        "redis.nodes",
        Texts,
        Required,
        "URLs of any nodes of a cluster, or of one single server: `redis://host:port`, with TLS `rediss://host:port`.",
    ),
    setting("redis.username", Text, Unset("the URL's"), "ACL user."),
    setting("redis.password", Text, Unset("the URL's"), "Password. Rather use `redis.password_file`."),
    setting("redis.password_file", Text, Unset("none"), "File that the password is in."),
    setting("redis.ca_file", Text, Unset("the system's"), "Certificate authority for TLS, a PEM file."),
    setting("redis.cert_file", Text, Unset("none"), "This client's certificate for TLS, a PEM file."),
    setting("redis.key_file", Text, Unset("none"), "The key of `redis.cert_file`, a PEM file."),
    setting(
        "redis.history",
        Duration,
        Is("8d"),
        "How far back the history of sends reaches: no window of the policy may be longer. 1m to 3660d.",
    ),
    setting(
        "redis.max_entries",
        Whole,
        Is("10000"),
        "The most sends that the history of one user holds: weir drops the oldest beyond. No limit of the policy may be \
         higher. 200 to 50000.",
    ),
    setting("redis.prefix", Text, Is("weir"), "What every key begins with: letters, digits, `_`, `-`, `.`."),
    setting(
        "redis.shards",
        Whole,
        Is("128"),
        "Shards that the users are spread over. Fixed when the keyspace is made. 1 to 16384.",
    ),
    setting(
        "redis.users",
        Whole,
        Is("10000000"),
        "Users to expect: sizes the keyspace when it is made. 1 to 10000000000.",
    ),
    setting(
        "redis.tune",
        Flag,
        Is("false"),
        "Whether weir may set server parameters that save memory (`hash-max-listpack-value`).",
    ),
    setting(
        "redis.allow_eviction",
        Flag,
        Is("false"),
        "Whether a server that may evict keys is accepted, though an evicted history is a forgotten cap.",
    ),
    setting(
        "redis.wait_replicas",
        Whole,
        Is("0"),
        "Replicas that must have a decision before it is published. 0 to 10.",
    ),
    setting("redis.timeout", Duration, Is("1s"), "How long a reply may take. 10ms to 60s."),
    setting(
        "redis.unavailable_after",
        Duration,
        Unset("never"),
        "How long a shard may be away until its intents go by `[[on_unavailable]]` of the policy, or wait while others go \
         on; until then, and where this is not set, all of its lane waits. Twice `redis.timeout` to 1d.",
    ),
    setting("segments.source", Text, Required, "The segments' manifest: a file, or `s3://bucket/key`."),
    setting("segments.refresh", Duration, Is("60s"), "How often it is looked at. 1s to 1d."),
    setting(
        "segments.user_id_prefix",
        Text,
        Unset("none"),
        "What is taken off a user id before it is read as a number (`u` for `u42`).",
    ),
    setting(
        "policy.source",
        Text,
        Required,
        "The policy: a file or `s3://bucket/key` that ends in `.toml` or `.json`.",
    ),
    setting("policy.refresh", Duration, Is("10s"), "How often it is looked at. 1s to 1d."),
    setting("s3.endpoint", Text, Unset("AWS"), "URL of an S3-compatible store that is not AWS."),
    setting("s3.region", Text, Unset("the AWS default chain's"), "Region."),
    setting("s3.force_path_style", Flag, Is("false"), "Whether buckets are named in the path, not in the host name."),
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
    setting("intent.fields.created_at", Text, Is("/created_at"), "JSON pointer to the time it was made."),
    setting("intent.fields.expires_at", Text, Is("/expires_at"), "JSON pointer to the time it expires."),
    setting("intent.fields.not_before", Text, Is("/not_before"), "JSON pointer to the time it is due."),
    setting("intent.fields.timezone", Text, Is("/timezone"), "JSON pointer to the user's time zone."),
    setting("worker.lanes", Whole, Is("0"), "Lanes, each with its own consumer and producer. 0 (one a core) to 256."),
    setting("worker.batch", Whole, Is("10000"), "Intents decided together, at most. 1 to 100000."),
    setting(
        "worker.commit_interval",
        Duration,
        Is("50ms"),
        "How long an intent may take from being read to being committed. 1ms to 10s.",
    ),
    setting("worker.drain", Duration, Is("20s"), "How long a stop may take. 1s to 10m."),
    setting(
        "worker.memory",
        Text,
        Is("300MiB"),
        "What the process may take, without the segments: all queues and batches are sized by it. With kB, MB, GB, KiB, MiB \
         or GiB. 88MiB to 1TiB; each lane takes 40 MiB at the least.",
    ),
    setting("http.listen", Text, Is("127.0.0.1:8080"), "Address and port of the HTTP interface. Port 0: any free one."),
    setting(
        "http.token",
        Text,
        Unset("none"),
        "Bearer token for what shows or changes a user's data; several with commas while one is replaced by another. \
         Rather use `http.token_file`.",
    ),
    setting("http.token_file", Text, Unset("none"), "File that the token (or tokens) is in. Read at the start."),
    setting("http.threads", Whole, Is("1"), "Threads of their own that HTTP runs on. 1 to 64."),
    setting(
        "http.connections",
        Whole,
        Is("1024"),
        "Open connections, at most; when one more comes, the one that has been idle the longest is closed. 10 to 100000.",
    ),
    setting(
        "http.concurrency",
        Whole,
        Is("256"),
        "Requests that are worked on at the same time, at most; others are answered 503. 1 to 10000.",
    ),
    setting(
        "http.rate",
        Whole,
        Is("1000"),
        "Requests a second from one address, at most; others are answered 429. 0 (no limit) to 1000000.",
    ),
    setting("http.burst", Whole, Is("2000"), "Requests from one address that may come at once. 1 to 1000000."),
    setting("http.body_bytes", Whole, Is("1048576"), "Largest body of a request, in bytes. 1024 to 16777216."),
    setting("http.timeout", Duration, Is("5s"), "How long an answer may take. 100ms to 5m."),
    setting(
        "http.read_timeout",
        Duration,
        Is("10s"),
        "How long a client may take to send a request's head or body, to take an answer, or to be idle. 100ms to 5m.",
    ),
    setting("log.format", Text, Is("auto"), "`text`, `json`, or `auto`: text on a terminal, JSON otherwise."),
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
    "is not available in this version of weir, which cannot hold intents back: leave it out; intents that are too \
         early are suppressed with the time from which on they may be sent",
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
