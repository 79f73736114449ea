//! A call whose reply is lost, or that too few replicas have, is repeated with its number, and burns nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use testkit::{
    clock::ProcessClock,
    proxy::Mode,
    redis::{RedisCluster, RedisServer},
};
use weir_core::{
    limit::{
        budget::{
            SpanNow,
            ledger::{GiveBack, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::{Clock, StoreError},
};
use weir_redis::{LedgerClock, RedisLedger, RedisOptions};
use weir_worker::clock::SystemClock;

use super::{all_of, budget, ledger, ledger_of, take_turn_patiently, turn, used};
use crate::redis_support::{self, behind_proxy, opened, options, own, own_keyspace, server};

fn number(number: u64) -> TurnNumber {
    TurnNumber { run: 1, number }
}

/// What the turn with this number was granted, and what is used then.
async fn take(ledger: &mut RedisLedger, of: u64, turn: &TakeTurn) -> (u64, u64) {
    let (answer, _) = ledger.turn_at(&budget("b"), number(of), turn).await.unwrap().unwrap();
    (answer.granted, answer.used)
}

async fn ask_in_vain(ledger: &mut RedisLedger, of: u64, turn: &TakeTurn) {
    let result = ledger.turn_at(&budget("b"), number(of), turn).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
}

async fn patiently(ledger: &mut RedisLedger, of: u64) -> (u64, u64) {
    let answer = take_turn_patiently(ledger, "b", number(of), &turn(100)).await;
    (answer.granted, answer.used)
}

#[tokio::test]
async fn a_turn_whose_reply_is_lost_is_taken_once_and_gets_the_same_when_it_is_repeated() {
    let server = server();
    let (proxy, options) = behind_proxy(&server.url()).await;
    let (_, mut ledger) = ledger_of(&options).await;
    let (first, _) = ledger.turn_at(&budget("b"), number(1), &turn(100)).await.unwrap().unwrap();
    proxy.set(Mode::LoseReply);
    ask_in_vain(&mut ledger, 2, &turn(100)).await;
    for _ in 0..2 {
        assert_eq!(take(&mut ledger, 2, &turn(100)).await, (100, 200));
    }

    // What comes back comes back once, and so does what is granted in its place.
    let given = GiveBack { tokens: 30, ..all_of(&turn(100), &first) };
    let exchange = TakeTurn { back: vec![given], ..turn(10) };
    proxy.set(Mode::LoseReply);
    ask_in_vain(&mut ledger, 3, &exchange).await;
    assert_eq!(used(&mut ledger, "b").await, 180);
    for _ in 0..2 {
        assert_eq!(take(&mut ledger, 3, &exchange).await, (10, 180));
    }
    assert!(ledger.turn_at(&budget("b"), number(2), &turn(100)).await.unwrap().is_none(), "a later one was taken");
    assert_eq!(used(&mut ledger, "b").await, 180);
}

#[tokio::test]
async fn a_turn_that_no_replica_has_burns_no_more_than_its_grant_however_often_it_is_repeated() {
    let (_server, options, opened) = own_keyspace().await;
    let replicated = RedisOptions { wait_replicas: 1, response_timeout: Duration::from_millis(200), ..options.clone() };
    let mut waits = ledger(&replicated, &opened, "weir-0");
    for _ in 0..5 {
        ask_in_vain(&mut waits, 1, &turn(100)).await;
    }
    // As it is once there is a replica again.
    let mut ledger = ledger(&options, &opened, "weir-0");
    let (first, _) = ledger.turn_at(&budget("b"), number(1), &turn(100)).await.unwrap().unwrap();
    assert_eq!((first.granted, first.used), (100, 100));
    let given = GiveBack { tokens: 30, ..all_of(&turn(100), &first) };
    for _ in 0..5 {
        ask_in_vain(&mut waits, 2, &TakeTurn { back: vec![given], ..turn(0) }).await;
    }
    assert_eq!(used(&mut ledger, "b").await, 70);
}

#[tokio::test]
async fn a_turn_is_known_for_an_hour_after_it_was_made_last_and_then_takes_no_memory() {
    let clock = ProcessClock::ahead(0).unwrap();
    let server = RedisServer::start_by(&clock).unwrap();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let ahead_s = Arc::new(AtomicI64::new(0));
    let agreed_s = Arc::clone(&ahead_s);
    let by: LedgerClock = Arc::new(move || Ok(SystemClock.now().plus(agreed_s.load(Relaxed) * 1_000)));
    let of =
        |name: &str| RedisLedger::with(&Arc::new(options.clone()), &Arc::default(), &opened, name, Arc::clone(&by));
    let mut ledger = of("weir-0");
    let total = TakeTurn { span: SpanNow::Total, ..turn(100) };
    let pass = |seconds| clock.set(ahead_s.fetch_add(seconds, Relaxed) + seconds).unwrap();
    let (first, _) = ledger.turn_at(&budget("b"), number(1), &total).await.unwrap().unwrap();
    let given = GiveBack { tokens: 30, ..all_of(&total, &first) };
    let exchange = TakeTurn { back: vec![given], ..total.clone() };
    for _ in 0..3 {
        assert_eq!(take(&mut ledger, 2, &exchange).await, (100, 170), "it was made less than an hour ago");
        pass(3_500);
    }
    assert_eq!(take(&mut ledger, 2, &exchange).await, (100, 170));
    pass(3_700);
    assert_eq!(take(&mut ledger, 2, &exchange).await, (100, 240), "nobody repeats it after so long");
    pass(3_700);
    let mut other = of("weir-1");
    take(&mut other, 1, &total).await;
    let key = opened.keyspace.budget_key(&budget("b"));
    let mut fields = server.query::<Vec<String>>(&["HKEYS", &key]).unwrap();
    fields.sort();
    assert_eq!(fields, ["hweir-1", "s", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_while_the_replica_is_frozen_gets_one_grant_and_the_same_from_the_replica_that_takes_over() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options =
        RedisOptions { wait_replicas: 1, response_timeout: Duration::from_millis(500), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut waits = ledger(&options, &opened, "weir-0");
    assert_eq!(patiently(&mut waits, 1).await, (100, 100));
    let slot = opened.keyspace.slot(opened.keyspace.budget_shard(&budget("b")));
    let primary = cluster.owner_of(slot).unwrap();
    let heir = cluster.replicas_of(primary).unwrap()[0];
    cluster.freeze(heir);
    for _ in 0..3 {
        ask_in_vain(&mut waits, 2, &turn(100)).await;
    }
    cluster.thaw(heir);
    assert_eq!(patiently(&mut waits, 2).await, (100, 200));

    cluster.kill(primary);
    cluster.wait_primary(heir).unwrap();
    // The heir has no replica: with wait_replicas = 1 it would not be heard.
    let mut ledger = ledger(&RedisOptions { wait_replicas: 0, ..options }, &opened, "weir-0");
    assert_eq!(patiently(&mut ledger, 2).await, (100, 200));
    assert_eq!(patiently(&mut ledger, 3).await, (100, 300));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_given_up_at_a_frozen_primary_is_taken_at_the_replica_that_takes_over() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    // Who asks has less patience than the connection.
    let patience = Duration::from_secs(600);
    let options = RedisOptions { response_timeout: patience, connect_timeout: patience, ..options(&cluster.nodes()) };
    let (opened, mut ledger) = ledger_of(&options).await;
    assert_eq!(patiently(&mut ledger, 1).await, (100, 100));
    let slot = opened.keyspace.slot(opened.keyspace.budget_shard(&budget("b")));
    let primary = cluster.owner_of(slot).unwrap();
    cluster.wait_replicated(primary).unwrap();
    cluster.freeze(primary);
    let taken = redis_support::patiently(Duration::from_secs(60), async || {
        tokio::time::timeout(Duration::from_secs(1), patiently(&mut ledger, 2)).await.ok()
    });
    assert_eq!(taken.await, Some((100, 200)));
    cluster.thaw(primary);
}
