//! The begin of a rebuild: finds the lost shards, and continues a run that was killed or marks the shards.

use std::{collections::BTreeSet, sync::Arc};

use weir_core::{basis::time::Time, ports::StoreError};

use super::{
    Beginning, Command, NotedProgress, Purpose, Rebuild, RebuildError, Scope, first_found, guarded, left, mark,
    mark_stem,
    names::{LOST_AT, empty_tables, meta_fields, tables_are_whole},
    under_lock,
};
use crate::{
    cluster::Cluster,
    keyspace::{Keyspace, Meta, State},
    open::{KeyspaceSeed, compare, epochs, foreign, in_settings, read_meta, startup},
    options::RedisOptions,
    stats::RedisStats,
};

/// The most keys of one DEL.
const MAX_KEYS_A_CALL: u32 = 500;

/// Marks the shards of the scope, so that nothing is decided on them until [`Rebuild::finish`]. `run` names this run,
/// differently from all others; `keyspace_seed` is for a keyspace that has to be recreated.
///
/// # Errors
/// [`StoreError::Temporary`] where Redis is unavailable or another run is at work; [`StoreError::Fatal`] where the scope
/// cannot be restored: a shard that is not there, a keyspace that is gone and not all of it asked for;
/// [`RebuildError::TakenOver`] where another run began meanwhile.
pub async fn begin(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    scope: &Scope,
    run: String,
    keyspace_seed: KeyspaceSeed,
) -> Result<Rebuild, RebuildError> {
    under_lock((options, stats), &run, keyspace_seed, |cluster, ours| locked(cluster, options, scope, &run, ours)).await
}

async fn locked(
    mut cluster: Cluster,
    options: &RedisOptions,
    scope: &Scope,
    run: &str,
    ours: Keyspace,
) -> Result<Rebuild, RebuildError> {
    let now = ours.meta().created_at;
    let (keyspace, mut beginning) = match whole(&mut cluster, options, &ours).await? {
        Some(meta) => (Keyspace::new(&options.prefix, meta), Beginning::Fresh),
        None if *scope == Scope::All => (ours, Beginning::NewKeyspace),
        None => return Err(gone(&ours).into()),
    };
    let found = epochs(&mut cluster, &keyspace).await.map_err(startup)?;
    let shards = chosen(scope, &keyspace, &found)?;
    let (mut noted, mut marked_at) = (NotedProgress::default(), now);
    if beginning == Beginning::Fresh
        && let Some(left) = left_by(&mut cluster, &keyspace, &shards, &found).await?
    {
        (noted, marked_at) = left;
        beginning = Beginning::Resumed;
    }
    let mut rebuild = Rebuild {
        cluster,
        keyspace: Arc::new(keyspace),
        run: run.to_owned(),
        shards,
        marked_at,
        progress: noted.next,
        first: noted.first,
        beginning,
        purpose: Purpose::Restore,
        before: None,
    };
    if !rebuild.shards.is_empty() {
        rebuild.mark(&found).await?;
    }
    Ok(rebuild)
}

/// What the keyspace is, if it is there with its tables: without those the numbers in the histories mean nothing.
async fn whole(cluster: &mut Cluster, options: &RedisOptions, ours: &Keyspace) -> Result<Option<Meta>, StoreError> {
    let Some((meta, state)) = read_meta(cluster, ours).await? else { return Ok(None) };
    compare_kept(options, &meta)?;
    if state == State::Creating {
        return Err(foreign(ours, "it was not finished when it was made; start a worker, or run weir check --create"));
    }
    let keyspace = Keyspace::new(&options.prefix, meta.clone());
    Ok(tables_are_whole(cluster, &keyspace).await?.then_some(meta))
}

/// Fails where the keyspace is not what the options say, whose history is the one that it was found to have: less would be read.
pub(super) fn compare_kept(options: &RedisOptions, meta: &Meta) -> Result<(), StoreError> {
    compare(options, meta)?;
    if meta.history_ms > options.history_ms {
        let length = in_settings(meta.history_ms);
        return Err(StoreError::Fatal(format!(
            "the history has been made longer meanwhile, and is {length} now: run weir rebuild again"
        )));
    }
    Ok(())
}

fn gone(ours: &Keyspace) -> StoreError {
    StoreError::Fatal(format!(
        "{} or the tables beside it are gone, and without them the histories of no shard can be read: run weir rebuild \
         again, which repairs them first",
        ours.meta_key()
    ))
}

fn chosen(scope: &Scope, keyspace: &Keyspace, found: &[Option<String>]) -> Result<BTreeSet<u16>, StoreError> {
    let count = keyspace.meta().layout.shards;
    match scope {
        Scope::All => Ok((0..count).collect()),
        Scope::Lost => {
            let lost = (0..).zip(found).filter(|(_, epoch)| epoch.as_deref() != Some(keyspace.epoch()));
            Ok(lost.map(|(shard, _)| shard).collect())
        }
        Scope::Shards(shards) => match shards.last() {
            Some(last) if *last >= count => {
                Err(StoreError::Fatal(format!("there is no shard {last}: the keyspace has shards 0 to {}", count - 1)))
            }
            Some(_) | None => Ok(shards.clone()),
        },
    }
}

