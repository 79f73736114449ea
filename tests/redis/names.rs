//! The numbers of names: no number is given twice, and a table that lost some is seen.

use std::sync::Arc;

use crate::redis_support::{
    admit, admit_all, at, batch, lost, on_channel, opened, options, own, own_store, request, sent, server, two_stores,
};
use testkit::redis::{RedisCluster, RedisServer};
use weir_core::{
    history::{
        admit::AdmitRequest,
        decide::{AdmitVerdict, Answer},
    },
    intent::class::{Campaign, ClassNames, Kind},
    ports::{Store as _, StoreError},
};
use weir_redis::{PooledStore, RedisPool, RedisStats, RedisStore};

/// A send of this campaign, to a user of its own.
fn of_campaign(name: &'static str, number: u32) -> AdmitRequest<'static> {
    let class = ClassNames { campaign: Some(name), ..ClassNames::default() };
    AdmitRequest { class, ..request(&format!("u-{number}"), number) }
}

fn number_of(store: &RedisStore, name: &str) -> Option<Campaign> {
    store.numbers(&ClassNames { campaign: Some(name), ..ClassNames::default() }).map(|(_, campaign)| campaign)
}

async fn sends(store: &mut RedisStore, name: &'static str, number: u32) -> Campaign {
    admit_all(store, &batch(at(0), &[], vec![of_campaign(name, number)])).await;
    number_of(store, name).unwrap()
}

/// The server has forgotten the newest campaign, as one that was restarted from an older snapshot has.
fn forget_newest(server: &RedisServer, store: &RedisStore, name: &str, number: Campaign) {
    let (table, names) = (store.keyspace().campaigns_key(), store.keyspace().campaign_names_key());
    server.query::<()>(&["HDEL", table, &format!("={name}")]).unwrap();
    server.query::<()>(&["HDEL", names, &number.0.to_string()]).unwrap();
    server.query::<()>(&["HSET", table, "next", &number.0.to_string(), "run", "0123456789abcdef"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_no_replica_has_is_not_used_and_a_failover_gives_none_twice() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options = options(&cluster.nodes());
    assert_eq!(options.wait_replicas, 0, "it holds whatever is set");
    let (mut one, mut other) = two_stores(&options).await;
    let spring = sends(&mut one, "spring", 1).await;
    let owner = cluster.owner_of(one.keyspace().meta_slot()).unwrap();
    let replica = cluster.replicas_of(owner).unwrap()[0];

    // The replica hangs: what the primary numbers now is lost when it dies.
    cluster.freeze(replica);
    let summer = batch(at(0), &[], vec![of_campaign("summer", 2)]);
    let (answers, result) = admit(&mut one, &summer).await;
    assert_eq!(answers, [None], "it was decided by a number that is going to be lost");
    assert!(matches!(&result, Err(StoreError::NotRecorded(why)) if why.contains("0 of 1 replicas")), "{result:?}");
    cluster.kill(owner);
    cluster.thaw(replica);
    tokio::task::block_in_place(|| cluster.wait_primary(replica)).unwrap();

    let autumn = sends(&mut other, "autumn", 3).await;
    let summer = sends(&mut one, "summer", 2).await;
    assert_eq!(sends(&mut other, "spring", 4).await, spring);
    assert_eq!(sends(&mut other, "summer", 5).await, summer);
    assert!(summer != autumn && summer != spring && autumn != spring, "{spring:?} {summer:?} {autumn:?}");
}

/// Requests of HTTP are spread over stores of a pool: the first one for a node's users finds the names known.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_node_of_the_names_hangs_other_nodes_users_are_asked_by_new_stores_too() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let opened = opened(&options).await.unwrap();
    let (options, stats) = (Arc::new(options), Arc::new(RedisStats::default()));
    let mut looking = RedisStore::new(&options, &stats, &opened);
    let keyspace = Arc::clone(&opened.keyspace);
    let of_names = cluster.owner_of(keyspace.meta_slot()).unwrap();
    let owner = |number: u32| {
        let user = of_campaign("spring", number).user;
        cluster.owner_of(keyspace.slot(keyspace.meta().layout.place(user).shard)).unwrap()
    };
    let of_others = (0..).find(|number| owner(*number) != of_names).unwrap();
    let of_the_same = (0..).find(|number| owner(*number) == of_names).unwrap();
    let pool = RedisPool::new(&options, &stats, &opened, 4);
    let found = looking.look_at_shards().await;
    pool.take_over(&mut looking, &found);
    let mut store = PooledStore::new(pool);
    admit_all(&mut store, &batch(at(0), &[], vec![of_campaign("spring", of_the_same)])).await;

    cluster.freeze(of_names);
    let (answers, result) = admit(&mut store, &batch(at(0), &[], vec![of_campaign("spring", of_others)])).await;
    cluster.thaw(of_names);
    assert!(matches!(answers[..], [Some(_)]), "{result:?}");
}

#[tokio::test]
async fn a_server_that_lost_numbers_gives_none_of_them_again() {
    let server = server();
    let options = own(&server);
    let (mut one, mut other) = two_stores(&options).await;
    sends(&mut one, "spring", 1).await;
    let summer = sends(&mut one, "summer", 2).await;
    forget_newest(&server, &one, "summer", summer);
    let autumn = sends(&mut other, "autumn", 3).await;
    assert!(autumn > summer, "{autumn:?} may be in histories as {summer:?}");
    // Another restart skips again, the same server does not.
    assert_eq!(sends(&mut other, "winter", 4).await, Campaign(autumn.0 + 1));
}

#[tokio::test]
async fn a_number_with_a_name_is_skipped_whatever_the_counter_says() {
    let (server, mut store) = own_store().await;
    let spring = sends(&mut store, "spring", 1).await;
    server.query::<()>(&["HSET", store.keyspace().campaigns_key(), "next", "1"]).unwrap();
    assert_eq!(sends(&mut store, "summer", 2).await, Campaign(spring.0 + 1));
}

#[tokio::test]
async fn after_a_reconnect_a_table_that_lost_a_number_is_lost_history_until_it_is_repaired() {
    let server = server();
    let options = own(&server);
    let (mut one, mut other) = two_stores(&options).await;
    sends(&mut one, "spring", 1).await;
    let summer = sends(&mut one, "summer", 2).await;
    forget_newest(&server, &one, "summer", summer);
    // As it is, the lane has no reason to look; its connection breaks, and the next batch shows the new one.
    server.query::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let message = {
        let mut number = 10;
        loop {
            number += 1;
            let known = batch(at(0), &[], vec![of_campaign("spring", number)]);
            match admit(&mut one, &known).await.1 {
                Ok(()) | Err(StoreError::Temporary(_) | StoreError::NotRecorded(_)) => {
                    assert!(number < 20, "it never looked");
                }
                lost_history => break lost(lost_history).1,
            }
        }
    };
    assert!(message.contains("weir rebuild"), "{message}");
    let (answers, result) = admit(&mut other, &batch(at(0), &[], vec![of_campaign("new", 3)])).await;
    assert_eq!(answers, [None]);
    assert!(lost(result).1.contains("lost:"), "nobody else uses the table either");
    assert!(opened(&options).await.is_ok(), "a worker may start meanwhile");
}

fn on(channel: &'static str, number: u32) -> AdmitRequest<'static> {
    let class = ClassNames { channel: Some(channel), ..ClassNames::default() };
    AdmitRequest { class, ..request("somebody", number) }
}

fn sent_bytes(server: &RedisServer) -> u64 {
    server.figure("stats", "total_net_output_bytes").unwrap()
}

#[tokio::test]
async fn invented_kinds_cost_what_they_are_and_not_the_table_each_time() {
    let (server, mut store) = own_store().await;
    admit_all(&mut store, &batch(at(0), &[on_channel(100, "push")], vec![on("push", 0)])).await;
    let fill = "for n = 2, 65534 do local name = '[\"c' .. n .. '\",null]' redis.call('HSET', KEYS[1], name, n) \
                redis.call('HSET', KEYS[2], n, name) end redis.call('HSET', KEYS[1], 'next', 65535)";
    let [kinds, names] = [store.keyspace().kinds_key(), store.keyspace().kind_names_key()];
    server.query::<()>(&["EVAL", fill, "2", kinds, names]).unwrap();
    // The first batch with a new kind reads all that is new.
    let invented: Vec<&'static str> = (0..50).map(|n| &*format!("invented {n}").leak()).collect();
    admit_all(&mut store, &batch(at(0), &[on_channel(100, "push")], vec![on(invented[0], 1)])).await;
    let before = sent_bytes(&server);
    for (channel, number) in invented.iter().zip(2..) {
        let answers = admit_all(&mut store, &batch(at(0), &[on_channel(100, "push")], vec![on(channel, number)])).await;
        let class = ClassNames { channel: Some(channel), ..ClassNames::default() };
        assert_eq!(store.numbers(&class).unwrap().0, Kind::OVERFLOW);
        assert_eq!(answers[0].verdict, AdmitVerdict::Allowed);
    }
    let each = (sent_bytes(&server) - before) / 50;
    assert!(each < 2_000, "{each} bytes a batch");
    // Names beyond the table share a number that every filter counts; others do not count.
    let named = batch(at(0), &[on_channel(53, "push")], vec![on("c65534", 100), on("c7", 101)]);
    assert_eq!(sent(&admit_all(&mut store, &named).await), 2);
    let answers = admit_all(&mut store, &batch(at(0), &[on_channel(52, "push")], vec![on("c8", 102)])).await;
    assert_eq!(answers[0].verdict, AdmitVerdict::Denied { cap: 0, used: 52, blocking: Some(at(0)) });
    let length = server.query::<u64>(&["HLEN", store.keyspace().kind_names_key()]).unwrap();
    assert_eq!(length, 65_534, "the table has grown");
}

#[tokio::test]
async fn a_kind_without_a_name_counts_against_every_filter() {
    let (server, mut store) = own_store().await;
    admit_all(&mut store, &batch(at(0), &[], vec![on("push", 1)])).await;
    let [kinds, names] = [store.keyspace().kinds_key(), store.keyspace().kind_names_key()];
    // The name is lost, like that of a number on no approved record.
    server.query::<()>(&["HDEL", kinds, "[\"push\",null]"]).unwrap();
    server.query::<()>(&["HDEL", names, "1"]).unwrap();
    for next in ["257", "1"] {
        // Below the next number, or above it.
        server.query::<()>(&["HSET", kinds, "next", next]).unwrap();
        let options = store.options().clone();
        let mut fresh = crate::redis_support::store(&options, &opened(&options).await.unwrap());
        let answers = admit_all(&mut fresh, &batch(at(1), &[on_channel(1, "email")], vec![on("email", 2)])).await;
        let denied = |answer: &Answer| matches!(answer.verdict, AdmitVerdict::Denied { .. });
        assert!(denied(&answers[0]), "next {next}: a cap on another channel would be exceeded, for all that is known");
        server.query::<()>(&["HDEL", kinds, "[\"email\",null]"]).unwrap();
        let number = if next == "1" { "1" } else { "257" };
        server.query::<()>(&["HDEL", names, number]).unwrap();
    }
}
