//! Finds the keyspace of a Redis, makes it where there is none, and looks at the servers.

use std::{collections::HashMap, sync::Arc};

use weir_core::{
    basis::time::Time,
    ports::{StoreError, in_short},
};

use super::{
    cluster::Cluster,
    keyspace::{Keyspace, Meta, State},
    node::Request,
    options::{Absent, RedisOptions, WhenMissing},
    request_error::RequestError,
    script::Script,
    servers,
    stats::{RedisStats, RetryCause},
};

#[derive(Debug, Clone)]
pub struct Opened {
    pub keyspace: Arc<Keyspace>,
    /// Shards whose history is gone, ascending: their sends wait until it is restored.
    pub lost: Vec<u16>,
    /// What works, but should be changed; each says what to do.
    pub warnings: Vec<String>,
}

/// What a keyspace gets that cannot be read off the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceSeed {
    /// A text that no other keyspace has: random, at most 64 bytes.
    pub epoch: String,
    pub now: Time,
}

/// Finds the keyspace under the options' prefix and verifies it; where there is none, makes it or says so.
///
/// Two workers may do this at once, and one that stopped half way is followed up by the next: the meta key is
/// written first, by one of them, as "creating"; whoever finds it so gives every shard that has none the meta's
/// epoch, and then calls it "ready". Nobody uses a keyspace before that.
///
/// # Errors
/// [`StoreError::Temporary`] where Redis is unavailable; [`StoreError::Fatal`] where something must be changed: another
/// number of shards, history or format, keys of something else, keys without their meta key, a server that may
/// evict, no permission.
pub async fn open(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    when_missing: WhenMissing,
    keyspace_seed: KeyspaceSeed,
) -> Result<Opened, StoreError> {
    let mut cluster = Cluster::new(options, stats);
    let ours = Keyspace::from_seed(options, keyspace_seed);
    let found = find(&mut cluster, &ours, when_missing).await?;
    let mut warnings = servers::check(&mut cluster).await?;
    let (meta, state) = match found {
        Some(found) => found,
        None => claim(&mut cluster, &ours).await?,
    };
    warnings.extend(compare_history(options, &meta)?);
    let keyspace = Keyspace::new(&options.prefix, meta);
    if state == State::Creating {
        if when_missing == WhenMissing::Refuse {
            return Err(StoreError::Fatal(format!(
                "{}: the keyspace was not finished when it was made; start a worker or run weir check --create",
                keyspace.meta_key()
            )));
        }
        finish(&mut cluster, &keyspace).await?;
    }
    let (lost, absent) = lost_shards(&mut cluster, &keyspace).await.map_err(startup)?;
    if !absent.is_empty() {
        warnings.push(format!(
            "shards {} of Redis do not answer: starting without them; their intents wait, or go by on_unavailable",
            in_short(&absent)
        ));
    }
    Ok(Opened { keyspace: Arc::new(keyspace), lost, warnings })
}

#[derive(Debug, Clone)]
pub struct Looked {
    /// The keyspace; `None` where the next start has to make it, or to finish it.
    pub keyspace: Option<Opened>,
    /// What works, but should be changed; each says what to do.
    pub warnings: Vec<String>,
}

/// Looks at the servers and for the keyspace as [`open`] does, and changes nothing.
pub async fn look(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    keyspace_seed: KeyspaceSeed,
) -> Result<Looked, StoreError> {
    let mut cluster = Cluster::new(options, stats);
    // Only `claim` would make it.
    let found = find(&mut cluster, &Keyspace::from_seed(options, keyspace_seed), WhenMissing::Create).await?;
    let mut warnings = servers::check(&mut cluster).await?;
    let Some((meta, state)) = found else { return Ok(Looked { keyspace: None, warnings }) };
    warnings.extend(compare_history(options, &meta)?);
    let keyspace = match state {
        State::Creating => None,
        State::Ready => {
            let keyspace = Arc::new(Keyspace::new(&options.prefix, meta));
            let (lost, _) = lost_shards(&mut cluster, &keyspace).await.map_err(startup)?;
            Some(Opened { keyspace, lost, warnings: Vec::new() })
        }
    };
    Ok(Looked { keyspace, warnings })
}

