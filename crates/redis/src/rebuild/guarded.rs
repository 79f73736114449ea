//! The writes of a rebuild run outside histories: carried out only where the run still owns the keys (`lua/guarded.lua`).

use std::sync::Arc;

use redis::Value;
use weir_core::ports::StoreError;

use super::{LOCK_MS, RebuildError};
use crate::{
    cluster::Cluster,
    keyspace::Keyspace,
    node::Request,
    open::{KeyspaceSeed, get, startup},
    options::RedisOptions,
    script::Script,
    stats::{RedisStats, RetryCause},
};

/// Over how many connections a replica is waited for: one is lost in a failover.
const CONNECTIONS: usize = 3;

/// A command: its words, of which the first is its name, and how many of those behind the name are keys.
pub(super) struct Command {
    words: Vec<String>,
    keys: usize,
}

impl Command {
    pub(super) fn delete(keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(keys.into_iter().map(Into::into)).collect();
        Self { keys: words.len() - 1, words }
    }

    pub(super) fn set(key: String, value: &str) -> Self {
        Self { words: vec!["SET".to_owned(), key, value.to_owned()], keys: 1 }
    }

    /// PEXPIRE of a key: it lives for so long, if it is there.
    pub(super) fn expire(key: String, ms: i64) -> Self {
        Self { words: vec!["PEXPIRE".to_owned(), key, ms.to_string()], keys: 1 }
    }

    pub(super) fn delete_fields(key: String, fields: impl IntoIterator<Item = String>) -> Self {
        Self { words: ["HDEL".to_owned(), key].into_iter().chain(fields).collect(), keys: 1 }
    }

    pub(super) fn set_fields(
        key: impl Into<String>,
        fields: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        let fields = fields.into_iter().flat_map(|(name, value)| [name.into(), value.into()]);
        Self { words: ["HSET".to_owned(), key.into()].into_iter().chain(fields).collect(), keys: 1 }
    }
}

/// The commands, where each of these keys still holds this text; an empty one: where it does not exist. The reply is what
/// the keys held.
pub(super) fn guarded(guards: &[(String, &str)], commands: &[Command]) -> Request {
    let of_commands = commands.iter().flat_map(|command| &command.words[1..=command.keys]);
    let keys = guards.iter().map(|(key, _)| key).chain(of_commands).cloned().collect();
    let mut args = vec![guards.len().to_string()];
    args.extend(guards.iter().map(|(_, expected)| (*expected).to_owned()));
    for command in commands {
        args.push(command.words.len().to_string());
        args.extend(command.words.iter().cloned());
    }
    Request::call(Script::Guarded, keys, args)
}

/// The texts of the guards.
pub(super) fn found(reply: Value) -> Vec<String> {
    redis::from_redis_value(reply).unwrap_or_default()
}

pub(super) fn first_found(reply: Value) -> String {
    found(reply).into_iter().next().unwrap_or_default()
}

fn replicas(info: &str) -> u32 {
    let count = info.lines().find_map(|line| line.strip_prefix("connected_slaves:")?.trim_end().parse().ok());
    count.unwrap_or_default()
}

/// The one lock of all runs on a keyspace: key and holder. It runs out [`LOCK_MS`] after it was renewed.
pub(super) struct Lock<'l> {
    pub(super) keyspace: &'l Keyspace,
    pub(super) run: &'l str,
}

/// Begins a run under the lock; `begin` gets the keyspace that these options would create. An error gives the lock back.
pub(super) async fn under_lock<T, F: Future<Output = Result<T, RebuildError>>>(
    (options, stats): (&Arc<RedisOptions>, &Arc<RedisStats>),
    run: &str,
    keyspace_seed: KeyspaceSeed,
    begin: impl FnOnce(Cluster, Keyspace) -> F,
) -> Result<T, RebuildError> {
    let connect = || Cluster::new(options, stats);
    let ours = Keyspace::from_seed(options, keyspace_seed);
    let mut cluster = connect();
    let lock = Lock { keyspace: &ours, run };
    lock.take(&mut cluster).await?;
    let begun = begin(cluster, ours.clone()).await;
    if begun.is_err() {
        lock.release(&mut connect()).await;
    }
    begun
}

