//! From checked settings to what the edges want to know.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use weir_core::{
    basis::{
        memory::{self, LaneMemory, ReadsBeside},
        time::Time,
    },
    history::HistoryBounds,
    intent::fields::{FieldMap, IntentField},
    limit::pressure::{activity::LONGEST_WINDOW_MINUTES, activity_report::ActivityReader},
    policy::file::PolicyBounds,
    ports::Clock as _,
};
use weir_kafka::{
    client::{COMMIT_INTERVAL, KafkaOptions, RECORDS_A_CALL, ReadOrder, Reads, WheelTopics},
    conflicts,
    new_topics::NewTopics,
    tokens::{NoToken, Tokens},
};
use weir_redis::{
    self, Eviction, KeyspaceSeed, LedgerClock, Opened, Password, RedisLedger, RedisOptions, RedisStats, RedisStore,
    TlsFiles, Tuning, WhenMissing,
};
use weir_worker::{clock::SystemClock, refresh::RefreshSource};

use super::{exit::UsageError, segments::S3Args};
use crate::{
    aws_iam::{CachePasswords, MskTokens, Signer},
    config::{self, KafkaSettings, RedisSettings, S3Settings, Settings},
    limits::LedgerPool,
    object_store::{Location, StoredObject},
    policy_source::{PolicySource, PolicySourceError},
    schemas,
    segments::SegmentSource,
};

/// Reads the settings of this file and the environment over it.
pub fn settings(path: &Path) -> anyhow::Result<Settings> {
    config::load(path, std::env::vars_os()).map_err(|error| UsageError(error.to_string()).into())
}

pub fn kafka(settings: &KafkaSettings) -> KafkaOptions {
    let exposed = |(key, value): (&String, &config::Secret)| (key.clone(), value.expose().to_owned());
    let properties: BTreeMap<String, String> = settings.properties().map(exposed).collect();
    KafkaOptions {
        brokers: settings.brokers.clone(),
        group: settings.group.clone(),
        intents: settings.intents.clone(),
        approved: settings.approved.clone(),
        approved_by_channel: settings.approved_by_channel.clone(),
        suppressed: settings.suppressed.clone(),
        dead_letters: settings.dead_letters.clone(),
        refunds: settings.refunds.clone(),
        activity: settings.activity.clone(),
        delivery_reports: settings.delivery_reports.clone(),
        retries: settings.retries.clone(),
        undelivered: settings.undelivered.clone(),
        deferred: settings.deferred.as_deref().map(WheelTopics::of),
        deferred_before: settings.deferred_before.iter().map(|prefix| WheelTopics::of(prefix)).collect(),
        waiting: settings.waiting.clone(),
        routes: Arc::default(),
        reads: Reads::Published,
        read_order: ReadOrder::AsFetched,
        delivery: settings.delivery,
        instance: settings.instance.clone(),
        tokens: None,
        properties,
        files: Arc::default(),
        memory: LaneMemory::default(),
        records_a_call: RECORDS_A_CALL,
        commit_interval: COMMIT_INTERVAL,
        limits: Arc::default(),
    }
}

/// The same, signed in to AWS where the settings say so.
pub async fn signed_kafka(settings: &KafkaSettings) -> anyhow::Result<KafkaOptions> {
    let mut options = kafka(settings);
    if let Some(region) = &settings.aws_iam_region {
        options.tokens = Some(Arc::new(MskTokens(Signer::connect(region).await.context("kafka.aws_iam_region")?)));
    }
    Ok(options)
}

/// What librdkafka refuses of the properties together: no client that knows a broker is made for it.
#[must_use]
pub fn kafka_conflicts(settings: &KafkaSettings, memory: LaneMemory) -> Vec<String> {
    let tokens = settings.aws_iam_region.as_ref().map(|_| Arc::new(NoToken) as Arc<dyn Tokens>);
    conflicts::find(&KafkaOptions { memory, tokens, ..kafka(settings) })
}

