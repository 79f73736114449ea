//! Shared by the tests of the stores: keyspaces of their own, and short forms of batches.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{sync::Arc, time::Duration};

use testkit::{proxy::Proxy, redis::RedisServer, unique};
use weir_core::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
        window::Window,
    },
    history::{
        admit::{AdmitBatch, AdmitRequest, CapQuery},
        decide::{AdmitVerdict, Answer, RecordWhen, Scope},
    },
    intent::class::{ClassNames, Filter},
    ports::{Store, StoreError},
};
use weir_redis::{
    Keyspace, KeyspaceSeed, Opened, RedisOptions, RedisStats, RedisStore, WhenMissing, open, rebuild::RebuildError,
};

/// 2026-11-20T00:00:00Z.
pub const START_MS: i64 = 1_795_132_800_000;
pub const DAY_MS: i64 = 24 * 3600 * 1000;

/// How long [`patiently`] waits before it asks again.
const PAUSE: Duration = Duration::from_millis(2);

/// The clock of most tests, moved.
pub fn at(millis: i64) -> Time {
    Time::default().plus(START_MS + millis)
}

/// Options for a keyspace of its own: few shards and keys, so that users share keys.
pub fn options<S: AsRef<str>>(urls: &[S]) -> RedisOptions {
    let mut options = RedisOptions::for_urls(urls).unwrap();
    options.prefix = unique("t");
    options.shards = 16;
    options.users = 16 * 24 * 2;
    options.response_timeout = Duration::from_millis(1500);
    options
}

/// A server of one's own, to be broken.
pub fn server() -> RedisServer {
    RedisServer::start::<&str>(&[]).unwrap()
}

/// Options for a keyspace on such a server.
pub fn own(server: &RedisServer) -> RedisOptions {
    options(&[server.url()])
}

/// Creates or opens the keyspace.
pub async fn opened(options: &RedisOptions) -> Result<Opened, StoreError> {
    let keyspace_seed = KeyspaceSeed { epoch: unique("epoch"), now: at(0) };
    open(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), WhenMissing::Create, keyspace_seed).await
}

pub async fn own_keyspace() -> (RedisServer, RedisOptions, Opened) {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    (server, options, opened)
}

pub fn store(options: &RedisOptions, opened: &Opened) -> RedisStore {
    RedisStore::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened)
}

/// Keyspace and store in one.
pub async fn fresh_store(options: &RedisOptions) -> RedisStore {
    store(options, &opened(options).await.unwrap())
}

pub async fn own_store() -> (RedisServer, RedisStore) {
    let server = server();
    let store = fresh_store(&own(&server)).await;
    (server, store)
}

pub async fn two_stores(options: &RedisOptions) -> (RedisStore, RedisStore) {
    let opened = opened(options).await.unwrap();
    (store(options, &opened), store(options, &opened))
}

/// A proxy before a server, and options for a keyspace behind it.
pub async fn behind_proxy(url: &str) -> (Proxy, RedisOptions) {
    let target = url.trim_start_matches("redis://").to_owned();
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&target).unwrap()).await.unwrap();
    let options = options(&[format!("redis://{}", proxy.address())]);
    (proxy, options)
}

/// Where a user's history is: key and field.
pub fn place_of(keyspace: &Keyspace, user: UserHash) -> (String, Vec<u8>) {
    let place = keyspace.meta().layout.place(user);
    (keyspace.bucket_key(place.shard, place.bucket), place.field.to_bytes())
}

pub fn shard_of(keyspace: &Keyspace, user: &str) -> u16 {
    keyspace.meta().layout.place(UserHash::of(user)).shard
}

/// A user whose shard is another one.
pub fn of_another_shard(keyspace: &Keyspace, user: &str) -> String {
    (0..).map(|other| format!("v{other}")).find(|other| shard_of(keyspace, other) != shard_of(keyspace, user)).unwrap()
}