/// The meta key that is there, or `None` where there is nothing at all and it may be made.
async fn find(
    cluster: &mut Cluster,
    ours: &Keyspace,
    when_missing: WhenMissing,
) -> Result<Option<(Meta, State)>, StoreError> {
    if let Some(found) = read_meta(cluster, ours).await? {
        return Ok(Some(found));
    }
    let shards = ours.meta().layout.shards;
    let present = epochs(cluster, ours).await.map_err(startup)?.iter().flatten().count();
    if present > 0 {
        // Another worker may have made it since.
        if let Some(found) = read_meta(cluster, ours).await? {
            return Ok(Some(found));
        }
        return Err(StoreError::Fatal(format!(
            "{} is gone, though {present} of {shards} shards have their epoch: the node that held it has lost its data. \
             Repair it from the approved topic with weir rebuild",
            ours.meta_key()
        )));
    }
    if when_missing == WhenMissing::Refuse {
        return Err(StoreError::Fatal(format!(
            "{}: there is no keyspace here. The first start of a group makes it; where the group has decided intents \
             before, its histories are lost: restore them with weir rebuild --all, or make an empty keyspace with weir check \
             --create --accept-lost-history (every user can then be written to as if for the first time)",
            ours.meta_key()
        )));
    }
    Ok(None)
}

pub(super) async fn read_meta(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<Option<(Meta, State)>, StoreError> {
    match cluster.ask(keyspace.meta_slot(), Request::plain("HGETALL", keyspace.meta_key())).await {
        Ok(value) => parse_meta(keyspace, value),
        Err(error) if error.message.starts_with("WRONGTYPE") => Err(foreign(keyspace, &error.message)),
        Err(error) => Err(startup(error)),
    }
}

fn parse_meta(keyspace: &Keyspace, value: redis::Value) -> Result<Option<(Meta, State)>, StoreError> {
    let fields: HashMap<String, String> =
        redis::from_redis_value(value).map_err(|error| foreign(keyspace, &error.to_string()))?;
    if fields.is_empty() {
        return Ok(None);
    }
    Meta::of_fields(&fields).map(Some).map_err(|reason| foreign(keyspace, &reason))
}

pub(super) fn foreign(keyspace: &Keyspace, reason: &str) -> StoreError {
    StoreError::Fatal(format!(
        "{} is not a keyspace of this weir: {reason}. Give redis.prefix another value, or use the weir that made it",
        keyspace.meta_key()
    ))
}

/// Writes the meta key as "creating", unless another worker was first; gives what is there then.
async fn claim(cluster: &mut Cluster, ours: &Keyspace) -> Result<(Meta, State), StoreError> {
    let fields = ours.meta().to_fields(State::Creating);
    let args = fields.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let request = Request::call(Script::Create, vec![ours.meta_key().to_owned()], args);
    let value = cluster.ask(ours.meta_slot(), request).await.map_err(startup)?;
    parse_meta(ours, value)?.ok_or_else(|| foreign(ours, "it is empty after it was written"))
}

pub(super) fn compare(options: &RedisOptions, meta: &Meta) -> Result<(), StoreError> {
    compare_shards(options, meta)?;
    if meta.history_ms < options.history_ms {
        if meta.lengthening.is_some() {
            return Err(not_all_there(options, meta));
        }
        let (ours, theirs) = (in_settings(options.history_ms), in_settings(meta.history_ms));
        return Err(StoreError::Fatal(format!(
            "redis.history is {ours}, but the keyspace {:?} remembers {theirs}: set it to {theirs}, or make the history longer \
             with weir rebuild --history {ours}, which needs no stop",
            options.prefix
        )));
    }
    Ok(())
}

pub(super) fn compare_shards(options: &RedisOptions, meta: &Meta) -> Result<(), StoreError> {
    if meta.layout.shards == options.shards {
        return Ok(());
    }
    let (ours, theirs) = (options.shards, meta.layout.shards);
    Err(StoreError::Fatal(format!(
        "redis.shards is {ours}, but the keyspace {:?} was made with {theirs}, and that is fixed: set it to {theirs}, or make a \
         new, empty keyspace with another redis.prefix",
        options.prefix
    )))
}

/// Fails where the keyspace is of another shape, or the history that is set is not all there yet; a warning where a longer one is not, or where the keyspace remembers for
/// longer.
fn compare_history(options: &RedisOptions, meta: &Meta) -> Result<Option<String>, StoreError> {
    compare(options, meta)?;
    let [ours, complete, theirs] = [options.history_ms, meta.complete_ms(), meta.history_ms].map(in_settings);
    if meta.complete_ms() < options.history_ms {
        return Err(not_all_there(options, meta));
    }
    if meta.lengthening.is_some() {
        return Ok(Some(format!(
            "the history is being made {theirs} long, and sends that are older than {complete} are not all there: where no weir \
             rebuild is at work, run weir rebuild --history {theirs} again"
        )));
    }
    let is_longer = options.history_ms < meta.complete_ms();
    Ok(is_longer.then(|| {
        format!(
            "redis.history is {ours}, and the keyspace remembers {complete}: set redis.history = \"{complete}\" for caps that look \
             back further"
        )
    }))
}

fn not_all_there(options: &RedisOptions, meta: &Meta) -> StoreError {
    let [ours, complete, theirs] = [options.history_ms, meta.complete_ms(), meta.history_ms].map(in_settings);
    StoreError::Fatal(format!(
        "redis.history is {ours}, but the history of the keyspace {:?} is not all there yet: finish weir rebuild --history \
         {theirs}, and set redis.history to {complete} until then",
        options.prefix
    ))
}

/// A length of time as settings have it.
pub(super) fn in_settings(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(unit_ms, _)| ms % unit_ms == 0);
    let (unit_ms, name) = unit.unwrap_or((1, "ms"));
    format!("{}{name}", ms / unit_ms)
}