/// The properties that sign in or encrypt and have no effect by `security.protocol`: a sentence for each of the two. librdkafka connects
/// without them, in plain text.
#[must_use]
pub fn kafka_without_effect(settings: &KafkaSettings) -> Vec<String> {
    let set = settings.properties().find(|(name, _)| *name == "security.protocol");
    let protocol = match set {
        _ if settings.aws_iam_region.is_some() => "sasl_ssl".to_owned(),
        Some((_, value)) => value.expose().trim().to_ascii_lowercase(),
        None => "plaintext".to_owned(),
    };
    let kinds = [
        (
            "sasl.",
            protocol.starts_with("sasl_"),
            "nobody signs in: set it to \"SASL_SSL\", or without TLS to \"SASL_PLAINTEXT\"",
        ),
        (
            "ssl.",
            protocol.ends_with("ssl"),
            "nothing is encrypted: set it to \"SASL_SSL\", or without a password to \"SSL\"",
        ),
    ];
    let sentence = |(start, has_effect, why): (&str, bool, &str)| {
        let names = settings.properties().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.filter(|name| name.starts_with(start)).collect();
        (!has_effect && !names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("kafka.properties has {names} without effect: by \"security.protocol\" = \"{protocol}\", {why}")
        })
    };
    kinds.into_iter().filter_map(sentence).collect()
}

/// Makes sure that nothing is refused together, and logs what has no effect.
pub fn kafka_properties(settings: &KafkaSettings, memory: LaneMemory) -> anyhow::Result<()> {
    for message in kafka_without_effect(settings) {
        tracing::warn!("{message}");
    }
    let conflicts = kafka_conflicts(settings, memory);
    if conflicts.is_empty() { Ok(()) } else { Err(UsageError(conflicts.join("\n")).into()) }
}

/// Asks Kafka something that blocks.
pub async fn ask_kafka<T: Send + 'static, E: std::error::Error + Send + Sync + 'static>(
    kafka: &Arc<KafkaOptions>,
    ask: impl FnOnce(&KafkaOptions) -> Result<T, E> + Send + 'static,
) -> anyhow::Result<T> {
    let kafka = Arc::clone(kafka);
    Ok(tokio::task::spawn_blocking(move || ask(&kafka)).await??)
}

pub fn new_topics(settings: &Settings) -> NewTopics {
    let retention_ms = bounds(&settings.redis).retention_ms;
    let KafkaSettings { create_partitions: partitions, create_shares: shares, .. } = settings.kafka;
    NewTopics { partitions, shares, retention_ms }
}

/// How many lanes, and the bounds of each: `worker.lanes` of them; where that is 0, one a core, but no more than
/// `worker.memory` has room for.
pub fn lanes_and_memory(settings: &Settings) -> anyhow::Result<(usize, LaneMemory)> {
    let beside = reads_beside(&settings.kafka);
    let bytes = settings.worker.memory;
    let wanted = lanes(settings)?;
    let lanes = if settings.worker.lanes == 0 { wanted.min(memory::fitting(bytes, beside).max(1)) } else { wanted };
    if lanes < wanted {
        tracing::warn!(lanes, cores = wanted, "worker.memory has no room for a lane a core: raise it for more");
    }
    let memory = LaneMemory::share(bytes, lanes, beside).map_err(|error| UsageError(error.to_string()))?;
    Ok((lanes, memory))
}

pub fn reads_beside(settings: &KafkaSettings) -> ReadsBeside {
    let wheels = settings.deferred.iter().count() + settings.deferred_before.len();
    let topics = [&settings.refunds, &settings.activity, &settings.delivery_reports, &settings.retries];
    let topics = topics.into_iter().flatten().count();
    ReadsBeside { topics: u64::try_from(topics).unwrap_or(u64::MAX), wheels }
}

