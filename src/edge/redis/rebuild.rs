//! Restoring lost histories: which shards, under which mark, and how far it is.
//!
//! While it is rebuilt a shard's epoch is `rebuilding:<epoch>:<run>`, by which nothing is decided on it; the run
//! writes the keyspace's own epoch only when all is back. How far a run is lies beside the keyspace's tables, so that
//! the next one goes on where a killed one stopped. Each run has its own mark: what an earlier one still sends is
//! refused.

mod begin;
mod restorer;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redis::cmd;

pub(super) use self::restorer::put_in;
pub use self::{
    begin::begin,
    restorer::{Restorer, Send},
};
use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::startup, options::RedisOptions, script::Script,
    stats::RedisStats, trouble::Trouble,
};
use crate::{domain::time::Time, worker::ports::StoreError};

/// How long the lock outlives the run that held it, in milliseconds; it is renewed with every [`Rebuild::save`].
pub const LOCK_MS: u64 = 20_000;

/// Which shards to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those that have lost their history.
    Lost,
    /// These, whether they have it or not.
    Shards(BTreeSet<u16>),
    /// All; where the keyspace itself is gone, it is made anew.
    All,
}

/// A run that has marked its shards.
pub struct Rebuild {
    cluster: Cluster,
    options: Arc<RedisOptions>,
    stats: Arc<RedisStats>,
    keyspace: Arc<Keyspace>,
    run: String,
    shards: BTreeSet<u16>,
    marked_at: Time,
    progress: BTreeMap<i32, i64>,
    beginning: Beginning,
}

/// How a run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// From the start.
    Fresh,
    /// Where an earlier one stopped.
    Resumed,
    /// From the start, in a keyspace made anew.
    NewKeyspace,
}

impl Rebuild {
    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The shards being restored; none where nothing was lost.
    #[must_use]
    pub fn shards(&self) -> &BTreeSet<u16> {
        &self.shards
    }

    /// From when on nothing was decided on them any more.
    #[must_use]
    pub fn marked_at(&self) -> Time {
        self.marked_at
    }

    /// How the run began.
    #[must_use]
    pub fn beginning(&self) -> Beginning {
        self.beginning
    }

    /// The next offset of each partition of the approved topic that an earlier run came to.
    #[must_use]
    pub fn progress(&self) -> &BTreeMap<i32, i64> {
        &self.progress
    }

    /// What puts sends back and takes refunds, over connections of its own.
    #[must_use]
    pub fn restorer(&self) -> Restorer {
        let cluster = Cluster::new(Arc::clone(&self.options), Arc::clone(&self.stats));
        Restorer::new(cluster, Arc::clone(&self.keyspace), mark(&self.keyspace, &self.run), self.shards.clone())
    }

    /// Keeps how far the run is: all sends before these offsets are in Redis. Renews the lock.
    ///
    /// # Errors
    /// Redis is away, or another run has taken over.
    pub async fn save(&mut self, progress: &BTreeMap<i32, i64>) -> Result<(), StoreError> {
        self.progress.extend(progress);
        let fields = self.progress.iter().map(|(partition, next)| (format!("next:{partition}"), next.to_string()));
        let mut set = cmd("HSET");
        set.arg(self.keyspace.rebuild_key()).arg("run").arg(&self.run);
        fields.for_each(|(name, value)| {
            set.arg(name).arg(value);
        });
        let slot = self.keyspace.meta_slot();
        lock(&mut self.cluster, &self.keyspace, &self.run, Hold::Renew).await?;
        self.cluster.ask(slot, Request::Plain(set)).await.map_err(startup)?;
        Ok(())
    }

