//! Makes the history of a keyspace in use longer.
//!
//! The keyspace gets a new epoch with the new length, and then each shard, together with the name of the run. From then on weir trims only
//! what is older than that, and a worker that trims by the shorter history is refused. The keys of users get the longer time to live.
//! Then the older sends are put into the histories, beside the decisions: no cap looks back to them yet, for `redis.history` cannot be
//! set to the new length before they are all there.
//!
//! That they are not is said twice: by the meta key, and by the last run of each shard, for the node of the meta key may be lost.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use weir_core::{
    basis::{origin::Topic, time::Time},
    ports::StoreError,
};

use super::{
    Beginning, Command, Lock, NotedProgress, Purpose, Rebuild, RebuildError, ask_all, first_found, found, guarded,
    left,
    names::{are_of, meta_fields, meta_of_shards, tables_are_whole},
    under_lock,
};
use crate::{
    cluster::Cluster,
    keyspace::{Keyspace, LENGTHENING, Lengthening, Meta, State, key_lives_ms},
    names::NameTable,
    node::Request,
    open::{KeyspaceSeed, compare_shards, epochs, foreign, get, in_settings, read_meta, startup},
    options::RedisOptions,
    stats::RedisStats,
};

/// Sends that were decided up to so much after the old history began are put back, too: clocks differ.
const CLOCKS_DIFFER_MS: i64 = 3_600_000;
/// What the last run of a shard begins with while older sends are missing there; behind it, how long the history was, and the run.
const LENGTHENS: &str = "lengthening:";
/// Fields of the progress: the name of a lengthening; before when the sends were decided that it puts back; the run that is the last run
/// of all shards.
const NAME: &str = "lengthening";
const BEFORE: &str = "before_ms";
const OWNER: &str = "owner";
/// What stands before the name of a lengthening in the topics of its marks; no topic's own name has a space.
const MARKED: &str = " lengthening ";
const MAX_KEYS_A_CALL: usize = 500;
const CALLS_A_RENEWAL: usize = 64;

