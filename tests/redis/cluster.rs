//! A Redis Cluster that moves, fails over and loses nodes under a store: sends stay decided once and in order.

use std::{collections::BTreeSet, time::Duration};

use crate::redis_support::{
    self, DAY_MS, admit, admit_all, at, batch, cap, fresh_store, opened, options, patiently, request, sent,
};
use testkit::redis::RedisCluster;
use weir_core::{
    history::{admit::AdmitRequest, decide::AdmitVerdict},
    ports::StoreError,
};
use weir_redis::{RedisOptions, RedisStore, RetryCause};

const USERS: u32 = 400;

fn wave(number: u32) -> Vec<AdmitRequest<'static>> {
    (0..USERS).map(|user| request(&format!("u-{user}"), number * USERS + user)).collect()
}

/// Three caps of 1 in turn: the third wave is denied where the first two were recorded, and only there.
async fn waves(store: &mut RedisStore, numbers: std::ops::Range<u32>, limit: u32) {
    for number in numbers {
        let answers = admit_all(store, &batch(at(number.into()), &[cap(limit, DAY_MS)], wave(number))).await;
        let expected = if number < limit { USERS as usize } else { 0 };
        assert_eq!(sent(&answers), expected, "wave {number}");
    }
}

fn own(cluster: &RedisCluster) -> RedisOptions {
    RedisOptions { response_timeout: Duration::from_millis(800), ..options(&cluster.nodes()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_moved_are_found_and_those_that_move_go_on() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = own(&cluster);
    let mut store = fresh_store(&options).await;
    waves(&mut store, 0..1, 3).await;

    let slots: Vec<u16> = (0..8).map(|shard| store.keyspace().slot(shard)).collect();
    for slot in &slots[..2] {
        let from = cluster.owner_of(*slot).unwrap();
        cluster.move_slots([*slot], from, (from + 1) % 3).unwrap();
    }
    waves(&mut store, 1..2, 3).await;
    assert!(store.stats().errors(RetryCause::Moved) > 0);

    // Half of a shard's keys here and half there; the epoch on either side.
    for (number, shard) in (2..4_u32).zip([4_u16, 5]) {
        let slot = store.keyspace().slot(shard);
        let from = cluster.owner_of(slot).unwrap();
        let half = cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
        if number == 2 {
            half.move_key(&store.keyspace().epoch_key(shard)).unwrap();
        } else {
            half.move_key(&store.keyspace().bucket_key(shard, 0)).unwrap();
        }
        waves(&mut store, number..number + 1, 3).await;
        half.finish().unwrap();
    }
    waves(&mut store, 4..5, 3).await;
    let asks_apart = store.stats().errors(RetryCause::TryAgain) + store.stats().errors(RetryCause::Ask);
    assert!(asks_apart > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_moving_slot_that_exist_nowhere_yet_are_written_where_they_will_be_found() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { users: 16 * 24 * 1000, ..own(&cluster) };
    let mut store = fresh_store(&options).await;
    let shard = 6;
    let slot = store.keyspace().slot(shard);
    let layout = store.keyspace().meta().layout;
    let of_shard = |prefix: &'static str| {
        (0..)
            .map(move |n| format!("{prefix}-{n}"))
            .filter(move |user| layout.place(request(user, 0).user).shard == shard)
            .take(40)
    };
    let old: Vec<String> = of_shard("old").collect();
    let new: Vec<String> = of_shard("new").collect();
    let send = |user: &String, number| request(user, number);
    let requests = old.iter().map(|user| send(user, 1)).collect();
    admit_all(&mut store, &batch(at(0), &[cap(1, DAY_MS)], requests)).await;

    let from = cluster.owner_of(slot).unwrap();
    let half = cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
    half.move_keys(20).unwrap();
    for (number, expected) in [(2, 40), (3, 0)] {
        let requests = old.iter().chain(&new).map(|user| send(user, number)).collect();
        let answers = admit_all(&mut store, &batch(at(0), &[cap(1, DAY_MS)], requests)).await;
        assert_eq!(sent(&answers), expected);
    }
    half.finish().unwrap();
    let requests = old.iter().chain(&new).map(|user| send(user, 4)).collect();
    let answers = admit_all(&mut store, &batch(at(0), &[cap(1, DAY_MS)], requests)).await;
    assert_eq!(sent(&answers), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failovers_planned_and_not_are_followed() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options = RedisOptions { wait_replicas: 1, ..own(&cluster) };
    let mut store = fresh_store(&options).await;
    waves(&mut store, 0..1, 3).await;
    let replica = cluster.replicas_of(0).unwrap()[0];
    cluster.failover(replica).unwrap();
    waves(&mut store, 1..2, 3).await;

    // A primary dies: its replica takes over, and with wait_replicas nothing answered is lost.
    let victim = cluster.primaries().unwrap()[0];
    let heir = cluster.replicas_of(victim).unwrap()[0];
    cluster.kill(victim);
    let options = RedisOptions { wait_replicas: 0, ..options };
    let opened = patiently(Duration::from_secs(30), async || match opened(&options).await {
        Ok(opened) => Some(opened),
        Err(StoreError::Temporary(_)) => None,
        Err(error) => panic!("{error}"),
    });
    let mut store = redis_support::store(&options, &opened.await.unwrap());
    waves(&mut store, 2..4, 3).await;
    assert!(cluster.primaries().unwrap().contains(&heir));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_empty_stops_its_shards_and_no_others() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = own(&cluster);
    let mut store = fresh_store(&options).await;
    waves(&mut store, 0..1, 1).await;
    let layout = store.keyspace().meta().layout;
    let lost: BTreeSet<u16> =
        (0..layout.shards).filter(|shard| cluster.owner_of(store.keyspace().slot(*shard)).unwrap() == 1).collect();
    cluster.kill(1);
    let (answers, result) = admit(&mut store, &batch(at(1), &[cap(1, DAY_MS)], wave(1))).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
    drop(answers);
    cluster.restart(1).unwrap();
    cluster.wait_whole().unwrap();

    let requests = wave(2);
    let shards: Vec<u16> = requests.iter().map(|request| layout.place(request.user).shard).collect();
    let mut answers = vec![None; requests.len()];
    let batch = batch(at(2), &[cap(1, DAY_MS)], requests);
    let found = patiently(Duration::from_secs(30), async || {
        match weir_core::ports::Store::admit(&mut store, &batch, &mut answers).await {
            Err(StoreError::LostHistory { shards, .. }) => Some(shards),
            Err(StoreError::Temporary(_) | StoreError::NotRecorded(_)) => None,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(found.await.unwrap(), lost.iter().copied().collect::<Vec<_>>());
    for (shard, answer) in shards.iter().zip(&answers) {
        match answer {
            None => assert!(lost.contains(shard)),
            Some(answer) => {
                assert!(!lost.contains(shard));
                assert!(matches!(answer.verdict, AdmitVerdict::Denied { used: 1, .. }), "{answer:?}");
            }
        }
    }
    assert_eq!(redis_support::lost(store.health().await).0, lost.into_iter().collect::<Vec<_>>());
}
