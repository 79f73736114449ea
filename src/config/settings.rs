//! Every setting, declared once: the documentation, the schema, the checks and what the rest of weir reads come from here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use weir_core::deferral::wheel::Ring;
pub use weir_kafka::client::Delivery;

use super::{
    Secret, SecretFile, TokenFile, checks,
    forms::{
        ADDRESS, AUTHORITIES, AWS_NAME, BROKERS, FILTER, FLAG, HTTP_URL, MEMORY, NODES, PATH, POINTER, POLICY_SOURCE,
        PREFIX, PROPERTIES, PROPERTY_FILES, SECRET, SECRET_FILE, SOURCE, TEXT, TOKENS, TOKENS_FILE, TOPIC, TOPICS,
        TOPICS_BY_CHANNEL, between, no_limit_at_0, non_zero_in, whole_in, word,
    },
    keys::{Otherwise, Setting, section, sections},
    layers::Layers,
    schemas::{self, IntentFormat, SchemasSettings},
    values::{DAY, MINUTE, SECOND},
};
use crate::{
    authorities::Authorities,
    aws_iam::{AWS_CACHES, AwsCache},
    object_store::Location,
};

sections! {
    kafka: KafkaSettings,
    redis: RedisSettings,
    segments: SegmentsSettings,
    policy: PolicySettings,
    s3: S3Settings,
    intent: IntentFormat,
    schemas: SchemasSettings,
    intent_fields: IntentFields,
    activity_fields: ActivityFields,
    worker: WorkerSettings,
    http: HttpSettings,
    log: LogSettings,
    tracing: TracingSettings,
    |layers| {
        checks::together(layers, kafka.as_ref(), redis.as_ref());
        schemas::check(layers, intent.as_ref(), schemas.as_ref());
    }
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
    KafkaSettings "kafka" {
        /// Bootstrap brokers, `host:port`, separated by commas.
        brokers: String = required, BROKERS;
        /// Consumer group. Instances of one group share the load.
        group: String = is "weir", TEXT;
        /// Topic of intents.
        intents: String = required, TOPIC;
        /// Topic of approved intents.
        approved: String = required, TOPIC;
        /// Approved topics of channels, so that their consumers' lag is separate: `email = "send-approved-email"`. Other
        /// channels' intents go to `kafka.approved`. A channel in small letters has a variable:
        /// `WEIR__KAFKA__APPROVED_BY_CHANNEL__EMAIL`.
        approved_by_channel: BTreeMap<String, String> = unset "none" or BTreeMap::new, TOPICS_BY_CHANNEL;
        /// Topic of suppressed decisions.
        suppressed: String = required, TOPIC;
        /// Dead-letter topic, for invalid records.
        dead_letters: String = required, TOPIC;
        /// Topic of refunds: approved intents that no longer count. Read by the group `<kafka.group>-refunds`.
        refunds: Option<String> = unset "none", TOPIC;
        /// Topic of reports of active users, for `[pressure]` of the policy. Read by the group `<kafka.group>-activity`.
        activity: Option<String> = unset "none", TOPIC;
        /// Topic of reports of deliveries: refunds those that failed for good. Read by the group
        /// `<kafka.group>-delivery-reports`.
        delivery_reports: Option<String> = unset "none", TOPIC;
        /// Topic of approved records whose delivery failed and is to be tried again; needs `kafka.deferred` and
        /// `kafka.undelivered`. Read by the group `<kafka.group>-retries`.
        retries: Option<String> = unset "none", TOPIC;
        /// Topic of records of `kafka.retries` that are not tried again.
        undelivered: Option<String> = unset "none", TOPIC;
        /// Prefix of the topics of deferred intents, `<prefix>-hours` and `<prefix>-minutes`. If unset, nothing is deferred.
        /// Read by the group `<kafka.group>-later`.
        deferred: Option<String> = unset "none", TOPIC;
        /// Earlier values of `kafka.deferred`: weir empties their topics, and defers to the new ones.
        deferred_before: Vec<String> = unset "none" or Vec::new, TOPICS;
        /// Prefix of the topics of intents that wait for a route's capacity, `<prefix>-<route>`. Read by the groups
        /// `<kafka.group>-waiting-<route>`.
        waiting: Option<String> = unset "none", TOPIC;
        /// `exactly_once` (Kafka transactions) or `at_least_once` (a crash may write the last batch twice).
        delivery: Delivery = is "exactly_once", word(DELIVERIES);
        /// Names this instance's transactional ids: unique among running instances, stable over restarts.
        instance: String = unset "the host name" or host_name, TEXT;
        /// Create missing topics. For development.
        create_topics: bool = is "false", FLAG;
        /// Partitions of a created topic.
        create_partitions: i32 = is "12", whole_in::<i32>(1, 10_000);
        /// Shares of created topics of deferred intents: so many lanes can work on one bucket. Such topics have 96 and 120
        /// partitions a share.
        create_shares: u16 = is "1", whole_in::<u16>(1, 64);
        /// Region of an Amazon MSK cluster: weir signs in with IAM (OAUTHBEARER over TLS) in place of a password.
        aws_iam_region: Option<String> = unset "none", AWS_NAME;
        /// Passed to librdkafka unchanged, such as `"security.protocol"`. Each has its own variable, with `_` for
        /// `.`: `WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. Properties that weir sets itself are rejected.
        properties: BTreeMap<String, Secret> = unset "none" or BTreeMap::new, PROPERTIES;
        /// Files with the values of secret properties, such as `"sasl.password" = "kafka-password"`. Variables as above:
        /// `WEIR__KAFKA__PROPERTY_FILES__SASL_PASSWORD`. Read every `kafka.refresh`, so that they can be replaced.
        property_files: BTreeMap<String, SecretFile> = unset "none" or BTreeMap::new, PROPERTY_FILES;
        /// Polling interval of the files of `kafka.property_files`, and of certificates and keys that `kafka.properties` names.
        /// Each instance takes replaced ones up within four intervals, once Kafka accepts them.
        refresh: Duration = is "10s", between(SECOND / 10, DAY);
    }
}