/// Gives every shard and table the epoch, and calls the keyspace ready.
async fn finish(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<(), StoreError> {
    let shards = 0..keyspace.meta().layout.shards;
    let mut requests: Vec<(u16, Request)> = shards
        .map(|shard| {
            let set = Request::plain("SET", (keyspace.epoch_key(shard), keyspace.epoch(), "NX"));
            (keyspace.slot(shard), set)
        })
        .collect();
    for table in [keyspace.kinds_key(), keyspace.campaigns_key(), keyspace.commits_key()] {
        requests.push((keyspace.meta_slot(), Request::plain("HSETNX", (table, "epoch", keyspace.epoch()))));
    }
    for reply in cluster.ask_all(requests).await {
        reply.map_err(startup)?;
    }
    let (others, _) = lost_shards(cluster, keyspace).await.map_err(startup)?;
    if !others.is_empty() {
        return Err(StoreError::Fatal(format!(
            "shards {others:?} under redis.prefix hold another keyspace's epoch, so {} cannot be made: give \
             redis.prefix another value, or delete the keys that are left over",
            keyspace.meta_key()
        )));
    }
    let ready = Request::plain("HSET", (keyspace.meta_key(), "state", State::Ready.text()));
    cluster.ask(keyspace.meta_slot(), ready).await.map_err(startup)?;
    Ok(())
}

pub(super) async fn epochs(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<Vec<Option<String>>, RequestError> {
    ask_epochs(cluster, keyspace, 0..keyspace.meta().layout.shards).await.into_iter().collect()
}

/// The epoch of each of these shards, in their order; none where there is none.
pub(super) async fn ask_epochs(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    shards: impl IntoIterator<Item = u16>,
) -> Vec<Result<Option<String>, RequestError>> {
    let requests = shards.into_iter().map(|shard| (keyspace.slot(shard), get(keyspace.epoch_key(shard))));
    let replies = cluster.ask_all(requests.collect()).await;
    replies.into_iter().map(|reply| Ok(redis::from_redis_value(reply?).ok())).collect()
}

pub(super) fn get(key: String) -> Request {
    Request::plain("GET", key)
}

/// Shards by what they answer when they are asked for their epoch.
#[derive(Default)]
pub(super) struct ShardEpochs {
    /// With the keyspace's epoch.
    pub(super) whole: Vec<u16>,
    /// With no epoch, or another one.
    pub(super) lost: Vec<u16>,
    /// Without an answer, and why.
    pub(super) silent: Vec<(u16, RequestError)>,
}

/// Asks these shards for their epochs.
pub(super) async fn look_at_epochs(cluster: &mut Cluster, keyspace: &Keyspace, shards: Vec<u16>) -> ShardEpochs {
    let mut found = ShardEpochs::default();
    let epochs = ask_epochs(cluster, keyspace, shards.iter().copied()).await;
    for (shard, epoch) in shards.into_iter().zip(epochs) {
        match epoch {
            Ok(Some(epoch)) if epoch == keyspace.epoch() => found.whole.push(shard),
            Ok(_) => found.lost.push(shard),
            Err(error) => found.silent.push((shard, error)),
        }
    }
    found
}

/// Shards without this keyspace's epoch; and shards that do not answer, where that is allowed.
async fn lost_shards(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<(Vec<u16>, Vec<u16>), RequestError> {
    let all = (0..keyspace.meta().layout.shards).collect();
    let ShardEpochs { lost, silent, .. } = look_at_epochs(cluster, keyspace, all).await;
    let may_be_absent = |error: &RequestError| !error.is_final() && cluster.options().absent == Absent::Leave;
    let absent = silent.into_iter().map(|(shard, error)| if may_be_absent(&error) { Ok(shard) } else { Err(error) });
    Ok((lost, absent.collect::<Result<_, _>>()?))
}

/// The keyspace with which a rebuild has replaced this one: that under its name, where it is another one that is ready and of the same
/// shape.
pub(super) async fn renewed(cluster: &mut Cluster, ours: &Arc<Keyspace>) -> Option<Arc<Keyspace>> {
    let (meta, state) = read_meta(cluster, ours).await.ok()??;
    let ready = state == State::Ready && meta.epoch != ours.epoch();
    if !ready || compare(cluster.options(), &meta).is_err() {
        return None;
    }
    tracing::warn!("a rebuild has recreated the keyspace or made its history longer: weir now uses it");
    Some(Arc::new(Keyspace::new(&cluster.options().prefix, meta)))
}

fn advice(message: &str) -> &'static str {
    let lower = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["certificate", "alert", "handshake"]) {
        "Check redis.ca_file, and redis.cert_file and redis.key_file where the server asks for a certificate"
    } else if says(&["password", "wrongpass", "noauth", "authentication"]) {
        "Check redis.username and redis.password, or with redis.aws_iam_cluster the rights and the clock (docs/clouds.md)"
    } else if says(&["noperm", "no permissions", "acl failure"]) {
        "Give the ACL user what docs/security.md lists: each command with +, and the keys with ~ and redis.prefix"
    } else {
        "Check redis.nodes, and that nothing else uses the keys of redis.prefix"
    }
}

/// At the start, what asking again cannot mend ends the start.
pub(super) fn startup(error: RequestError) -> StoreError {
    if !error.is_final() {
        return StoreError::Temporary(format!("Redis cannot answer now: {error}"));
    }
    let is_lost = error.cause == RetryCause::LostHistory;
    let advice = if is_lost { String::new() } else { format!(". {}", advice(&error.message)) };
    StoreError::Fatal(format!("Redis refused: {error}{advice}"))
}