/// What a run noted that had marked just these shards, and when it had.
async fn left_by(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    shards: &BTreeSet<u16>,
    found: &[Option<String>],
) -> Result<Option<(NotedProgress, Time)>, StoreError> {
    let fields = left(cluster, keyspace).await?;
    let Some(run) = fields.get("run") else { return Ok(None) };
    let theirs = |shard: &u16| {
        let epoch = found.get(usize::from(*shard)).and_then(Option::as_deref);
        epoch == Some(mark(keyspace, run).as_str())
    };
    let at = fields.get("marked_at_ms").and_then(|at| Time::from_millis(at.parse().ok()?));
    match at {
        Some(at) if shards.iter().all(theirs) => Ok(Some((NotedProgress::of(&fields), at))),
        Some(_) | None => Ok(None),
    }
}

impl Rebuild {
    /// Gives the shards this run's mark, each where it is still as it was found.
    async fn mark(&mut self, epochs: &[Option<String>]) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let [mark, purging] = [mark(&keyspace, &self.run), format!("purging:{}:{}", keyspace.epoch(), self.run)];
        let last_runs = self.last_runs().await?;
        let strange = self.strange(epochs);
        let marked = self.shards.iter().zip(last_runs).map(|(&shard, last_run)| {
            let was = [epochs.get(usize::from(shard)).cloned().flatten().unwrap_or_default(), last_run];
            let new = if strange.contains(&shard) { &purging } else { &mark };
            // First what a user may not be allowed to do. Which campaigns are unknown is found anew.
            let marks_key = (self.beginning != Beginning::Resumed).then(|| keyspace.marks_key(shard));
            let forget = Command::delete(marks_key.into_iter().chain([keyspace.unknown_key(shard)]));
            (shard, was, vec![forget, Command::set(keyspace.epoch_key(shard), new)])
        });
        let (marked, run) = (marked.collect(), self.run.clone());
        self.take_shards(marked, &run).await?;
        self.purge(&strange, (&purging, &mark)).await?;
        let marked_at_ms = self.marked_at.millis().to_string();
        if self.beginning == Beginning::NewKeyspace {
            self.make_tables().await?;
        } else if self.may_lack_names() {
            let lost_at = Command::set_fields(keyspace.campaigns_key(), [(LOST_AT, &*marked_at_ms)]);
            self.write(vec![lost_at]).await?;
        }
        let marked_at = [("marked_at_ms", marked_at_ms)];
        let marked_at = Command::set_fields(keyspace.rebuild_key(), marked_at);
        let note = self.note().into_iter().chain([marked_at]);
        self.write(std::iter::once(Command::delete([keyspace.rebuild_key()])).chain(note).collect()).await
    }

    /// Whether the run restores shards of the node with the tables. That node may have returned with an old snapshot: its tables look whole,
    /// and lack the names that were given since.
    fn may_lack_names(&self) -> bool {
        let Some(map) = self.cluster.map() else { return true };
        let of_tables = map.owner(self.keyspace.meta_slot());
        self.shards.iter().any(|shard| map.owner(self.keyspace.slot(*shard)) == of_tables)
    }

    /// Shards whose epoch was neither this keyspace's nor the mark of a run on it: they were written under other tables, or
    /// a run stopped while it deleted that.
    fn strange(&self, epochs: &[Option<String>]) -> BTreeSet<u16> {
        let stem = mark_stem(&self.keyspace);
        let ours = |epoch: &str| epoch == self.keyspace.epoch() || epoch.starts_with(&stem);
        let is_strange = |shard: &&u16| {
            let epoch = epochs.get(usize::from(**shard)).and_then(Option::as_deref);
            self.beginning == Beginning::NewKeyspace || !epoch.is_some_and(ours)
        };
        self.shards.iter().filter(is_strange).copied().collect()
    }

    /// Deletes what strange shards hold, and marks them as being restored.
    async fn purge(&mut self, strange: &BTreeSet<u16>, (purging, mark): (&str, &str)) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let buckets = keyspace.meta().layout.buckets;
        for &shard in strange {
            let pieces = (0..buckets).step_by(MAX_KEYS_A_CALL as usize);
            let delete = pieces.map(|first| {
                let piece = first..buckets.min(first.saturating_add(MAX_KEYS_A_CALL));
                Command::delete(piece.map(|bucket| keyspace.bucket_key(shard, bucket)))
            });
            let done = Command::set(keyspace.epoch_key(shard), mark);
            for command in delete.chain([done]) {
                let call = guarded(&[(keyspace.epoch_key(shard), purging)], &[command]);
                let reply = self.cluster.ask(keyspace.slot(shard), call).await.map_err(startup)?;
                let found = first_found(reply);
                // Its own mark: the reply to the last command was lost.
                if found != purging && found != mark {
                    return Err(RebuildError::TakenOver);
                }
            }
            // The lock would run out.
            self.write(Vec::new()).await?;
        }
        Ok(())
    }

    /// The tables first, the meta key last: whoever finds it finds all.
    async fn make_tables(&mut self) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let mut commands: Vec<Command> = empty_tables(&keyspace, keyspace.epoch(), self.marked_at).collect();
        commands.push(Command::delete([keyspace.meta_key()]));
        commands.push(meta_fields(&keyspace));
        self.write(commands).await
    }
}
