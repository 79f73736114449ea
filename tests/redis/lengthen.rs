//! A history is made longer only where all of it is there, and what is not all there yet is never taken for it.

use std::sync::Arc;

use crate::redis_support::{DAY_MS, admit, at, batch, cap, opened, own, request, server, store};
use testkit::{redis::RedisServer, unique};
use weir_core::{
    decide::AdmitVerdict,
    found_names::FoundNames,
    ports::{Histories as _, StoreError},
    shard::UserHash,
};
use weir_redis::{
    Keyspace, KeyspaceSeed, RedisOptions, RedisStats,
    rebuild::{Beginning, Rebuild, RebuildError, Scope, begin, begin_lengthening, begin_names, kept_history},
};

const HOUR_MS: i64 = 3_600_000;

fn stats() -> Arc<RedisStats> {
    Arc::default()
}

fn seed() -> KeyspaceSeed {
    KeyspaceSeed { epoch: unique("epoch"), now: at(0) }
}

/// The options with a history that is four times as long.
fn longer(options: &RedisOptions) -> RedisOptions {
    RedisOptions { history_ms: 4 * options.history_ms, ..options.clone() }
}

async fn lengthening(options: &RedisOptions) -> Result<Rebuild, RebuildError> {
    let (asked, history_ms) = (Arc::new(options.clone()), longer(options).history_ms);
    begin_lengthening(&asked, &stats(), history_ms, unique("run"), seed()).await
}

/// The text of a fatal error.
fn fatal<T>(result: Result<T, RebuildError>) -> String {
    match result {
        Err(RebuildError::Store(StoreError::Fatal(message))) => message,
        Err(other) => panic!("not fatal: {other:?}"),
        Ok(_) => panic!("not fatal: it is done"),
    }
}

/// Loses the meta key and the tables beside it.
fn lose_tables(server: &RedisServer, keyspace: &Keyspace) {
    let tables = [
        keyspace.meta_key(),
        keyspace.kinds_key(),
        keyspace.kind_names_key(),
        keyspace.campaigns_key(),
        keyspace.campaign_names_key(),
        keyspace.commits_key(),
        &keyspace.rebuild_key(),
    ];
    server.query::<()>(&[&["DEL"], tables.as_slice()].concat()).unwrap();
}

/// Restores them, as `weir rebuild` does.
async fn restore_tables(options: &Arc<RedisOptions>) {
    let scope = Scope::Lost;
    let mut repair = begin_names(options, &stats(), &scope, unique("run"), seed()).await.unwrap().unwrap();
    repair.pause().await.unwrap();
    repair.finish(&FoundNames::default()).await.unwrap();
    let mut rebuild = begin(options, &stats(), &scope, unique("run"), seed()).await.unwrap();
    assert!(rebuild.shards().is_empty(), "{:?}", rebuild.shards());
    rebuild.restore_commits(&[]).await.unwrap();
    rebuild.leave().await;
}

#[tokio::test]
async fn all_runs_put_back_what_was_trimmed_until_the_shards_had_the_longer_history() {
    let server = server();
    let options = own(&server);
    opened(&options).await.unwrap();
    // It was frozen for five hours before it came to the shards.
    let mut first = lengthening(&options).await.unwrap();
    assert_eq!(first.beginning(), Beginning::Fresh);
    let before = first.lengthens_before(at(5 * HOUR_MS)).await.unwrap();
    assert!(before > at(5 * HOUR_MS - options.history_ms), "{before}");
    first.leave().await;
    let mut second = lengthening(&options).await.unwrap();
    assert_eq!(second.beginning(), Beginning::Resumed);
    assert_eq!(second.lengthens_before(at(9 * HOUR_MS)).await.unwrap(), before, "none is put back after its refund");
    second.lengthened(&[]).await.unwrap();
    assert!(fatal(lengthening(&options).await).contains("32d long already"));
}

#[tokio::test]
async fn decisions_go_on_and_a_longer_history_is_used_only_when_it_is_whole() {
    let server = server();
    let options = own(&server);
    let found = opened(&options).await.unwrap();
    // Of a lane that knows the keyspace as it was.
    let mut lane = store(&options, &found);
    let mut verdict = async |number: u32, now: i64| {
        let asked = batch(at(now), &[cap(2, DAY_MS)], vec![request("u", number)]);
        let (answers, result) = admit(&mut lane, &asked).await;
        result.unwrap();
        answers[0].unwrap().verdict
    };
    assert_eq!(verdict(1, 0).await, AdmitVerdict::Allowed);
    let rebuild = lengthening(&options).await.unwrap();
    assert_eq!(verdict(1, 1).await, AdmitVerdict::Replayed);
    assert_eq!(verdict(2, 2).await, AdmitVerdict::Allowed);
    assert!(matches!(verdict(3, 3).await, AdmitVerdict::Denied { .. }));

    let half = opened(&options).await.unwrap();
    assert!(half.warnings.iter().any(|said| said.contains("weir rebuild --history 32d")), "{:?}", half.warnings);
    match opened(&longer(&options)).await {
        Err(StoreError::Fatal(message)) => assert!(message.contains("not all there yet"), "{message}"),
        other => panic!("{other:?}"),
    }
    rebuild.lengthened(&[]).await.unwrap();
    let whole = opened(&longer(&options)).await.unwrap();
    assert_eq!(whole.lost, Vec::<u16>::new());
    assert!(!whole.warnings.iter().any(|said| said.contains("redis.history")), "{:?}", whole.warnings);
    let history = store(&options, &whole).history_of(UserHash::of("u")).await.unwrap();
    assert_eq!(history.entries.len(), 2);
}

#[tokio::test]
async fn nothing_is_made_longer_while_a_part_of_it_is_lost() {
    let server = server();
    let options = own(&server);
    let keyspace = opened(&options).await.unwrap().keyspace;
    let meta = || server.query::<Vec<String>>(&["HGETALL", keyspace.meta_key()]).unwrap();
    let was = meta();
    let epoch_key = keyspace.epoch_key(3);
    server.query::<()>(&["DEL", &epoch_key]).unwrap();
    assert!(fatal(lengthening(&options).await).contains("weir rebuild first"));
    server.query::<()>(&["SET", &epoch_key, keyspace.epoch()]).unwrap();
    // A table of commits that is gone would look whole under a new epoch.
    server.query::<()>(&["DEL", keyspace.commits_key()]).unwrap();
    assert!(fatal(lengthening(&options).await).contains("weir rebuild first"));
    assert_eq!(server.query::<u64>(&["EXISTS", keyspace.commits_key()]).unwrap(), 0);
    assert_eq!(meta(), was);
}

#[tokio::test]
async fn a_lost_meta_key_comes_back_with_what_the_shards_know() {
    let server = server();
    let options = Arc::new(own(&server));
    let keyspace = opened(&options).await.unwrap().keyspace;
    lengthening(&options).await.unwrap().leave().await;
    lose_tables(&server, &keyspace);
    assert_eq!(kept_history(&options, &stats()).await.unwrap(), longer(&options).history_ms);
    restore_tables(&options).await;
    // Half way is half way.
    match opened(&longer(&options)).await {
        Err(StoreError::Fatal(message)) => assert!(message.contains("not all there yet"), "{message}"),
        other => panic!("{other:?}"),
    }
    let rebuild = lengthening(&options).await.unwrap();
    assert_eq!(rebuild.beginning(), Beginning::Fresh);
    rebuild.lengthened(&[]).await.unwrap();
    lose_tables(&server, &keyspace);
    restore_tables(&options).await;
    opened(&longer(&options)).await.unwrap();
}
