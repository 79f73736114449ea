//! Users who never return leave Redis, and a user who is to be forgotten leaves it at once.

use crate::redis_support::{
    DAY_MS, admit_all, at, batch, cap, of_another_shard, opened, options, own, own_keyspace, request, server, shard_of,
    store, two_stores,
};
use testkit::{redis::RedisServer, stack::Stack};
use weir_core::{
    basis::shard::UserHash,
    history::decide::AdmitVerdict,
    ports::{Histories, StoreError},
};
use weir_redis::RedisOptions;

/// The fields of all keys of users, without the marks of sweeps.
fn users(server: &RedisServer, prefix: &str) -> usize {
    let keys: Vec<String> = server.query(&["KEYS", &format!("{prefix}:{{*}}:[0-9]*")]).unwrap();
    let fields = |key: &String| server.query::<Vec<Vec<u8>>>(&["HKEYS", key]).unwrap();
    keys.iter().flat_map(fields).filter(|field| !field.is_empty()).count()
}

#[tokio::test]
async fn users_who_never_return_are_deleted_within_about_a_retention_while_others_keep_their_keys() {
    let server = server();
    // Several keys in one shard: more than a call sweeps.
    let options = RedisOptions { shards: 1, users: 400, ..own(&server) };
    let opened = opened(&options).await.unwrap();
    assert!(opened.keyspace.meta().layout.buckets > 3);
    let mut store = store(&options, &opened);
    let caps = [cap(5, DAY_MS)];
    let once: Vec<String> = (0..300).map(|user| format!("once-{user}")).collect();
    admit_all(&mut store, &batch(at(0), &caps, once.iter().map(|user| request(user, 1)).collect())).await;
    assert_eq!(users(&server, &options.prefix), 300);
    // Hundred others get one a day, ten at a time.
    let daily: Vec<String> = (0..100).map(|user| format!("daily-{user}")).collect();
    let mut left = Vec::new();
    for day in 1..=17 {
        for (part, users) in daily.chunks(10).enumerate() {
            let moment = at(day * DAY_MS + i64::try_from(part).unwrap() * DAY_MS / 10);
            let requests = users.iter().map(|user| request(user, u32::try_from(day).unwrap())).collect();
            let answers = admit_all(&mut store, &batch(moment, &caps, requests)).await;
            assert!(answers.iter().all(|answer| answer.verdict == AdmitVerdict::Allowed));
        }
        left.push(users(&server, &options.prefix));
    }
    assert!(left[..7].iter().all(|left| *left == 400), "nobody is deleted within the history: {left:?}");
    assert_eq!(left.last(), Some(&100), "within two histories only those who come are left: {left:?}");
    let history = store.history_of(UserHash::of("daily-7")).await.unwrap();
    assert_eq!(history.entries.len(), 8, "what counts stays");
}

#[tokio::test]
async fn a_forgotten_user_begins_an_empty_history_and_nobody_else_does() {
    for urls in [vec![Stack::shared().redis().to_owned()], Stack::shared().redis_cluster().to_vec()] {
        let options = options(&urls);
        let opened = opened(&options).await.unwrap();
        let mut store = store(&options, &opened);
        let caps = [cap(2, DAY_MS)];
        let both = |number| vec![request("forgotten", number), request("other", number)];
        for number in 1..=2 {
            admit_all(&mut store, &batch(at(number.into()), &caps, both(number))).await;
        }
        assert_eq!(store.forget(UserHash::of("forgotten")).await.unwrap(), 2);
        assert_eq!(store.forget(UserHash::of("forgotten")).await.unwrap(), 0, "again: there is nothing");
        assert_eq!(store.history_of(UserHash::of("forgotten")).await.unwrap().entries, []);
        // The same ids again: neither duplicates nor denied.
        let answers = admit_all(&mut store, &batch(at(9), &caps, both(2))).await;
        assert_eq!(answers[0].verdict, AdmitVerdict::Allowed);
        assert_eq!(answers[1].verdict, AdmitVerdict::Replayed);
        assert_eq!(store.history_of(UserHash::of("forgotten")).await.unwrap().entries.len(), 1);
    }
}

#[tokio::test]
async fn a_user_is_forgotten_or_decided_whole_when_both_happen_at_once() {
    let options = options(&[Stack::shared().redis()]);
    let (mut deciding, mut forgetting) = two_stores(&options).await;
    for round in 0..30_u32 {
        let requests = batch(at(round.into()), &[], (0..20).map(|n| request("u", round * 20 + n)).collect());
        let decided = async { admit_all(&mut deciding, &requests).await };
        let (answers, deleted) = tokio::join!(decided, forgetting.forget(UserHash::of("u")));
        assert!(answers.iter().all(|answer| answer.verdict == AdmitVerdict::Allowed));
        let left = deciding.history_of(UserHash::of("u")).await.unwrap().entries.len();
        let deleted = usize::try_from(deleted.unwrap()).unwrap();
        assert!(left + deleted >= 20, "round {round}: {left} left, {deleted} deleted");
        assert!(left.is_multiple_of(20) && deleted.is_multiple_of(20), "round {round}: {left} left, {deleted} deleted");
    }
}

#[tokio::test]
async fn a_user_of_a_lost_shard_is_neither_without_sends_nor_forgotten_and_others_are_read() {
    let (server, options, opened) = own_keyspace().await;
    let mut store = store(&options, &opened);
    let (shard, other) = (shard_of(&opened.keyspace, "u"), of_another_shard(&opened.keyspace, "u"));
    admit_all(&mut store, &batch(at(0), &[], vec![request("u", 1), request(&other, 2)])).await;
    let key = opened.keyspace.epoch_key(shard);
    for loses in [vec!["DEL", key.as_str()], vec!["SET", key.as_str(), "another"]] {
        server.query::<()>(&loses).unwrap();
        let (read, forgotten) = (store.history_of(UserHash::of("u")).await, store.forget(UserHash::of("u")).await);
        for told in [read.map(drop), forgotten.map(drop)] {
            let is_lost = matches!(&told, Err(StoreError::LostHistory { shards, .. }) if *shards == [shard]);
            assert!(is_lost, "a rebuild would bring the sends back: {told:?}");
        }
        assert_eq!(store.history_of(UserHash::of(&other)).await.unwrap().entries.len(), 1);
    }
}