section! {
    RedisSettings "redis" {
        /// URLs of any nodes of a cluster, or of a single server: `redis://host:port`, with TLS
        /// `rediss://host:port`. Percent-encode a user and password in them (`%40` for `@`).
        nodes: Vec<Secret> = required, NODES;
        /// ACL user.
        username: Option<String> = unset "the URL's", TEXT;
        /// Password. Prefer `redis.password_file`.
        password: Option<Secret> = unset "the URL's", SECRET;
        /// File with the password. Read for each connection, so that it can be replaced.
        password_file: Option<PathBuf> = unset "none", SECRET_FILE;
        /// Name of an ElastiCache or MemoryDB cluster: weir signs in with IAM as `redis.username`, in place of a password. Needs
        /// `rediss://` and `redis.aws_iam_region`.
        aws_iam_cluster: Option<String> = unset "none", AWS_NAME;
        /// Region of that cluster.
        aws_iam_region: Option<String> = unset "none", AWS_NAME;
        /// `elasticache`, `elasticache_serverless` or `memorydb`.
        aws_iam_service: AwsCache = is "elasticache", word(AWS_CACHES);
        /// Certificate authority for TLS, a PEM file. Read for each connection, as the next two are.
        ca_file: Option<PathBuf> = unset "the system's", PATH;
        /// This client's certificate for TLS, a PEM file.
        cert_file: Option<PathBuf> = unset "none", PATH;
        /// The key of `redis.cert_file`, a PEM file.
        key_file: Option<PathBuf> = unset "none", PATH;
        /// Length of the history: no window of the policy may be longer.
        history: Duration = is "8d", between(MINUTE, 3_660 * DAY);
        /// Most sends in one user's history: weir drops the oldest beyond. No limit of the policy may be higher.
        max_entries: u32 = is "10000", whole_in::<u32>(200, 50_000);
        /// Most totals of campaigns (budgets with `each` and `total`) that are kept. Beyond, the spent ones go first, and stay spent.
        max_totals: u32 = is "100000", whole_in::<u32>(1, 10_000_000);
        /// Prefix of every key: letters, digits, `_`, `-`, `.`.
        prefix: String = is "weir", PREFIX;
        /// Number of shards. Fixed when the keyspace is created.
        shards: u16 = is "128", whole_in::<u16>(1, 16_384);
        /// Expected users: sizes the keyspace when it is created.
        users: u64 = is "10000000", whole_in::<u64>(1, 10_000_000_000);
        /// Let weir set server parameters that save memory (`hash-max-listpack-value`).
        tune: bool = is "false", FLAG;
        /// Accept a server that may evict keys, though an evicted history is a forgotten cap.
        allow_eviction: bool = is "false", FLAG;
        /// Replicas that must have a decision before it is published.
        wait_replicas: u32 = is "0", whole_in::<u32>(0, 10);
        /// Timeout of a reply.
        timeout: Duration = is "1s", between(SECOND / 100, MINUTE);
        /// How long a shard may be unavailable before its intents follow `[[on_unavailable]]` of the policy, or are
        /// deferred while others continue. Until then, and if unset, its whole lane waits. At least twice
        /// `redis.timeout`.
        unavailable_after: Option<Duration> = unset "never", between(SECOND / 50, DAY);
    }
}

