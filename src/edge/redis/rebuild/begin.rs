//! The begin of a rebuild: finds out what was lost, goes on with a run that was killed, or marks the shards anew.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use redis::cmd;

use super::{Beginning, Hold, Marks, Rebuild, Scope, ask_all, change_epoch, lock, mark, mark_stem, release};
use crate::{
    domain::{shard::Layout, time::Time},
    edge::redis::{
        cluster::Cluster,
        keyspace::{Keyspace, Meta, State},
        node::Request,
        open::{Birth, compare, epochs, foreign, read_meta, startup},
        options::RedisOptions,
        stats::RedisStats,
    },
    worker::ports::StoreError,
};

/// The most keys of one DEL.
const MAX_KEYS_A_CALL: u32 = 500;

/// Marks the shards of the scope, so that nothing is decided on them until [`Rebuild::finish`]. `run` names this run,
/// differently from all others; `birth` is for a keyspace that has to be made anew.
///
/// # Errors
/// [`StoreError::Temporary`] where Redis is away or another run is at work; [`StoreError::Fatal`] where the scope
/// cannot be restored: a shard that is not there, a keyspace that is gone and not all of it asked for.
pub async fn begin(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    scope: &Scope,
    run: String,
    birth: Birth,
) -> Result<Rebuild, StoreError> {
    let mut cluster = Cluster::new(Arc::clone(options), Arc::clone(stats));
    let layout = Layout::for_users(options.shards, options.users);
    let ours = Meta { layout, epoch: birth.epoch, history_ms: options.history_ms, created_at: birth.now };
    let ours = Keyspace::new(&options.prefix, ours);
    lock(&mut cluster, &ours, &run, Hold::Take).await?;
    let begun = locked(cluster, (options, stats), scope, &run, ours.clone()).await;
    if begun.is_err() {
        release(&mut Cluster::new(Arc::clone(options), Arc::clone(stats)), &ours).await;
    }
    begun
}

/// The begin, under the lock.
async fn locked(
    mut cluster: Cluster,
    (options, stats): (&Arc<RedisOptions>, &Arc<RedisStats>),
    scope: &Scope,
    run: &str,
    ours: Keyspace,
) -> Result<Rebuild, StoreError> {
    let now = ours.meta().created_at;
    let (keyspace, mut beginning) = match whole(&mut cluster, options, &ours).await? {
        Some(meta) => (Keyspace::new(&options.prefix, meta), Beginning::Fresh),
        None if *scope == Scope::All => (ours, Beginning::NewKeyspace),
        None => return Err(gone(&ours)),
    };
    let found = epochs(&mut cluster, &keyspace).await.map_err(startup)?;
    let shards = chosen(scope, &keyspace, &found)?;
    let (mut progress, mut marked_at) = (BTreeMap::new(), now);
    if beginning == Beginning::Fresh
        && let Some(left) = left_by(&mut cluster, &keyspace, &shards, &found).await?
    {
        (progress, marked_at) = left;
        beginning = Beginning::Resumed;
    }
    let mut rebuild = Rebuild {
        cluster,
        options: Arc::clone(options),
        stats: Arc::clone(stats),
        keyspace: Arc::new(keyspace),
        run: run.to_owned(),
        shards,
        marked_at,
        progress,
        beginning,
    };
    if !rebuild.shards.is_empty() {
        rebuild.mark(&found).await?;
    }
    Ok(rebuild)
}

/// What the keyspace is, if it is there with its tables: without those the numbers in the histories mean nothing.
async fn whole(cluster: &mut Cluster, options: &RedisOptions, ours: &Keyspace) -> Result<Option<Meta>, StoreError> {
    let Some((meta, state)) = read_meta(cluster, ours).await? else { return Ok(None) };
    compare(options, &meta)?;
    if state == State::Creating {
        return Err(foreign(ours, "it was not finished when it was made; start a worker, or run weir check --create"));
    }
    let tables = [ours.kinds_key(), ours.campaigns_key()].map(|table| {
        let mut command = cmd("HGET");
        command.arg(table).arg("epoch");
        (ours.meta_slot(), Request::Plain(command))
    });
    let epochs = ask_all(cluster, tables.into()).await?;
    let whole =
        epochs.into_iter().all(|epoch| redis::from_redis_value::<String>(epoch).ok() == Some(meta.epoch.clone()));
    Ok(whole.then_some(meta))
}

fn gone(ours: &Keyspace) -> StoreError {
    StoreError::Fatal(format!(
        "{} or the tables beside it are gone, and without them the histories of no shard can be read: restore all with \
         weir rebuild --all, which makes the keyspace anew",
        ours.meta_key()
    ))
}

/// The shards to restore.
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