pub fn policy_bounds(settings: &Settings) -> PolicyBounds {
    let (may_defer, may_wait) = (settings.kafka.deferred.is_some(), settings.kafka.waiting.is_some());
    PolicyBounds { history: bounds(&settings.redis), may_defer, may_wait }
}

pub fn redis(settings: &RedisSettings) -> anyhow::Result<RedisOptions> {
    let urls: Vec<&str> = settings.nodes.iter().map(config::Secret::expose).collect();
    let mut options = RedisOptions::for_urls(&urls).map_err(|error| UsageError(error.to_string()))?;
    if let Some(username) = &settings.username {
        options.username = Some(username.clone());
    }
    let given = settings.password.as_ref().map(|password| Password::Given(password.expose().to_owned()));
    if let Some(password) = given.or_else(|| settings.password_file.clone().map(Password::File)) {
        options.password = Some(password);
    }
    if let Some(tls) = &mut options.tls {
        *tls = tls_files(settings)?;
    }
    options.prefix.clone_from(&settings.prefix);
    options.shards = settings.shards;
    options.users = settings.users;
    options.history_ms = bounds(settings).retention_ms;
    options.max_entries = settings.max_entries;
    options.max_totals = settings.max_totals;
    options.tuning = if settings.tune { Tuning::Set } else { Tuning::Advise };
    options.eviction = if settings.allow_eviction { Eviction::Allow } else { Eviction::Refuse };
    options.wait_replicas = settings.wait_replicas;
    options.response_timeout = settings.timeout;
    options.connect_timeout = settings.timeout;
    Ok(options)
}

/// The same, signed in to AWS where the settings say so.
pub async fn signed_redis(settings: &RedisSettings) -> anyhow::Result<RedisOptions> {
    let mut options = redis(settings)?;
    let RedisSettings { aws_iam_cluster, aws_iam_region, username, .. } = settings;
    if let (Some(cluster), Some(region), Some(user)) = (aws_iam_cluster, aws_iam_region, username) {
        let signer = Signer::connect(region).await.context("redis.aws_iam_cluster")?;
        let passwords = CachePasswords::new(signer, settings.aws_iam_service, cluster, user);
        options.password = Some(Password::Made(Arc::new(passwords)));
    }
    Ok(options)
}

/// The files, which can be read now.
fn tls_files(settings: &RedisSettings) -> anyhow::Result<TlsFiles> {
    let RedisSettings { ca_file, cert_file, key_file, .. } = settings;
    for (key, path) in [("ca_file", ca_file), ("cert_file", cert_file), ("key_file", key_file)] {
        if let Some((path, Err(error))) = path.as_ref().map(|path| (path, std::fs::read(path))) {
            return Err(UsageError(format!("redis.{key}: {} cannot be read: {error}", path.display())).into());
        }
    }
    Ok(TlsFiles { ca: ca_file.clone(), client: cert_file.clone().zip(key_file.clone()) })
}

pub fn bounds(settings: &RedisSettings) -> HistoryBounds {
    let retention_ms = i64::try_from(settings.history.as_millis()).unwrap_or(i64::MAX);
    HistoryBounds { retention_ms, max_entries: settings.max_entries }
}

pub async fn object(source: &Location, s3: &S3Settings) -> StoredObject {
    StoredObject::connect(source, &S3Args::default().over(Some(s3))).await
}

pub async fn policy_source(settings: &Settings) -> Result<PolicySource, PolicySourceError> {
    PolicySource::new(object(&settings.policy.source, &settings.s3).await, policy_bounds(settings))
}

pub async fn segment_source(settings: &Settings) -> SegmentSource {
    let prefix = settings.segments.user_id_prefix.as_deref().unwrap_or_default();
    SegmentSource::new(object(&settings.segments.source, &settings.s3).await, prefix)
}