impl Lock<'_> {
    /// Takes it, where nobody holds it.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] where another run does.
    pub(super) async fn take(&self, cluster: &mut Cluster) -> Result<(), StoreError> {
        let (slot, key) = (self.keyspace.meta_slot(), self.keyspace.rebuild_lock_key());
        let set = Request::plain("SET", (key, self.run, "PX", LOCK_MS, "NX"));
        cluster.ask(slot, set).await.map_err(startup)?;
        let found = cluster.ask(slot, get(key.to_owned())).await.map_err(startup)?;
        if redis::from_redis_value::<String>(found).is_ok_and(|holder| holder == self.run) {
            return Ok(());
        }
        Err(StoreError::Temporary(format!(
            "another weir rebuild is at work on this keyspace, or was killed less than {} s ago ({key}): wait for it",
            LOCK_MS / 1000,
        )))
    }

    /// Renews it and carries out commands on keys beside the tables, where this run still holds it. Where it ran out and no
    /// run has begun since, it is taken again.
    pub(super) async fn write(&self, cluster: &mut Cluster, commands: Vec<Command>) -> Result<(), RebuildError> {
        let key = self.keyspace.rebuild_lock_key().to_owned();
        let renew = Command::expire(key.clone(), LOCK_MS.cast_signed());
        let commands: Vec<Command> = std::iter::once(renew).chain(commands).collect();
        let request = guarded(&[(key, self.run)], &commands);
        let slot = self.keyspace.meta_slot();
        for _ in 0..2 {
            let found = first_found(cluster.ask(slot, request.clone()).await.map_err(startup)?);
            if found == self.run {
                return Ok(());
            }
            if !found.is_empty() || !self.retake(cluster).await? {
                break;
            }
        }
        Err(RebuildError::TakenOver)
    }

    /// Waits until a replica of the tables' node has all that was written there before, where it has replicas, whatever
    /// `redis.wait_replicas` says: for what the shards are told behind it must not be lost with the node.
    pub(super) async fn wait_for_a_replica(&self, cluster: &mut Cluster) -> Result<(), RebuildError> {
        let slot = self.keyspace.meta_slot();
        let half = u64::try_from(cluster.options().response_timeout.as_millis() / 2).unwrap_or(u64::MAX);
        let (info, wait) = (Request::plain("INFO", "replication"), Request::plain("WAIT", (1, half.max(1))));
        for _ in 0..CONNECTIONS {
            // WAIT speaks of what was written before the last command of its own connection.
            self.write(cluster, Vec::new()).await?;
            let wrote = cluster.link(slot);
            let replicas = match cluster.ask(slot, info.clone()).await {
                Ok(said) => replicas(&redis::from_redis_value::<String>(said).unwrap_or_default()),
                // The user may not ask.
                Err(error) if error.cause == RetryCause::Refused => 0,
                Err(error) => return Err(startup(error).into()),
            };
            let had = match replicas {
                0 => None,
                _ => Some(cluster.ask(slot, wait.clone()).await.map_err(startup)?),
            };
            // Another server, or one that was started again, may never have had it.
            if wrote.is_none() || cluster.link(slot) != wrote {
                continue;
            }
            return match had {
                None | Some(Value::Int(1..)) => Ok(()),
                Some(_) => Err(StoreError::Temporary(format!(
                    "0 of {replicas} replicas of the server that has {} had the writes in time",
                    self.keyspace.meta_key()
                ))
                .into()),
            };
        }
        let message = "the server that has the keyspace's tables closes its connections".to_owned();
        Err(StoreError::Temporary(message).into())
    }

    /// Takes it again, where the progress is still this run's: no other run has begun.
    async fn retake(&self, cluster: &mut Cluster) -> Result<bool, StoreError> {
        match self.take(cluster).await {
            Ok(()) => {}
            Err(StoreError::Temporary(_)) => return Ok(false),
            Err(
                error @ (StoreError::NotRecorded(_)
                | StoreError::TooSlow(_)
                | StoreError::LostHistory { .. }
                | StoreError::Fatal(_)),
            ) => return Err(error),
        }
        let noted = Request::plain("HGET", (self.keyspace.rebuild_key(), "run"));
        let noted = cluster.ask(self.keyspace.meta_slot(), noted).await.map_err(startup)?;
        let ours = redis::from_redis_value::<String>(noted).is_ok_and(|noted| noted == self.run);
        if !ours {
            self.release(cluster).await;
        }
        Ok(ours)
    }

    /// Gives it back, where this run holds it. Where Redis is unavailable, it runs out by itself.
    pub(super) async fn release(&self, cluster: &mut Cluster) {
        let key = self.keyspace.rebuild_lock_key();
        let request = guarded(&[(key.to_owned(), self.run)], &[Command::delete([key])]);
        if let Err(error) = cluster.ask(self.keyspace.meta_slot(), request).await {
            tracing::warn!("the lock of the rebuild is not given back: {error}");
        }
    }
}
