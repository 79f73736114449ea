//! The repair of the tables of names, and of the meta key beside them, on a node that has lost them.
//!
//! Shards on other nodes keep their histories, whose numbers mean what they did. Names and numbers come from the approved topic
//! ([`FoundNames`]). The order matters: while the topic is read workers go on with the names that they know; then all shards are
//! marked, so that nothing more is decided; what was decided before becomes visible, and is read; then tables and shards get a new
//! epoch. So every worker drops what it knew, and nothing but the tables says which number a name has.

use std::{collections::BTreeSet, sync::Arc};

use weir_core::{basis::time::Time, history::found_names::FoundNames, ports::StoreError};

use super::{Command, Lock, RebuildError, Scope, ask_all, begin::compare_kept, guarded, lengthen, under_lock};
use crate::{
    cluster::Cluster,
    keyspace::{Keyspace, Meta, State},
    names::{NameTable, campaign_field, kind_field},
    node::Request,
    open::{KeyspaceSeed, epochs, read_meta, startup},
    options::RedisOptions,
    stats::RedisStats,
};

const MAX_NAMES_A_WRITE: usize = 250;
/// A table's field for the time when it was lost, or may have lost names (`lua/intern.lua`).
pub(super) const LOST_AT: &str = "lost_at";
/// What the epoch of a shard begins with whose history is whole, and that waits for the names.
const PAUSED: &str = "renaming:";

/// Tables that were lost, and a run that repairs them.
pub struct NamesRepair {
    cluster: Cluster,
    was: Keyspace,
    renamed: Keyspace,
    run: String,
}

/// Begins to repair the names, where they are lost; `None` where they are not, or the whole keyspace is to be recreated.
///
/// # Errors
/// As for [`super::begin`]; [`StoreError::Fatal`] also where no shard says what the keyspace was.
pub async fn begin_names(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    scope: &Scope,
    run: String,
    keyspace_seed: KeyspaceSeed,
) -> Result<Option<NamesRepair>, RebuildError> {
    let run = run.as_str();
    under_lock((options, stats), run, keyspace_seed, |mut cluster, ours| async move {
        let lock = Lock { keyspace: &ours, run };
        let Some((was, renamed)) = locked(&mut cluster, options, scope, &lock).await? else {
            lock.release(&mut cluster).await;
            return Ok(None);
        };
        Ok(Some(NamesRepair { cluster, was, renamed, run: run.to_owned() }))
    })
    .await
}

/// The begin, under the lock: the keyspace as it was and is to be.
async fn locked(
    cluster: &mut Cluster,
    options: &RedisOptions,
    scope: &Scope,
    lock: &Lock<'_>,
) -> Result<Option<(Keyspace, Keyspace)>, RebuildError> {
    let ours = lock.keyspace;
    let found = epochs(cluster, ours).await.map_err(startup)?;
    let meta = read_meta(cluster, ours).await?;
    if let Some((meta, state)) = &meta {
        let keyspace = Keyspace::new(&options.prefix, meta.clone());
        release_shortened(cluster, lock, (&keyspace, &found)).await?;
        if *state == State::Creating || tables_are_whole(cluster, &keyspace).await? {
            release_paused(cluster, lock, (&keyspace, &found)).await?;
            return Ok(None);
        }
    }
    match scope {
        Scope::All => return Ok(None),
        Scope::Shards(_) => {
            let message = format!(
                "the tables of names beside {} are lost: run weir rebuild without --shards, which repairs them, too",
                ours.meta_key()
            );
            return Err(StoreError::Fatal(message).into());
        }
        Scope::Lost => {}
    }
    let meta = match meta {
        Some((meta, _)) => meta,
        None => {
            let meta = meta_of_shards(ours, &found)?;
            let keyspace = Keyspace::new(&options.prefix, meta.clone());
            Meta { lengthening: lengthen::told_by_shards(cluster, &keyspace).await?, ..meta }
        }
    };
    compare_kept(options, &meta)?;
    let random = ours.epoch().to_owned();
    let (was, renamed) = (Keyspace::new(&options.prefix, meta.clone()), meta.renamed(&random));
    let renamed = Keyspace::new(&options.prefix, renamed);
    let mut commands = vec![meta_fields(&was)];
    commands.extend(empty_tables(&was, &paused(&was, &renamed), ours.meta().created_at));
    lock.write(cluster, commands).await?;
    Ok(Some((was, renamed)))
}