section! {
    SegmentsSettings "segments" {
        /// Manifest of the segments: a file, or `s3://bucket/key`.
        source: Location = required, SOURCE;
        /// Polling interval.
        refresh: Duration = is "60s", between(SECOND, DAY);
        /// Prefix to remove from a user id before it is read as a number (`u` for `u42`).
        user_id_prefix: Option<String> = unset "none", TEXT;
    }
}

section! {
    PolicySettings "policy" {
        /// The policy: a file or `s3://bucket/key` that ends in `.toml` or `.json`.
        source: Location = required, POLICY_SOURCE;
        /// Polling interval.
        refresh: Duration = is "10s", between(SECOND, DAY);
    }
}

section! {
    S3Settings "s3" {
        /// URL of an S3-compatible store that is not AWS.
        endpoint: Option<String> = unset "AWS", HTTP_URL;
        /// Region.
        region: Option<String> = unset "the AWS default chain's", TEXT;
        /// Name buckets in the path, not in the host name.
        force_path_style: bool = is "false", FLAG;
        /// Pay for requests to a bucket that charges the requester (`x-amz-request-payer`).
        requester_pays: bool = is "false", FLAG;
        /// Certificate authority of the store at `s3.endpoint`, a PEM file. No other is trusted then.
        ca_file: Option<Authorities> = unset "the system's", AUTHORITIES;
    }
}

section! {
    /// `[intent.fields]`: JSON pointers.
    IntentFields "intent.fields" {
        /// JSON pointer to the intent's id.
        id: String = is "/id", POINTER;
        /// JSON pointer to the user id.
        user_id: String = is "/user_id", POINTER;
        /// JSON pointer to the channel.
        channel: String = is "/channel", POINTER;
        /// JSON pointer to the category.
        category: String = is "/category", POINTER;
        /// JSON pointer to the campaign.
        campaign: String = is "/campaign", POINTER;
        /// JSON pointer to the cost.
        cost: String = is "/cost", POINTER;
        /// JSON pointer to the creation time.
        created_at: String = is "/created_at", POINTER;
        /// JSON pointer to the expiry time.
        expires_at: String = is "/expires_at", POINTER;
        /// JSON pointer to the earliest time to send.
        not_before: String = is "/not_before", POINTER;
        /// JSON pointer to the user's time zone.
        timezone: String = is "/timezone", POINTER;
    }
}

section! {
    /// `[activity.fields]`: JSON pointers.
    ActivityFields "activity.fields" {
        /// JSON pointer to the user id of a record of `kafka.activity`.
        user_id: String = is "/user_id", POINTER;
        /// JSON pointer to the time at which the user was active. Without it, the record's timestamp counts.
        at: String = is "/at", POINTER;
    }
}

section! {
    WorkerSettings "worker" {
        /// Lanes, each with its own consumer and producer. 0: one per core.
        lanes: usize = is "0", whole_in::<usize>(0, 256);
        /// Most intents decided together.
        batch: usize = is "10000", whole_in::<usize>(1, 100_000);
        /// Target time from reading an intent to committing it.
        commit_interval: Duration = is "50ms", between(SECOND / 1000, 10 * SECOND);
        /// Longest time to stop.
        drain: Duration = is "20s", between(SECOND, 10 * MINUTE);
        /// Memory of the process without segments, active users, schemas and lanes of waiting intents: sizes all queues
        /// and batches; each other lane takes at least 40 MiB. In kB, MB, GB, KiB, MiB or GiB.
        memory: u64 = is "300MiB", MEMORY;
    }
}

