//! The keyspace of a worker, and the clients that work on it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backon::Retryable as _;
use tokio_util::sync::CancellationToken;
use weir_core::ports::{CommitTable, StoreError};
use weir_kafka::{client::KafkaOptions, committed};
use weir_redis::{
    Absent, LedgerClock, OnRedis, Opened, RedisCommits, RedisLedger, RedisOptions, RedisPool, RedisRefunds,
    RedisServices, RedisShare, RedisStats, RedisStore, WhenMissing,
};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    status::StoreStatus,
};

use super::{ask_kafka, patience};
use crate::{
    cli::{
        assemble, clocks,
        worker::{Connect, LimitClients},
    },
    config::Settings,
    vitals::Nodes,
};

/// How often a question of HTTP is tried: who asks is told rather than kept waiting.
const QUERY_TRIES: usize = 3;
/// Tries of a batch before the lane hears of it, where intents go by `redis.unavailable_after`: one, and one for a
/// connection that was closed meanwhile.
const TRIES_WITHOUT_PATIENCE: usize = 2;
/// How often it is looked which shards of Redis answer, for `/v1/status` and the questions of HTTP.
const SHARDS_EVERY: Duration = Duration::from_secs(1);
/// How often each of its nodes is, for the page.
const NODES_EVERY: Duration = Duration::from_secs(2);

/// An open keyspace. Each of its clients has connections of its own.
pub(super) struct OpenRedis {
    /// For what has to be written.
    pub(super) options: Arc<RedisOptions>,
    /// For what is only looked at, or asked again soon: what is found is what is shown.
    look: Arc<RedisOptions>,
    pub(super) stats: Arc<RedisStats>,
    opened: Opened,
    instance: String,
}

impl OpenRedis {
    /// Opens the keyspace; creates it where the group has decided nothing yet.
    pub(super) async fn open(settings: &Settings, kafka: &Arc<KafkaOptions>) -> anyhow::Result<Self> {
        let stats = Arc::new(RedisStats::default());
        let mut options = assemble::signed_redis(&settings.redis).await?;
        if settings.redis.unavailable_after.is_some() {
            // A lane asks again by itself, and wants to know soon who does not answer.
            options.tries = TRIES_WITHOUT_PATIENCE;
            options.absent = Absent::Leave;
        }
        let options = Arc::new(options);
        let opened = open(&options, &stats, when_missing(kafka).await?).await?;
        let look = Arc::new(RedisOptions { tries: TRIES_WITHOUT_PATIENCE, ..options.as_ref().clone() });
        Ok(Self { options, look, stats, opened, instance: settings.kafka.instance.clone() })
    }

    /// The histories.
    pub(super) fn store(&self) -> RedisStore {
        RedisStore::new(&self.options, &self.stats, &self.opened)
    }

    /// Where it is noted what a group has committed.
    pub(super) fn commits(&self, group: &str) -> Arc<dyn CommitTable> {
        Arc::new(RedisCommits::start(&self.options, &self.stats, &self.opened, group))
    }

    /// The groups that have committed offsets of topics, each with such a topic.
    pub(super) async fn noted_topics(&self) -> Result<BTreeSet<(String, String)>, StoreError> {
        weir_redis::noted_topics(&self.options, &self.stats, &self.opened).await
    }

    /// The limits that instances share.
    pub(super) fn limits(self: &Arc<Self>, clock: &ComparedClock<SystemClock>) -> RedisLimits {
        RedisLimits { redis: Arc::clone(self), clock: clocks::of_ledger(clock) }
    }

    /// Where refunds are applied.
    pub(super) fn refunds(&self) -> RedisRefunds {
        RedisRefunds::new(&self.options, &self.stats, &self.opened)
    }

