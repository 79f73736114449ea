//! Reads a user's history: one call of `lua/history.lua`, and the names that its numbers stand for.

use weir_core::{
    basis::shard::{Place, UserHash},
    history::{Entry, named::NamedHistory, unpack},
    ports::StoreError,
};

use super::{
    cluster::{Cluster, Routed},
    keyspace::Keyspace,
    names::Names,
    node::Request,
    open::get,
    request_error::{RequestError, lost_history},
    script::Script,
    stats::RetryCause,
};

/// The history of a user, named. One round trip, and one more for names that this lane has not met.
pub(super) async fn named_history(
    user: UserHash,
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    names: &mut Names,
) -> Result<NamedHistory, StoreError> {
    let place = keyspace.meta().layout.place(user);
    let failed = |error| failed(error, place.shard);
    let packed = read(place, cluster, keyspace).await.map_err(failed)?;
    let entries: Vec<Entry> = unpack(&packed)
        .map_err(|torn| StoreError::Fatal(format!("{}: {torn}", keyspace.bucket_key(place.shard, place.bucket))))?;
    let (kinds, campaigns) = names.name(&entries, cluster, keyspace).await.map_err(failed)?;
    Ok(NamedHistory { entries, kinds, campaigns, retention_ms: keyspace.meta().history_ms })
}

/// Deletes the history of a user, and gives how many entries it had. One round trip.
pub(super) async fn forget(user: UserHash, cluster: &mut Cluster, keyspace: &Keyspace) -> Result<u64, StoreError> {
    let place = keyspace.meta().layout.place(user);
    let keys = vec![keyspace.epoch_key(place.shard), keyspace.bucket_key(place.shard, place.bucket)];
    let args = [keyspace.epoch().as_bytes().to_vec(), place.field.to_bytes()];
    let request = Request::call(Script::Forget, keys, args);
    let reply = cluster.ask(keyspace.slot(place.shard), request).await;
    let torn = |_| cluster.torn("the number of entries");
    let count = reply.and_then(|value| redis::from_redis_value(value).map_err(torn));
    count.map_err(|error| failed(error, place.shard))
}

fn failed(error: RequestError, shard: u16) -> StoreError {
    let message = error.to_string();
    if error.cause == RetryCause::LostHistory {
        return lost_history(vec![shard], &message);
    }
    if error.is_final() { StoreError::Fatal(message) } else { StoreError::Temporary(message) }
}

async fn read(place: Place, cluster: &mut Cluster, keyspace: &Keyspace) -> Result<Vec<u8>, RequestError> {
    let slot = keyspace.slot(place.shard);
    let request = call(vec![keyspace.epoch_key(place.shard)], keyspace.epoch(), place, keyspace);
    let first = cluster.round(vec![Routed { slot, detour: None, request: request.clone() }]).await.pop();
    let value = match first {
        Some(Ok(value)) => value,
        Some(Err(error)) if matches!(error.cause, RetryCause::Ask | RetryCause::TryAgain) => {
            return read_moving(place, cluster, keyspace).await;
        }
        Some(Err(_)) | None => cluster.ask(slot, request).await?,
    };
    history_in(value, cluster)
}

/// In a slot that is moving, epoch and history may be on different nodes: each is read by itself. The epoch comes
/// last: where it is there then, its history was there before.
async fn read_moving(place: Place, cluster: &mut Cluster, keyspace: &Keyspace) -> Result<Vec<u8>, RequestError> {
    let slot = keyspace.slot(place.shard);
    let value = cluster.ask(slot, call(Vec::new(), "", place, keyspace)).await?;
    let epoch = cluster.ask(slot, get(keyspace.epoch_key(place.shard))).await?;
    let epoch: Option<String> = redis::from_redis_value(epoch).ok();
    if epoch.as_deref() != Some(keyspace.epoch()) {
        return Err(RequestError::lost("the epoch is gone or another"));
    }
    history_in(value, cluster)
}

fn call(mut keys: Vec<String>, epoch: &str, place: Place, keyspace: &Keyspace) -> Request {
    keys.push(keyspace.bucket_key(place.shard, place.bucket));
    Request::call(Script::History, keys, [epoch.as_bytes().to_vec(), place.field.to_bytes()])
}

fn history_in(value: redis::Value, cluster: &Cluster) -> Result<Vec<u8>, RequestError> {
    redis::from_redis_value(value).map_err(|_| cluster.torn("the history of a user"))
}