/// Whether both tables are this keyspace's.
pub(super) async fn tables_are_whole(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<bool, StoreError> {
    are_of(cluster, keyspace, &NameTable::ALL.map(|table| table.keys(keyspace)[0])).await
}

/// Whether tables are this keyspace's.
pub(super) async fn are_of(cluster: &mut Cluster, keyspace: &Keyspace, tables: &[&str]) -> Result<bool, StoreError> {
    let epoch = |table: &&str| (keyspace.meta_slot(), Request::plain("HGET", (*table, "epoch")));
    let epochs = ask_all(cluster, tables.iter().map(epoch).collect()).await?;
    let is_ours = |epoch| redis::from_redis_value::<String>(epoch).is_ok_and(|epoch| epoch == keyspace.epoch());
    Ok(epochs.into_iter().all(is_ours))
}

/// The keyspace that the shards' epochs tell of.
pub(super) fn meta_of_shards(ours: &Keyspace, found: &[Option<String>]) -> Result<Meta, StoreError> {
    let epoch_in = |found: &String| {
        let marked = ["rebuilding:", PAUSED].into_iter().find_map(|stem| found.strip_prefix(stem)?.split(':').next());
        marked.unwrap_or(found).to_owned()
    };
    let epochs: BTreeSet<String> = found.iter().flatten().map(epoch_in).collect();
    let metas: Vec<Meta> = epochs.iter().filter_map(|epoch| Meta::of_epoch(epoch)).collect();
    match metas.as_slice() {
        [meta] => Ok(meta.clone()),
        [] => Err(StoreError::Fatal(format!(
            "{} and the histories of all shards are gone: restore all with weir rebuild --all, which recreates the keyspace",
            ours.meta_key()
        ))),
        _ => Err(StoreError::Fatal(format!(
            "{} is gone, and the shards are of {} keyspaces: restore all with weir rebuild --all, which recreates the keyspace",
            ours.meta_key(),
            metas.len()
        ))),
    }
}

/// Makes the tables anew, which were lost by this time.
pub(super) fn empty_tables(keyspace: &Keyspace, epoch: &str, lost_at: Time) -> impl Iterator<Item = Command> {
    NameTable::ALL.into_iter().flat_map(move |table| {
        let [key, backwards] = table.keys(keyspace);
        let fields = [("epoch", epoch.to_owned()), (LOST_AT, lost_at.millis().to_string())];
        [Command::delete([key, backwards]), Command::set_fields(key, fields)]
    })
}

pub(super) fn meta_fields(keyspace: &Keyspace) -> Command {
    Command::set_fields(keyspace.meta_key(), keyspace.meta().to_fields(State::Ready))
}

/// What the epoch of a shard is while it waits for the names.
fn paused(was: &Keyspace, renamed: &Keyspace) -> String {
    format!("{PAUSED}{}:{}", was.epoch(), renamed.epoch())
}

/// Gives the epoch back to shards that a run left waiting which had repaired the names and was killed then.
async fn release_paused(
    cluster: &mut Cluster,
    lock: &Lock<'_>,
    (keyspace, found): (&Keyspace, &[Option<String>]),
) -> Result<(), RebuildError> {
    let end = format!(":{}", keyspace.epoch());
    let waiting = waiting(found, |found| found.starts_with(PAUSED) && found.ends_with(&end));
    let call =
        |(shard, found): (u16, &str)| (keyspace.slot(shard), change_epoch(keyspace, shard, (found, keyspace.epoch())));
    release(cluster, lock, waiting.into_iter().map(call).collect()).await
}

/// Gives the epoch to shards that a run has not come to which makes the history longer; and has them say that older sends are missing.
async fn release_shortened(
    cluster: &mut Cluster,
    lock: &Lock<'_>,
    (keyspace, found): (&Keyspace, &[Option<String>]),
) -> Result<(), RebuildError> {
    let Some(lengthening) = &keyspace.meta().lengthening else { return Ok(()) };
    let awaiting = lengthen::awaiting(lengthening.from_ms);
    let call = |(shard, found): (u16, &str)| {
        let epoch_key = keyspace.epoch_key(shard);
        let writes =
            [Command::set(epoch_key.clone(), keyspace.epoch()), Command::set(keyspace.last_run_key(shard), &awaiting)];
        (keyspace.slot(shard), guarded(&[(epoch_key, found)], &writes))
    };
    let waiting = waiting(found, |found| lengthening.is_before(Some(found)));
    release(cluster, lock, waiting.into_iter().map(call).collect()).await
}

/// The shards that wait for the epoch, and what they have in its place.
fn waiting(found: &[Option<String>], waits: impl Fn(&str) -> bool) -> Vec<(u16, &str)> {
    let all = (0..).zip(found).filter_map(|(shard, found)| Some((shard, found.as_deref()?)));
    all.filter(|(_, found)| waits(found)).collect()
}

/// Gives shards the epoch by these calls, which is not lost any more with the meta key's node.
async fn release(cluster: &mut Cluster, lock: &Lock<'_>, calls: Vec<(u16, Request)>) -> Result<(), RebuildError> {
    if !calls.is_empty() {
        lock.wait_for_a_replica(cluster).await?;
        ask_all(cluster, calls).await?;
    }
    Ok(())
}

/// Changes the epoch of a shard, where it is what was found.
fn change_epoch(keyspace: &Keyspace, shard: u16, (found, new): (&str, &str)) -> Request {
    let key = keyspace.epoch_key(shard);
    guarded(&[(key.clone(), found)], &[Command::set(key, new)])
}

impl NamesRepair {
    /// Keeps the lock.
    pub async fn renew(&mut self) -> Result<(), RebuildError> {
        self.write(Vec::new()).await
    }

    /// Writes beside the tables, where this run still holds the lock, and renews that.
    async fn write(&mut self, commands: Vec<Command>) -> Result<(), RebuildError> {
        let lock = Lock { keyspace: &self.was, run: &self.run };
        lock.write(&mut self.cluster, commands).await
    }

    /// Marks all shards that have their history: nothing is decided on them until [`NamesRepair::finish`].
    ///
    /// # Errors
    /// Redis is unavailable: some shards may be marked, and the next run goes on with them.
    pub async fn pause(&mut self) -> Result<(), RebuildError> {
        self.renew().await?;
        let stem = format!("{PAUSED}{}:", self.was.epoch());
        let (was, mark) = (&self.was, paused(&self.was, &self.renamed));
        let found = epochs(&mut self.cluster, was).await.map_err(startup)?;
        let whole = |found: &&String| *found == was.epoch() || found.starts_with(&stem);
        let whole = (0..).zip(&found).filter_map(|(shard, found)| Some((shard, found.as_ref().filter(whole)?)));
        let call = |(shard, found): (u16, &String)| (was.slot(shard), change_epoch(was, shard, (found, &mark)));
        ask_all(&mut self.cluster, whole.map(call).collect()).await?;
        Ok(())
    }

    /// Writes the tables and gives them, the meta key and the marked shards their new epoch.
    pub async fn finish(mut self, names: &FoundNames) -> Result<(), RebuildError> {
        let (kinds, next_kind) = names.kinds();
        let kinds = kinds.iter().map(|(number, names)| (*number, kind_field(names))).collect();
        self.fill(NameTable::Kinds, kinds, next_kind).await?;
        let (campaigns, next_campaign) = names.campaigns();
        let campaigns = campaigns.iter().map(|(number, name)| (*number, campaign_field(name))).collect();
        self.fill(NameTable::Campaigns, campaigns, next_campaign).await?;
        self.write(vec![meta_fields(&self.renamed)]).await?;
        let found = epochs(&mut self.cluster, &self.was).await.map_err(startup)?;
        let lock = Lock { keyspace: &self.was, run: &self.run };
        release_paused(&mut self.cluster, &lock, (&self.renamed, &found)).await?;
        self.leave().await;
        Ok(())
    }

    /// Lets the next run begin at once.
    pub async fn leave(mut self) {
        Lock { keyspace: &self.was, run: &self.run }.release(&mut self.cluster).await;
    }

    /// Fills one table, and gives it its epoch last.
    async fn fill(&mut self, table: NameTable, names: Vec<(u32, Vec<u8>)>, next: u32) -> Result<(), RebuildError> {
        let [key, backwards] = table.keys(&self.was).map(str::to_owned);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for names in names.chunks(MAX_NAMES_A_WRITE) {
            let back = names.iter().map(|(number, name)| (number.to_string(), text(name)));
            let there = names.iter().map(|(number, name)| (text(name), number.to_string()));
            let commands = vec![Command::set_fields(&backwards, back), Command::set_fields(&key, there)];
            self.write(commands).await?;
        }
        let end = [("next", next.to_string()), ("epoch", self.renamed.epoch().to_owned())];
        self.write(vec![Command::set_fields(key, end)]).await
    }
}