/// How far a run came that had marked just these shards, and when.
async fn left_by(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    shards: &BTreeSet<u16>,
    found: &[Option<String>],
) -> Result<Option<(BTreeMap<i32, i64>, Time)>, StoreError> {
    let mut command = cmd("HGETALL");
    command.arg(keyspace.rebuild_key());
    let value = cluster.ask(keyspace.meta_slot(), Request::Plain(command)).await.map_err(startup)?;
    let fields: HashMap<String, String> = redis::from_redis_value(value).unwrap_or_default();
    let Some(run) = fields.get("run") else { return Ok(None) };
    let theirs = |shard: &u16| {
        let epoch = found.get(usize::from(*shard)).and_then(Option::as_deref);
        epoch == Some(mark(keyspace, run).as_str())
    };
    let at = fields.get("marked_at_ms").and_then(|at| Time::from_millis(at.parse().ok()?));
    match at {
        Some(at) if shards.iter().all(theirs) => {
            let progress = fields
                .iter()
                .filter_map(|(name, next)| Some((name.strip_prefix("next:")?.parse().ok()?, next.parse().ok()?)));
            Ok(Some((progress.collect(), at)))
        }
        Some(_) | None => Ok(None),
    }
}

impl Rebuild {
    /// Gives the shards this run's mark.
    async fn mark(&mut self, found: &[Option<String>]) -> Result<(), StoreError> {
        let (keyspace, run) = (Arc::clone(&self.keyspace), self.run.clone());
        let mark = mark(&keyspace, &run);
        let marks = match self.beginning {
            Beginning::Resumed => Marks::Keep,
            Beginning::Fresh | Beginning::NewKeyspace => Marks::Forget,
        };
        let call = |&shard: &u16| (keyspace.slot(shard), change_epoch(&keyspace, shard, ("*", &mark), marks));
        ask_all(&mut self.cluster, self.shards.iter().map(call).collect()).await?;
        self.purge(found).await?;
        if self.beginning == Beginning::NewKeyspace {
            self.make_tables().await?;
        }
        let mut forget = cmd("DEL");
        forget.arg(keyspace.rebuild_key());
        let mut note = cmd("HSET");
        note.arg(keyspace.rebuild_key()).arg("run").arg(&run);
        note.arg("marked_at_ms").arg(self.marked_at.millis());
        for (partition, next) in &self.progress {
            note.arg(format!("next:{partition}")).arg(*next);
        }
        for command in [forget, note] {
            self.cluster.ask(keyspace.meta_slot(), Request::Plain(command)).await.map_err(startup)?;
        }
        Ok(())
    }

    /// Deletes what shards hold whose epoch was not this keyspace's: it was written under other tables.
    async fn purge(&mut self, found: &[Option<String>]) -> Result<(), StoreError> {
        let (stem, keyspace) = (mark_stem(&self.keyspace), Arc::clone(&self.keyspace));
        let ours = |epoch: &str| epoch == keyspace.epoch() || epoch.starts_with(&stem);
        let strange = |shard: &&u16| {
            let epoch = found.get(usize::from(**shard)).and_then(Option::as_deref);
            self.beginning == Beginning::NewKeyspace || !epoch.is_some_and(ours)
        };
        let buckets = keyspace.meta().layout.buckets;
        let shards: Vec<u16> = self.shards.iter().filter(strange).copied().collect();
        for shard in shards {
            let pieces = (0..buckets).step_by(MAX_KEYS_A_CALL as usize);
            let calls = pieces.map(|first| {
                let mut command = cmd("DEL");
                for bucket in first..buckets.min(first.saturating_add(MAX_KEYS_A_CALL)) {
                    command.arg(keyspace.bucket_key(shard, bucket));
                }
                (keyspace.slot(shard), Request::Plain(command))
            });
            ask_all(&mut self.cluster, calls.collect()).await?;
        }
        Ok(())
    }

    /// The tables first, the meta key last: whoever finds it finds all.
    async fn make_tables(&mut self) -> Result<(), StoreError> {
        let keyspace = Arc::clone(&self.keyspace);
        let mut commands = Vec::new();
        for table in [keyspace.kinds_key(), keyspace.campaigns_key()] {
            let mut gone = cmd("DEL");
            gone.arg(table);
            let mut made = cmd("HSET");
            made.arg(table).arg("epoch").arg(keyspace.epoch());
            commands.extend([gone, made]);
        }
        let mut gone = cmd("DEL");
        gone.arg(keyspace.meta_key());
        let mut meta = cmd("HSET");
        meta.arg(keyspace.meta_key());
        for (name, value) in keyspace.meta().to_fields(State::Ready) {
            meta.arg(name).arg(value);
        }
        commands.extend([gone, meta]);
        for command in commands {
            self.cluster.ask(keyspace.meta_slot(), Request::Plain(command)).await.map_err(startup)?;
        }
        Ok(())
    }
}
