//! Restoring lost histories: which shards, under which mark, and how far it is.
//!
//! While it is rebuilt a shard's epoch is `rebuilding:<epoch>:<run>`, by which nothing is decided on it; the run
//! writes the keyspace's own epoch only when all is back. How far a run is lies beside the keyspace's tables, so that
//! the next one goes on where a killed one stopped. Each run has its own mark, and each of its writes checks in the same
//! script that the mark, or the run's lock, is still there: a run that was frozen and wakes changes nothing of another's.
//! A run that makes the history longer marks nothing, since the shards are decided on: it is their last run, and that is checked.

mod begin;
mod budgets;
mod commits;
mod guarded;
mod lengthen;
mod names;
mod restorer;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use weir_core::{basis::time::Time, ports::StoreError};

use self::guarded::{Command, Lock, first_found, found, guarded, under_lock};
pub(super) use self::restorer::{PutInto, put_in};
pub use self::{
    begin::begin,
    budgets::{BudgetChange, BudgetKeyState, BudgetRestorer, Held, UnknownCampaigns},
    lengthen::{begin_lengthening, kept_history},
    names::{NamesRepair, begin_names},
    restorer::Restorer,
};
use super::{
    cluster::Cluster,
    keyspace::Keyspace,
    node::Request,
    open::{get, startup},
    request_error::RequestError,
};

const MAX_NOTED_A_WRITE: usize = 500;
/// How long the lock outlives the run that held it, in milliseconds; it is renewed with every [`Rebuild::save`].
pub const LOCK_MS: u64 = 20_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All shards that have lost their history.
    Lost,
    /// These, whether they have it or not.
    Shards(BTreeSet<u16>),
    /// All; a keyspace that is gone is recreated.
    All,
}

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Redis did not answer, or not as it has to.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "another weir rebuild has taken over: this run was frozen, or could not reach Redis, for more than {} s. It has \
         changed nothing of what the other run restored. Where weir check still names shards without their history, run \
         weir rebuild again", LOCK_MS / 1000
    )]
    TakenOver,
}

/// A run that has marked its shards.
pub struct Rebuild {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    /// Names this run, differently from all others.
    pub run: String,
    /// The shards being restored; none where nothing was lost.
    pub shards: BTreeSet<u16>,
    /// When they were marked: later, nothing is decided on them.
    pub marked_at: Time,
    /// The next offset of each partition of the approved topic that this run, or one that it goes on with, came to.
    pub progress: BTreeMap<i32, i64>,
    /// When the first record was written that was read of a partition whose records before are deleted, in this run and those that it goes on
    /// with. It is noted with the next [`Rebuild::save`].
    pub first: BTreeMap<i32, Time>,
    pub beginning: Beginning,
    purpose: Purpose,
    /// Of a run that makes the history longer: the sends before this time are put back, where that is noted.
    before: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    /// It restores marked shards, on which nothing is decided.
    Restore,
    /// It puts older sends into shards that are in use, under their epoch. The text names it and the runs that go on with it.
    Lengthen(String),
}

/// What the runs have noted of the partitions of the approved topic that go on with one another.
#[derive(Debug, Default)]
struct NotedProgress {
    next: BTreeMap<i32, i64>,
    first: BTreeMap<i32, Time>,
}