    /// Writes the epoch of every shard: from now on sends are decided on them again. Returns the shards that lost their
    /// history once more meanwhile; for them a new run is needed.
    ///
    /// # Errors
    /// Redis is away: some shards may have it, and the next run goes on with the others.
    pub async fn finish(mut self) -> Result<Vec<u16>, StoreError> {
        let mark = mark(&self.keyspace, &self.run);
        let requests = self.shards.iter().map(|&shard| {
            let new = self.keyspace.epoch().to_owned();
            (self.keyspace.slot(shard), change_epoch(&self.keyspace, shard, (&mark, &new), Marks::Keep))
        });
        let replies = self.cluster.ask_all(requests.collect()).await;
        let mut lost = Vec::new();
        for (&shard, reply) in self.shards.iter().zip(replies) {
            let found: String = redis::from_redis_value(reply.map_err(startup)?).unwrap_or_default();
            // A reply that was lost: the epoch is there already.
            if found != mark && found != self.keyspace.epoch() {
                lost.push(shard);
            }
        }
        if lost.is_empty() {
            let mut gone = cmd("DEL");
            gone.arg(self.keyspace.rebuild_key());
            self.cluster.ask(self.keyspace.meta_slot(), Request::Plain(gone)).await.map_err(startup)?;
        }
        self.leave().await;
        Ok(lost)
    }

    /// Lets the next run begin at once. What was marked stays so.
    pub async fn leave(mut self) {
        release(&mut self.cluster, &self.keyspace).await;
    }
}

/// Gives the lock back; where Redis is away, it runs out by itself.
async fn release(cluster: &mut Cluster, keyspace: &Keyspace) {
    let mut gone = cmd("DEL");
    gone.arg(keyspace.rebuild_lock_key());
    if let Err(trouble) = cluster.ask(keyspace.meta_slot(), Request::Plain(gone)).await {
        tracing::warn!("the lock of the rebuild is not given back: {trouble}");
    }
}

/// What the epoch of a shard is while a run restores it.
fn mark(keyspace: &Keyspace, run: &str) -> String {
    format!("{}{run}", mark_stem(keyspace))
}

/// What the marks of all runs on a keyspace begin with.
fn mark_stem(keyspace: &Keyspace) -> String {
    format!("rebuilding:{}:", keyspace.epoch())
}

/// What becomes of a shard's marks of refunds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    Keep,
    Forget,
}

/// The call of `lua/epoch.lua` from one epoch to another; from "*" always.
fn change_epoch(keyspace: &Keyspace, shard: u16, (from, to): (&str, &str), marks: Marks) -> Request {
    let keys = vec![keyspace.epoch_key(shard), keyspace.marks_key(shard)];
    let forget = match marks {
        Marks::Keep => "0",
        Marks::Forget => "1",
    };
    let args = [from, to, forget].map(|arg| arg.as_bytes().to_vec());
    Request::Call { script: Script::Epoch, keys, args: args.into(), latest: None }
}

/// Whether the lock is to be had or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Take,
    Renew,
}

/// Holds the lock for [`LOCK_MS`].
async fn lock(cluster: &mut Cluster, keyspace: &Keyspace, run: &str, hold: Hold) -> Result<(), StoreError> {
    let slot = keyspace.meta_slot();
    let mut get = cmd("GET");
    get.arg(keyspace.rebuild_lock_key());
    let mut set = cmd("SET");
    set.arg(keyspace.rebuild_lock_key()).arg(run).arg("PX").arg(LOCK_MS);
    let owner = |value| redis::from_redis_value::<Option<String>>(value).ok().flatten();
    match hold {
        Hold::Take => {
            set.arg("NX");
            cluster.ask(slot, Request::Plain(set)).await.map_err(startup)?;
        }
        Hold::Renew => {
            let found = owner(cluster.ask(slot, Request::Plain(get.clone())).await.map_err(startup)?);
            if found.is_none_or(|found| found == run) {
                cluster.ask(slot, Request::Plain(set)).await.map_err(startup)?;
            }
        }
    }
    match owner(cluster.ask(slot, Request::Plain(get)).await.map_err(startup)?) {
        Some(found) if found == run => Ok(()),
        Some(_) | None => Err(StoreError::Temporary(format!(
            "another weir rebuild is at work on this keyspace, or was killed less than {} s ago ({}): wait for it",
            LOCK_MS / 1000,
            keyspace.rebuild_lock_key()
        ))),
    }
}

/// Sends requests that must all be answered.
async fn ask_all(cluster: &mut Cluster, requests: Vec<(u16, Request)>) -> Result<Vec<redis::Value>, StoreError> {
    let replies: Result<Vec<redis::Value>, Trouble> = cluster.ask_all(requests).await.into_iter().collect();
    replies.map_err(startup)
}