    /// Connections for HTTP: what hangs there holds up no lane. One node may keep at most half of the requests that HTTP
    /// takes on waiting, so that the others are asked whatever becomes of it.
    pub(super) fn query_pool(&self, concurrency: usize) -> Arc<RedisPool> {
        let options = Arc::new(RedisOptions { tries: QUERY_TRIES, ..self.options.as_ref().clone() });
        RedisPool::new(&options, &self.stats, &self.opened, concurrency / 2)
    }

    /// Begins to look which shards and nodes answer; gives where that is seen.
    pub(super) fn watch(&self, pool: &Arc<RedisPool>, stop: &CancellationToken) -> (StoreStatus, Nodes) {
        let (status, nodes) = (StoreStatus::default(), Nodes::default());
        let mut looking = RedisStore::new(&self.look, &self.stats, &self.opened);
        let (seen, pool) = (status.clone(), Arc::clone(pool));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                let found = looking.look_at_shards().await;
                pool.take_over(&mut looking, &found);
                seen.set(found);
                tokio::time::sleep(SHARDS_EVERY).await;
            }
        }));
        // On connections of its own: a node that hangs holds up no probe.
        let (mut looking, seen) = (self.store(), nodes.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                // Nobody knows of a node before the first question is answered.
                if seen.is_empty() {
                    let _ = looking.look_at_shards().await;
                }
                seen.set(looking.look_at_nodes().await);
                tokio::time::sleep(NODES_EVERY).await;
            }
        }));
        (status, nodes)
    }
}

/// The limits that instances share, in an open keyspace.
pub(super) struct RedisLimits {
    redis: Arc<OpenRedis>,
    clock: LedgerClock,
}

impl LimitClients for RedisLimits {
    type Ledger = RedisLedger;
    type Services = RedisServices;
    type Client<L: OnRedis<By = ()>> = RedisShare<L>;

    fn ledgers(&self) -> [Connect<RedisLedger>; 2] {
        let OpenRedis { options, look, instance, .. } = &*self.redis;
        [options, look].map(|options| self.connect(options, instance, Arc::clone(&self.clock)))
    }

    fn services(&self, holder: &str) -> Connect<RedisServices> {
        self.connect(&self.redis.look, holder, ())
    }

    fn of<L: OnRedis<By = ()>>(&self) -> Connect<RedisShare<L>> {
        self.connect(&self.redis.look, &self.redis.instance, ())
    }
}

impl RedisLimits {
    /// Makes clients of a limit, for this member.
    fn connect<L>(&self, options: &Arc<RedisOptions>, member: &str, by: L::By) -> Connect<RedisShare<L>>
    where
        L: OnRedis,
        L::By: Clone + 'static,
    {
        let (redis, options, member) = (Arc::clone(&self.redis), Arc::clone(options), member.to_owned());
        Box::new(move || RedisShare::with(&options, &redis.stats, &redis.opened, member.as_str(), by.clone()))
    }
}

/// Whether a keyspace that is missing may be made. Where the group has decided intents before, it has been lost, and an
/// empty one would let everybody be written to anew: only a person may say so (`weir check --create
/// --accept-lost-history`).
async fn when_missing(kafka: &Arc<KafkaOptions>) -> anyhow::Result<WhenMissing> {
    let has_decided = ask_kafka(kafka, committed::has_decided).await?;
    Ok(if has_decided { WhenMissing::Refuse } else { WhenMissing::Create })
}

async fn open(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    when_missing: WhenMissing,
) -> anyhow::Result<Opened> {
    let keyspace_seed = assemble::keyspace_seed();
    let opened = (|| weir_redis::open(options, stats, when_missing, keyspace_seed.clone()))
        .retry(patience())
        .when(|error| matches!(error, StoreError::Temporary(_)))
        .notify(|error, pause| tracing::warn!("{error}; trying again in {pause:?}"))
        .await?;
    for warning in &opened.warnings {
        tracing::warn!("{warning}");
    }
    if !opened.lost.is_empty() {
        tracing::error!(shards = ?opened.lost, "these shards have lost their history: their intents wait for a rebuild");
    }
    Ok(opened)
}