impl NotedProgress {
    fn of(fields: &HashMap<String, String>) -> Self {
        let numbers = |stem: &'static str| {
            let number = move |(field, number): (&String, &String)| {
                Some((field.strip_prefix(stem)?.parse::<i32>().ok()?, number.parse::<i64>().ok()?))
            };
            fields.iter().filter_map(number)
        };
        let first = numbers("first:").filter_map(|(partition, at)| Some((partition, Time::from_millis(at)?)));
        Self { next: numbers("next:").collect(), first: first.collect() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    Fresh,
    Resumed,
    NewKeyspace,
}

/// What runs before have left beside the tables.
async fn left(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<HashMap<String, String>, StoreError> {
    let all = Request::plain("HGETALL", keyspace.rebuild_key());
    let value = cluster.ask(keyspace.meta_slot(), all).await.map_err(startup)?;
    Ok(redis::from_redis_value(value).unwrap_or_default())
}

impl Rebuild {
    /// Keeps how far the run is: all sends before these offsets are in Redis. Renews the lock.
    pub async fn save(&mut self, progress: &BTreeMap<i32, i64>) -> Result<(), RebuildError> {
        self.progress.extend(progress);
        self.write(self.note()).await
    }

    /// Writes what changes of the progress.
    fn note(&self) -> Vec<Command> {
        let next = self.progress.iter().map(|(partition, next)| (format!("next:{partition}"), next.to_string()));
        let first = self.first.iter().map(|(partition, at)| (format!("first:{partition}"), at.millis().to_string()));
        let run = ("run".to_owned(), self.run.clone());
        let fields: Vec<(String, String)> = std::iter::once(run).chain(next).chain(first).collect();
        let write =
            |fields: &[(String, String)]| Command::set_fields(self.keyspace.rebuild_key(), fields.iter().cloned());
        fields.chunks(MAX_NOTED_A_WRITE).map(write).collect()
    }

    /// Writes beside the tables, and renews the lock.
    async fn write(&mut self, commands: Vec<Command>) -> Result<(), RebuildError> {
        let lock = Lock { keyspace: &self.keyspace, run: &self.run };
        lock.write(&mut self.cluster, commands).await
    }

    /// The last run of each shard, in their order; empty where it had none. This run held the lock after that was read: where another
    /// run has changed a shard before, this one no longer holds it.
    async fn last_runs(&mut self) -> Result<Vec<String>, RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let read = self.shards.iter().map(|&shard| (keyspace.slot(shard), get(keyspace.last_run_key(shard))));
        let last_runs = ask_all(&mut self.cluster, read.collect()).await?;
        self.write(Vec::new()).await?;
        let text = |reply| redis::from_redis_value::<Option<String>>(reply).unwrap_or_default().unwrap_or_default();
        Ok(last_runs.into_iter().map(text).collect())
    }

    /// Carries out commands on shards and makes `own` their last run, each where its epoch and last run are still as they were found.
    async fn take_shards(
        &mut self,
        found_as: Vec<(u16, [String; 2], Vec<Command>)>,
        own: &str,
    ) -> Result<(), RebuildError> {
        let (mut calls, mut expected) = (Vec::with_capacity(found_as.len()), Vec::with_capacity(found_as.len()));
        for (shard, was, mut commands) in found_as {
            let (epoch_key, run_key) = (self.keyspace.epoch_key(shard), self.keyspace.last_run_key(shard));
            commands.push(Command::set(run_key.clone(), own));
            let guards = [(epoch_key, was[0].as_str()), (run_key, was[1].as_str())];
            calls.push((self.keyspace.slot(shard), guarded(&guards, &commands)));
            expected.push(was);
        }
        for (reply, expected) in ask_all(&mut self.cluster, calls).await?.into_iter().zip(expected) {
            let found = found(reply);
            // Its own: a reply was lost.
            if found != expected && found.get(1).is_none_or(|last_run| last_run != own) {
                return Err(RebuildError::TakenOver);
            }
        }
        Ok(())
    }

    /// What its shards hold while this run may write there: its mark as their epoch, or its name as their last run.
    fn owner(&self) -> String {
        match self.purpose {
            Purpose::Restore => mark(&self.keyspace, &self.run),
            Purpose::Lengthen(_) => lengthen::owner(&self.keyspace, &self.run),
        }
    }

    /// Writes the epoch of every shard: from now on sends are decided on them again. Returns the shards that lost their
    /// history once more meanwhile; for them a new run is needed.
    ///
    /// # Errors
    /// Redis is unavailable: some shards may have it, and the next run goes on with the others. Or another run has taken over.
    pub async fn finish(mut self) -> Result<Vec<u16>, RebuildError> {
        let mark = mark(&self.keyspace, &self.run);
        let requests = self.shards.iter().map(|&shard| {
            let key = self.keyspace.epoch_key(shard);
            let write = Command::set(key.clone(), self.keyspace.epoch());
            (self.keyspace.slot(shard), guarded(&[(key, &mark)], &[write]))
        });
        let replies = ask_all(&mut self.cluster, requests.collect()).await?;
        let mut lost = Vec::new();
        for (&shard, reply) in self.shards.iter().zip(replies) {
            let found = first_found(reply);
            // A reply that was lost: the epoch is there already.
            if found != mark && found != self.keyspace.epoch() {
                lost.push(shard);
            }
        }
        let forget = lost.is_empty().then(|| Command::delete([self.keyspace.rebuild_key()]));
        // Where another run has done it, this one does not hold the lock.
        let done = self.write(forget.into_iter().collect()).await;
        self.leave().await;
        done.map(|()| lost)
    }

    /// Lets the next run begin at once. What was marked stays so.
    pub async fn leave(mut self) {
        Lock { keyspace: &self.keyspace, run: &self.run }.release(&mut self.cluster).await;
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

/// Sends requests that must all be answered.
async fn ask_all(cluster: &mut Cluster, requests: Vec<(u16, Request)>) -> Result<Vec<redis::Value>, StoreError> {
    let replies: Result<Vec<redis::Value>, RequestError> = cluster.ask_all(requests).await.into_iter().collect();
    replies.map_err(startup)
}