section! {
    HttpSettings "http" {
        /// Address and port of the HTTP interface. Port 0: any free one.
        listen: SocketAddr = is "127.0.0.1:8080", ADDRESS;
        /// Bearer token for endpoints that show or change a user's data; several, with commas, while one replaces
        /// another. Prefer `http.token_file`.
        token: Vec<Secret> = unset "none" or Vec::new, TOKENS;
        /// File with the token or tokens. Read again every 5 s, so that it can be replaced.
        token_file: Option<TokenFile> = unset "none", TOKENS_FILE;
        /// Threads for HTTP.
        threads: usize = is "1", whole_in::<usize>(1, 64);
        /// Most open connections; one more closes the longest idle one.
        connections: usize = is "1024", whole_in::<usize>(10, 100_000);
        /// Most requests in progress; others get 503.
        concurrency: usize = is "256", whole_in::<usize>(1, 10_000);
        /// Most requests per second from one address; others get 429. 0: no limit.
        rate: Option<NonZeroU32> = is "1000", no_limit_at_0(1_000_000);
        /// Requests allowed at once from one address.
        burst: NonZeroU32 = is "2000", non_zero_in(1_000_000);
        /// Largest request body, in bytes.
        body_bytes: usize = is "1048576", whole_in::<usize>(1024, 16_777_216);
        /// Timeout of an answer.
        timeout: Duration = is "5s", between(SECOND / 10, 5 * MINUTE);
        /// Timeout for a client to send a head or body, read an answer, or be idle.
        read_timeout: Duration = is "10s", between(SECOND / 10, 5 * MINUTE);
        /// How long HTTP and the lanes go on after SIGTERM, with `/readyz` at 503, so that callers turn to other instances before
        /// the port closes. `worker.drain` begins then. Ctrl-C does not wait.
        drain: Duration = is "5s", between(Duration::ZERO, 10 * MINUTE);
    }
}

section! {
    LogSettings "log" {
        /// `text`, `json`, or `auto`: text on a terminal, otherwise JSON.
        format: LogFormat = is "auto", word(LOG_FORMATS);
        /// Filter: `error` `warn` `info` `debug` `trace`, also for a part of weir: `info,weir_kafka=debug`.
        level: String = is "info", FILTER;
    }
}

section! {
    TracingSettings "tracing" {
        /// URL of an OpenTelemetry collector (OTLP over HTTP) without `/v1/traces`: `http://collector:4318`. If unset, nothing is
        /// traced. The variables of OpenTelemetry's SDK apply, such as `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_SERVICE_NAME`.
        endpoint: Option<String> = unset "none", HTTP_URL;
        /// Trace one batch in so many. `OTEL_TRACES_SAMPLER` replaces it.
        one_in: NonZeroU32 = is "100", non_zero_in(1_000_000);
    }
}

impl KafkaSettings {
    /// The topics with records of users. A name that ends in `-*` stands for one topic per route.
    pub fn topics_of_users(&self) -> Vec<String> {
        let always = [&self.intents, &self.approved, &self.suppressed, &self.dead_letters];
        let optional = [&self.refunds, &self.activity, &self.delivery_reports, &self.retries, &self.undelivered];
        let wheels = self.deferred.iter().chain(&self.deferred_before);
        let wheels = wheels.flat_map(|prefix| Ring::ALL.map(|ring| ring.topic(prefix)));
        let topics = always.into_iter().chain(self.approved_by_channel.values()).chain(optional.into_iter().flatten());
        let mut topics: Vec<String> = topics.cloned().chain(wheels).collect();
        topics.extend(self.waiting.iter().map(|prefix| format!("{prefix}-*")));
        let mut seen = BTreeSet::new();
        topics.retain(|topic| seen.insert(topic.clone()));
        topics
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        super::defaults(Self::read).expect("all settings of HTTP have a default, which a test parses")
    }
}
