//! Histories are read, with all their names, whatever Redis is up to.

use std::time::Duration;

use testkit::{
    redis::{RedisCluster, RedisServer},
    stack::Stack,
};
use weir_core::{
    basis::shard::{IdHash, OriginMark, UserHash},
    history::admit::AdmitRequest,
    intent::class::ClassNames,
    ports::{Histories as _, StoreError},
};
use weir_redis::{RedisOptions, RetryCause};

use crate::redis_support::{
    DAY_MS, admit, admit_all, at, batch, cap, fresh_store, opened, options, place_of, request, store,
};

const CAMPAIGNS: u32 = 5000;

#[tokio::test]
async fn a_history_of_5000_campaigns_is_named_in_a_few_round_trips() {
    let options = options(Stack::shared().redis_cluster());
    let opened = opened(&options).await.unwrap();
    let names: Vec<String> = (0..CAMPAIGNS).map(|number| format!("campaign-{number}")).collect();
    let requests = names.iter().zip(0..).map(|(name, number)| AdmitRequest {
        class: ClassNames { channel: Some("push"), category: None, campaign: Some(name) },
        ..request("u", number)
    });
    let mut writer = store(&options, &opened);
    admit_all(&mut writer, &batch(at(0), &[cap(CAMPAIGNS, DAY_MS)], requests.collect())).await;

    let mut reader = store(&options, &opened);
    assert!(reader.history_of(UserHash::of("nobody")).await.unwrap().entries.is_empty());
    let place = opened.keyspace.meta().layout.place(UserHash::of("u"));
    let mut trips = vec![];
    for _ in 0..2 {
        let before = reader.stats().round_trips();
        let history = reader.history_of(UserHash::of("u")).await.unwrap();
        trips.push(reader.stats().round_trips() - before);
        assert_eq!(history.entries.len(), names.len(), "{place:?}");
        for (entry, number) in history.entries.iter().zip(0..) {
            assert_eq!(entry.id, IdHash::of(&format!("i-{number}")));
            assert_eq!(history.campaign(entry.campaign), Some(format!("campaign-{number}").as_str()));
            assert_eq!((history.channel(entry.kind), history.category(entry.kind)), (Some("push"), None));
        }
    }
    // The first time: history, kinds, campaigns, and for each of two scripts that it is loaded and called again.
    assert!(trips[0] <= 6 && trips[1] == 1, "{trips:?}");
}

#[tokio::test]
async fn a_history_is_read_from_a_full_server_and_one_that_forgot_the_scripts() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    let mut store = fresh_store(&options(&[server.url()])).await;
    admit_all(&mut store, &batch(at(0), &[cap(9, DAY_MS)], vec![request("u", 1)])).await;
    for setting in ["1", "0"] {
        server.query::<()>(&["CONFIG", "SET", "maxmemory", setting]).unwrap();
        assert_eq!(store.history_of(UserHash::of("u")).await.unwrap().entries.len(), 1);
        server.query::<()>(&["SCRIPT", "FLUSH"]).unwrap();
        assert_eq!(store.history_of(UserHash::of("u")).await.unwrap().entries.len(), 1);
    }
    let (key, _) = place_of(store.keyspace(), UserHash::of("u"));
    server.query::<()>(&["SET", &key, "no hash"]).unwrap();
    let found = store.history_of(UserHash::of("u")).await;
    assert!(matches!(&found, Err(StoreError::Fatal(message)) if message.contains("WRONGTYPE")), "{found:?}");
    drop(server);
    let found = store.history_of(UserHash::of("u")).await;
    assert!(matches!(found, Err(StoreError::Temporary(_))), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_are_read_while_their_slots_move() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { response_timeout: Duration::from_millis(800), ..options(&cluster.nodes()) };
    let mut store = fresh_store(&options).await;
    let users: Vec<String> = (0..200).map(|number| format!("u-{number}")).collect();
    let requests = users.iter().zip(0..).map(|(user, number)| request(user, number)).collect();
    let (_, done) = admit(&mut store, &batch(at(0), &[cap(9, DAY_MS)], requests)).await;
    done.unwrap();

    let layout = store.keyspace().meta().layout;
    let shard = |user: &str| layout.place(UserHash::of(user)).shard;
    for (number, moved) in [(0, "the epoch"), (1, "a bucket"), (2, "everything")] {
        let slot = store.keyspace().slot(number);
        let from = cluster.owner_of(slot).unwrap();
        let half = cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
        match moved {
            "the epoch" => half.move_key(&store.keyspace().epoch_key(number)).unwrap(),
            "a bucket" => half.move_key(&store.keyspace().bucket_key(number, 0)).unwrap(),
            _ => while half.move_keys(100).unwrap() > 0 {},
        }
        let mut read = 0;
        for (user, id) in users.iter().zip(0_u32..).filter(|(user, _)| shard(user) == number) {
            let history = store.history_of(UserHash::of(user)).await.unwrap();
            let origins: Vec<OriginMark> = history.entries.iter().map(|entry| entry.origin).collect();
            assert_eq!(origins, [OriginMark(id)], "{moved} has moved");
            read += 1;
        }
        assert!(read > 3, "{read} users of shard {number}");
        half.finish().unwrap();
        let user = users.iter().find(|user| shard(user) == number).unwrap();
        assert_eq!(store.history_of(UserHash::of(user)).await.unwrap().entries.len(), 1, "after the move");
    }
    let redirects = [RetryCause::Ask, RetryCause::TryAgain, RetryCause::Moved].map(|cause| store.stats().errors(cause));
    assert!(redirects[0] + redirects[1] > 0 && redirects[2] > 0, "{redirects:?}");
}
