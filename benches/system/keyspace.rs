//! A new keyspace, asked by the worker's own store (`crates/redis`).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use testkit::unique;
use weir_core::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
        window::Window,
    },
    history::{
        admit::{AdmitBatch, AdmitRequest, CapQuery},
        decide::{Answer, RecordWhen, Scope},
    },
    intent::class::{ClassNames, Filter},
    ports::{Store, StoreError},
};
use weir_redis::{KeyspaceSeed, RedisOptions, RedisStats, RedisStore, Tuning, WhenMissing, open};

/// When keyspaces that are measured begin, 2026-11-20T00:00:00Z.
pub const START_MS: i64 = 1_795_132_800_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The store, opened.
pub struct Opened {
    store: RedisStore,
    began: Time,
}

impl Opened {
    /// Opens the keyspace of this prefix, or makes it for so many users and shards, on the servers at `urls`.
    pub async fn new(urls: &[String], prefix: &str, (users, shards): (u64, u16), began: Time) -> Result<Self> {
        let mut options = RedisOptions::for_urls(urls)?;
        (options.prefix, options.shards, options.users) = (prefix.to_owned(), shards, users);
        options.tuning = Tuning::Set;
        let (options, stats) = (Arc::new(options), Arc::new(RedisStats::default()));
        let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: began };
        let opened = open(&options, &stats, WhenMissing::Create, keyspace_seed).await?;
        Ok(Self { store: RedisStore::new(&options, &stats, &opened), began })
    }

    /// Asks, so many milliseconds after the keyspace began, until all is answered.
    pub async fn decide(
        &mut self,
        after_ms: i64,
        cap_sets: &[Vec<CapQuery>],
        requests: Vec<AdmitRequest<'_>>,
    ) -> Result<Vec<Answer>> {
        let batch = AdmitBatch { now: self.began.plus(after_ms), cap_sets: cap_sets.to_vec(), requests };
        let mut answers = vec![None; batch.requests.len()];
        let began = Instant::now();
        loop {
            match self.store.admit(&batch, &mut answers).await {
                Ok(()) => break,
                Err(StoreError::Temporary(_) | StoreError::NotRecorded(_)) if began.elapsed() < PATIENCE => {}
                Err(error) => bail!("the store: {error}"),
            }
        }
        answers.into_iter().collect::<Option<_>>().context("a batch came back unanswered")
    }
}

/// Send `number` of a user, by a channel.
pub fn request(user: u32, number: u32, channel: &'static str) -> AdmitRequest<'static> {
    let origin = OriginMark((user ^ number) & 0x00FF_FFFF);
    let class = ClassNames { channel: Some(channel), category: Some("promo"), campaign: Some("spring") };
    let (user, id) = (UserHash::of(&user.to_string()), IdHash::of(&format!("{user}-{number}")));
    AdmitRequest { user, id, origin, class, cost: 1, cap_set: 0, record: RecordWhen::IfAllowed }
}

/// A cap on all sends.
pub fn sliding(limit: u32, length_ms: i64) -> CapQuery {
    CapQuery { window: Window::Sliding { length_ms }, limit, filter: Arc::new(Filter::default()), scope: Scope::Every }
}