/// Reads a source that is not read again.
pub async fn read_once<S: RefreshSource>(source: Result<S, S::Error>) -> anyhow::Result<Arc<S::Value>> {
    let read = match source {
        Ok(mut source) => source.load().await,
        Err(error) => Err(error),
    };
    let value = read.map_err(|error| UsageError(error.to_string()))?;
    value.with_context(|| format!("no {} at the first read", S::NAME))
}

/// Where an intent's fields are, and how values are written.
pub fn fields(settings: &Settings) -> anyhow::Result<Arc<FieldMap>> {
    let fields = &settings.intent_fields;
    let pointers = [
        (IntentField::Id, &fields.id),
        (IntentField::UserId, &fields.user_id),
        (IntentField::Channel, &fields.channel),
        (IntentField::Category, &fields.category),
        (IntentField::Campaign, &fields.campaign),
        (IntentField::Cost, &fields.cost),
        (IntentField::CreatedAt, &fields.created_at),
        (IntentField::ExpiresAt, &fields.expires_at),
        (IntentField::NotBefore, &fields.not_before),
        (IntentField::Timezone, &fields.timezone),
    ];
    let map = FieldMap::new(pointers.map(|(field, pointer)| (field, pointer.as_str())));
    let map = map.map_err(|error| UsageError(format!("[intent.fields]: {error}")))?;
    Ok(Arc::new(match settings.intent.format {
        None => map,
        Some(format) => {
            let schemas = schemas::schemas(format, &map, &settings.schemas);
            map.framed(Arc::new(schemas.map_err(|error| UsageError(format!("{error:#}")))?))
        }
    }))
}

pub fn activity_fields(settings: &Settings) -> anyhow::Result<ActivityReader> {
    let fields = &settings.activity_fields;
    let reader = ActivityReader::new(&fields.user_id, &fields.at);
    Ok(reader.map_err(|error| UsageError(format!("[activity.fields]: {error}")))?)
}

/// Since when reports of active users may still have an effect: the longest window ago.
pub fn activity_since() -> Time {
    SystemClock.now().plus(-i64::from(LONGEST_WINDOW_MINUTES) * 60_000)
}

/// How many lanes: 0 means one a core.
pub fn lanes(settings: &Settings) -> anyhow::Result<usize> {
    match settings.worker.lanes {
        0 => Ok(std::thread::available_parallelism().context("the number of cores; set worker.lanes")?.get()),
        lanes => Ok(lanes),
    }
}

/// A keyspace for a command that leaves it and the servers' settings as they are.
pub struct ExistingKeyspace {
    pub options: Arc<RedisOptions>,
    stats: Arc<RedisStats>,
    opened: Opened,
}

impl ExistingKeyspace {
    pub fn store(&self) -> RedisStore {
        RedisStore::new(&self.options, &self.stats, &self.opened)
    }

    /// Its ledger of budgets, for looks: nothing is taken in anyone's name.
    pub fn ledger(self, clock: LedgerClock) -> LedgerPool<RedisLedger> {
        let Self { options, stats, opened } = self;
        LedgerPool::new(move || RedisLedger::with(&options, &stats, &opened, "", Arc::clone(&clock)))
    }
}

pub async fn existing_keyspace(settings: &RedisSettings) -> anyhow::Result<ExistingKeyspace> {
    let options = Arc::new(RedisOptions { tuning: Tuning::Advise, ..redis(settings)? });
    let stats = Arc::new(RedisStats::default());
    let opened = weir_redis::open(&options, &stats, WhenMissing::Refuse, keyspace_seed()).await?;
    Ok(ExistingKeyspace { options, stats, opened })
}

pub fn keyspace_seed() -> KeyspaceSeed {
    KeyspaceSeed { epoch: new_epoch(), now: SystemClock.now() }
}

/// A text that no other keyspace has: 128 random bits.
pub fn new_epoch() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// How long the start waits for something that is away, before it gives up and leaves the next try to whoever
/// started weir.
pub const START_PATIENCE: Duration = Duration::from_secs(60);