/// For how long the keyspace remembers sends, in milliseconds, whatever the options say; what they say where there is none.
pub async fn kept_history(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Result<i64, StoreError> {
    let mut cluster = Cluster::new(options, stats);
    let ours = Keyspace::from_seed(options, KeyspaceSeed { epoch: String::new(), now: Time::default() });
    let meta = match read_meta(&mut cluster, &ours).await? {
        Some((meta, _)) => Some(meta),
        None => meta_of_shards(&ours, &epochs(&mut cluster, &ours).await.map_err(startup)?).ok(),
    };
    Ok(meta.map_or(options.history_ms, |meta| meta.history_ms))
}

/// Begins to keep sends for longer, or continues a run that has begun to. The older sends are missing until the run has restored them:
/// those before [`Rebuild::lengthens_before`]; then call [`Rebuild::lengthened`].
///
/// # Errors
/// As for [`super::begin`]; [`StoreError::Fatal`] also where a shard has lost its history (restore it first), and where the history is as
/// long.
pub async fn begin_lengthening(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    history_ms: i64,
    run: String,
    keyspace_seed: KeyspaceSeed,
) -> Result<Rebuild, RebuildError> {
    under_lock((options, stats), &run, keyspace_seed, |cluster, ours| locked(cluster, options, history_ms, &run, ours))
        .await
}

async fn locked(
    mut cluster: Cluster,
    options: &RedisOptions,
    history_ms: i64,
    run: &str,
    ours: Keyspace,
) -> Result<Rebuild, RebuildError> {
    let lock = Lock { keyspace: &ours, run };
    let was = there(&mut cluster, options, &ours).await?;
    let meta = match was.lengthening {
        Some(_) if was.history_ms == history_ms => was,
        Some(_) => return Err(unfinished(&was).into()),
        None if history_ms <= was.history_ms => return Err(long_already(&was).into()),
        None => {
            let meta = was.lengthened(ours.epoch(), history_ms);
            lock.write(&mut cluster, renewing(&Keyspace::new(&options.prefix, meta.clone()), run)).await?;
            meta
        }
    };
    let keyspace = Keyspace::new(&options.prefix, meta);
    let Left { name, owner, noted, before } = left_by(&mut cluster, &lock).await?;
    // A meta key that went back to what it was would make strangers of the shards.
    lock.wait_for_a_replica(&mut cluster).await?;
    let mut rebuild = Rebuild {
        cluster,
        shards: (0..keyspace.meta().layout.shards).collect(),
        keyspace: Arc::new(keyspace),
        run: run.to_owned(),
        marked_at: ours.meta().created_at,
        progress: noted.next,
        first: noted.first,
        beginning: if name == run { Beginning::Fresh } else { Beginning::Resumed },
        purpose: Purpose::Lengthen(name),
        before,
    };
    rebuild.own(owner.as_deref()).await?;
    rebuild.prolong().await?;
    Ok(rebuild)
}

fn unfinished(meta: &Meta) -> StoreError {
    let length = in_settings(meta.history_ms);
    StoreError::Fatal(format!(
        "the history is being made {length} long: finish that first with weir rebuild --history {length}"
    ))
}

fn long_already(meta: &Meta) -> StoreError {
    let length = in_settings(meta.history_ms);
    StoreError::Fatal(format!("the history is {length} long already; only a longer one can be made while weir runs"))
}

fn incomplete() -> StoreError {
    StoreError::Fatal("not all histories are there: run weir rebuild first".to_owned())
}

/// What the keyspace is, whose tables and histories are whole.
async fn there(cluster: &mut Cluster, options: &RedisOptions, ours: &Keyspace) -> Result<Meta, StoreError> {
    let Some((meta, state)) = read_meta(cluster, ours).await? else { return Err(incomplete()) };
    compare_shards(options, &meta)?;
    if state == State::Creating {
        return Err(foreign(ours, "it was not finished when it was made; start a worker, or run weir check --create"));
    }
    let keyspace = Keyspace::new(&options.prefix, meta.clone());
    let found = epochs(cluster, &keyspace).await.map_err(startup)?;
    let is_whole = |epoch: &Option<String>| is_whole(&keyspace, epoch.as_deref());
    let are_whole = are_of(cluster, &keyspace, &[keyspace.commits_key()]).await?
        && tables_are_whole(cluster, &keyspace).await?
        && found.iter().all(is_whole);
    if are_whole { Ok(meta) } else { Err(incomplete()) }
}

/// Whether a shard with this epoch has its history.
fn is_whole(keyspace: &Keyspace, epoch: Option<&str>) -> bool {
    let is_before = |lengthening: &Lengthening| lengthening.is_before(epoch);
    epoch == Some(keyspace.epoch()) || keyspace.meta().lengthening.as_ref().is_some_and(is_before)
}

/// Gives the meta key and the tables beside it their new epoch, at once, and begins the progress.
fn renewing(keyspace: &Keyspace, run: &str) -> Vec<Command> {
    let tables = NameTable::ALL.into_iter().map(|table| table.keys(keyspace)[0]).chain([keyspace.commits_key()]);
    let renewed = tables.map(|key| Command::set_fields(key, [("epoch", keyspace.epoch())]));
    renewed.chain([meta_fields(keyspace)]).chain(begun(keyspace, run)).collect()
}

/// Begins the progress of a lengthening by this name.
fn begun(keyspace: &Keyspace, name: &str) -> [Command; 2] {
    let key = keyspace.rebuild_key();
    [Command::delete([key]), Command::set_fields(key, [(NAME, name), ("run", name)])]
}

/// What is known of the lengthening that a run begins, or goes on with.
struct Left {
    name: String,
    /// The run that had made itself the last run of all shards.
    owner: Option<String>,
    noted: NotedProgress,
    /// Before when its sends were decided.
    before: Option<Time>,
}

/// What the runs before have left. A rebuild in between has taken their progress: then it begins again, by another name.
async fn left_by(cluster: &mut Cluster, lock: &Lock<'_>) -> Result<Left, RebuildError> {
    let Lock { keyspace, run } = lock;
    let fields = left(cluster, keyspace).await?;
    let Some(name) = fields.get(NAME) else {
        lock.write(cluster, begun(keyspace, run).into()).await?;
        return Ok(Left { name: (*run).to_owned(), owner: None, noted: NotedProgress::default(), before: None });
    };
    // Where its lock runs out, this run may take it again.
    lock.write(cluster, vec![Command::set_fields(keyspace.rebuild_key(), [("run", *run)])]).await?;
    let before = fields.get(BEFORE).and_then(|before| Time::from_millis(before.parse().ok()?));
    let owner = fields.get(OWNER).filter(|owner| !owner.is_empty()).cloned();
    Ok(Left { name: name.clone(), owner, noted: NotedProgress::of(&fields), before })
}

/// What the last run of a shard is while this run puts older sends into it.
pub(super) fn owner(keyspace: &Keyspace, run: &str) -> String {
    format!("{}{run}", awaiting(keyspace.meta().complete_ms()))
}

/// What the last run of a shard is that older sends are missing in, where the history was so long before, and no run has begun to put them
/// back.
pub(super) fn awaiting(from_ms: i64) -> String {
    format!("{LENGTHENS}{from_ms}:")
}

/// The lengthening that the last runs of the shards tell of: that of a keyspace whose meta key is gone.
pub(super) async fn told_by_shards(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
) -> Result<Option<Lengthening>, StoreError> {
    let shards = 0..keyspace.meta().layout.shards;
    let read = shards.map(|shard| (keyspace.slot(shard), get(keyspace.last_run_key(shard))));
    let from_ms = |reply| {
        let last_run = redis::from_redis_value::<Option<String>>(reply).ok()??;
        last_run.strip_prefix(LENGTHENS)?.split(':').next()?.parse::<i64>().ok()
    };
    let from_ms = ask_all(cluster, read.collect()).await?.into_iter().filter_map(from_ms).min();
    Ok(from_ms.map(|from_ms| Lengthening { from_ms, epoch_before: String::new() }))
}

impl Rebuild {
    /// Gives every shard the keyspace's epoch, and makes this its last run, each where both are still as they were found. From then on what
    /// a worker does by the shorter history is refused there, and what an earlier run sends. `before` is the run that was the last run of
    /// all of them, as far as known.
    async fn own(&mut self, before: Option<&str>) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let epochs = epochs(&mut self.cluster, &keyspace).await.map_err(startup)?;
        if !epochs.iter().all(|epoch| is_whole(&keyspace, epoch.as_deref())) {
            return Err(incomplete().into());
        }
        let last_runs = self.last_runs().await?;
        // Of a shard that no run had, or that has lost in a failover what the last one did, nothing is known to be put back.
        let before = before.map(|run| owner(&keyspace, run));
        if self.beginning == Beginning::Resumed && !last_runs.iter().all(|run| before.as_ref() == Some(run)) {
            self.begin_again().await?;
        }
        let owner = self.owner();
        let owned = self.shards.iter().zip(epochs).zip(last_runs).map(|((&shard, epoch), last_run)| {
            let epoch_now = Command::set(keyspace.epoch_key(shard), keyspace.epoch());
            (shard, [epoch.unwrap_or_default(), last_run], vec![epoch_now])
        });
        let owned = owned.collect();
        self.take_shards(owned, &owner).await?;
        self.write(vec![Command::set_fields(keyspace.rebuild_key(), [(OWNER, &self.run)])]).await
    }

    /// Begins again, by another name: sends and refunds are read from their beginning.
    async fn begin_again(&mut self) -> Result<(), RebuildError> {
        self.write(begun(&self.keyspace, &self.run).into()).await?;
        self.purpose = Purpose::Lengthen(self.run.clone());
        (self.beginning, self.progress, self.first) = (Beginning::Fresh, BTreeMap::new(), BTreeMap::new());
        self.before = None;
        Ok(())
    }

    /// Has the keys of users live as long as the longer history asks for. One that nothing is written to would expire by the shorter one;
    /// and who writes to it renews it once in a history only.
    async fn prolong(&mut self) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let (owner, lives_ms) = (self.owner(), key_lives_ms(keyspace.meta().history_ms));
        let buckets = keyspace.meta().layout.buckets;
        let mut pieces = Vec::new();
        for &shard in &self.shards {
            pieces.extend((0..buckets).step_by(MAX_KEYS_A_CALL).map(|first| (shard, first)));
        }
        for pieces in pieces.chunks(CALLS_A_RENEWAL) {
            let call = |&(shard, first): &(u16, u32)| {
                let keys = (first..buckets).take(MAX_KEYS_A_CALL).map(|bucket| keyspace.bucket_key(shard, bucket));
                let expire: Vec<Command> = keys.map(|key| Command::expire(key, lives_ms)).collect();
                (keyspace.slot(shard), guarded(&[(keyspace.last_run_key(shard), &owner)], &expire))
            };
            let replies = ask_all(&mut self.cluster, pieces.iter().map(call).collect()).await?;
            if replies.into_iter().any(|reply| first_found(reply) != owner) {
                return Err(RebuildError::TakenOver);
            }
            // The lock would run out.
            self.write(Vec::new()).await?;
        }
        Ok(())
    }

    /// The sends that were decided before this time are to be put back: younger ones are there. `now` is the clock, read after the begin:
    /// until then the shorter history was trimmed. It is noted, so that runs that go on with this one put the same sends back, and none
    /// after its refund was taken.
    pub async fn lengthens_before(&mut self, now: Time) -> Result<Time, RebuildError> {
        if let Some(before) = self.before {
            return Ok(before);
        }
        let before = now.plus(CLOCKS_DIFFER_MS - self.keyspace.meta().complete_ms());
        let note = Command::set_fields(self.keyspace.rebuild_key(), [(BEFORE, before.millis().to_string())]);
        self.write(vec![note]).await?;
        self.before = Some(before);
        Ok(before)
    }

    /// Notes that all older sends are there, so that caps may look back to them.
    ///
    /// # Errors
    /// Redis is unavailable, a shard has lost its history, or another run has taken over: run it again.
    pub async fn lengthened(mut self) -> Result<(), RebuildError> {
        let done = self.end().await;
        self.leave().await;
        done
    }

    async fn end(&mut self) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let owner = self.owner();
        // The shards first: they speak for the meta key only where that is gone.
        let disown = self.shards.iter().map(|&shard| {
            let run_key = keyspace.last_run_key(shard);
            let guards = [(keyspace.epoch_key(shard), keyspace.epoch()), (run_key.clone(), owner.as_str())];
            (keyspace.slot(shard), guarded(&guards, &[Command::set(run_key, &self.run)]))
        });
        for reply in ask_all(&mut self.cluster, disown.collect()).await? {
            let found = found(reply);
            // The plain name: a reply was lost.
            if found.get(1).is_none_or(|last_run| *last_run != owner && *last_run != self.run) {
                return Err(RebuildError::TakenOver);
            }
            if found.first().is_none_or(|epoch| epoch != keyspace.epoch()) {
                return Err(incomplete().into());
            }
        }
        // Before the end: where this run is killed, another one comes to them.
        self.forget_marks().await?;
        let done =
            [Command::set_fields(keyspace.meta_key(), [(LENGTHENING, "")]), Command::delete([keyspace.rebuild_key()])];
        self.write(done.into()).await
    }

    /// Deletes how far refunds were taken for lengthenings, this one and those that were begun before it.
    async fn forget_marks(&mut self) -> Result<(), RebuildError> {
        let keyspace = Arc::clone(&self.keyspace);
        let read = self
            .shards
            .iter()
            .map(|&shard| (keyspace.slot(shard), Request::plain("HGETALL", keyspace.marks_key(shard))));
        let all = ask_all(&mut self.cluster, read.collect()).await?;
        let mut forget = Vec::new();
        for (&shard, marks) in self.shards.iter().zip(all) {
            let marks: HashMap<String, String> = redis::from_redis_value(marks).unwrap_or_default();
            let fields: Vec<String> = marks.into_keys().filter(|field| field.contains(MARKED)).collect();
            for fields in fields.chunks(MAX_KEYS_A_CALL) {
                let command = Command::delete_fields(keyspace.marks_key(shard), fields.iter().cloned());
                let guard = (keyspace.last_run_key(shard), self.run.as_str());
                forget.push((keyspace.slot(shard), guarded(&[guard], &[command])));
            }
        }
        ask_all(&mut self.cluster, forget).await?;
        Ok(())
    }
}

/// The topic by which a run marks how far it has taken refunds: a lengthening takes each once, whatever was taken when it was published.
pub(super) fn marked(topic: &Topic, purpose: &Purpose) -> Topic {
    match purpose {
        Purpose::Restore => topic.clone(),
        Purpose::Lengthen(name) => Topic { name: format!("{}{MARKED}{name}", topic.name).into(), id: topic.id },
    }
}