/// A sliding cap on everything.
pub fn cap(limit: u32, length_ms: i64) -> CapQuery {
    CapQuery { window: Window::Sliding { length_ms }, limit, filter: Arc::new(Filter::default()), scope: Scope::Every }
}

/// The same on this channel, a day long.
pub fn on_channel(limit: u32, channel: &str) -> CapQuery {
    let filter = Arc::new(Filter { channels: Some([channel.to_owned()].into()), categories: None });
    CapQuery { filter, ..cap(limit, DAY_MS) }
}

/// A send of cost 1 without a class; its origin is its number.
pub fn request(user: &str, number: u32) -> AdmitRequest<'static> {
    AdmitRequest {
        user: UserHash::of(user),
        id: IdHash::of(&format!("i-{number}")),
        origin: OriginMark(number & 0x00FF_FFFF),
        class: ClassNames::default(),
        cost: 1,
        cap_set: 0,
        record: RecordWhen::IfAllowed,
    }
}

pub fn batch<'a>(now: Time, caps: &[CapQuery], requests: Vec<AdmitRequest<'a>>) -> AdmitBatch<'a> {
    AdmitBatch { now, cap_sets: vec![caps.to_vec()], requests }
}

/// Asks for a whole batch once.
pub async fn admit<S: Store>(store: &mut S, batch: &AdmitBatch<'_>) -> (Vec<Option<Answer>>, Result<(), StoreError>) {
    let mut answers = vec![None; batch.requests.len()];
    let result = store.admit(batch, &mut answers).await;
    (answers, result)
}

/// Asks again until there is an answer; `None` without one by the deadline.
pub async fn patiently<T>(deadline: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            // A refusal may be there at once.
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(deadline, answer).await.ok()
}

/// Asks until every send is answered, as the worker does, for at most a minute. A store that is too slow for all keeps what it
/// has answered.
pub async fn admit_all<S: Store>(store: &mut S, batch: &AdmitBatch<'_>) -> Vec<Answer> {
    let mut answers = vec![None; batch.requests.len()];
    let mut said = None;
    let done = patiently(Duration::from_secs(60), async || match store.admit(batch, &mut answers).await {
        Ok(()) => Some(()),
        Err(StoreError::Temporary(message) | StoreError::NotRecorded(message) | StoreError::TooSlow(message)) => {
            said = Some(message);
            None
        }
        Err(error) => panic!("{error}"),
    });
    let done = done.await;
    assert!(done.is_some(), "no answers within a minute; last: {said:?}");
    answers.into_iter().map(Option::unwrap).collect()
}

/// What an error says that does not end by itself.
#[track_caller]
pub fn fatal<T>(result: Result<T, impl Into<RebuildError>>) -> String {
    match result.map(drop).map_err(Into::into) {
        Err(RebuildError::Store(StoreError::Fatal(message))) => message,
        other => panic!("not fatal: {other:?}"),
    }
}

/// What an error says that may be over soon.
#[track_caller]
pub fn temporary<T>(result: Result<T, StoreError>) -> String {
    match result.map(drop) {
        Err(StoreError::Temporary(message)) => message,
        other => panic!("not temporary: {other:?}"),
    }
}

/// What an error says that may be over soon, where nothing that has no answer was recorded.
#[track_caller]
pub fn not_recorded<T>(result: Result<T, StoreError>) -> String {
    match result.map(drop) {
        Err(StoreError::NotRecorded(message)) => message,
        other => panic!("it may be recorded: {other:?}"),
    }
}

/// The shards that have lost their history, and what the error says.
#[track_caller]
pub fn lost<T>(result: Result<T, StoreError>) -> (Vec<u16>, String) {
    match result.map(drop) {
        Err(StoreError::LostHistory { shards, message }) => (shards, message),
        other => panic!("nothing is lost: {other:?}"),
    }
}

/// How many of the answers approve their send, now or before.
pub fn sent(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| matches!(answer.verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed)).count()
}
