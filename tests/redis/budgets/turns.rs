//! A call whose reply is lost, or that too few replicas have, is repeated with its number, and burns nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use testkit::{
    clock::MovedClock,
    proxy::{Mode, Proxy},
    redis::{RedisCluster, RedisServer},
};
use weir_core::{
    budget::SpanNow,
    ledger::{GiveBack, TakeRequest},
    limit::share::TurnNumber,
    ports::{Clock, StoreError},
};
use weir_redis::{LedgerClock, RedisLedger, RedisOptions, RedisStats};
use weir_worker::clock::SystemClock;

use super::{all_of, budget, give_back, ledger, request, take, take_one, take_patiently, used};
use crate::redis_support::{opened, options, own, server};

/// A hundred tokens in this turn.
fn hundred(number: u64) -> TakeRequest {
    TakeRequest { turn: turn(number), ..request("b", 100) }
}

fn turn(number: u64) -> Option<TurnNumber> {
    Some(TurnNumber { run: 1, number })
}

/// Asks, and is not answered.
async fn ask_in_vain(ledger: &mut RedisLedger, request: &TakeRequest) {
    let (answers, result) = take(ledger, std::slice::from_ref(request)).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
    assert_eq!(answers, [None]);
}

#[tokio::test]
async fn a_call_whose_reply_is_lost_is_made_once_and_its_turn_gets_the_same_when_it_is_repeated() {
    let server = server();
    let target = server.url().trim_start_matches("redis://").to_owned();
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&target).unwrap()).await.unwrap();
    let options = options(&[format!("redis://{}", proxy.address())]);
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let unnumbered = request("b", 100);
    let granted = take_one(&mut ledger, &unnumbered).await;

    proxy.set(Mode::LoseReply);
    ask_in_vain(&mut ledger, &unnumbered).await;
    assert_eq!(used(&mut ledger, "b").await, 200, "a grant that nobody heard of counts, once");
    proxy.set(Mode::LoseReply);
    ask_in_vain(&mut ledger, &hundred(1)).await;
    for _ in 0..2 {
        let again = take_one(&mut ledger, &hundred(1)).await;
        assert_eq!((again.granted, again.used), (100, 300));
    }
    assert_eq!(take_one(&mut ledger, &hundred(2)).await.used, 400);

    let some = GiveBack { tokens: 30, ..all_of(&unnumbered, &granted) };
    assert_eq!(give_back(&mut ledger, &some).await.unwrap(), Some(30));
    proxy.set(Mode::LoseReply);
    let result = give_back(&mut ledger, &some).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
    assert_eq!(used(&mut ledger, "b").await, 340, "30 were given back, twice");
    let numbered = GiveBack { turn: turn(3), ..some };
    proxy.set(Mode::LoseReply);
    let result = give_back(&mut ledger, &numbered).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
    assert_eq!(give_back(&mut ledger, &numbered).await.unwrap(), Some(30), "it is told again");
    assert_eq!(used(&mut ledger, "b").await, 310, "30 more, once");
}

#[tokio::test]
async fn a_turn_that_no_replica_has_burns_no_more_than_its_grant_however_often_it_is_repeated() {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let replicated = RedisOptions { wait_replicas: 1, response_timeout: Duration::from_millis(200), ..options.clone() };
    let mut waits = ledger(&replicated, &opened, "weir-0");
    for _ in 0..5 {
        ask_in_vain(&mut waits, &hundred(1)).await;
    }
    // As it is once there is a replica again.
    let mut ledger = ledger(&options, &opened, "weir-0");
    let granted = take_one(&mut ledger, &hundred(1)).await;
    assert_eq!((granted.granted, granted.used), (100, 100));
    let given = GiveBack { tokens: 30, turn: turn(2), ..all_of(&hundred(1), &granted) };
    for _ in 0..5 {
        give_back(&mut waits, &given).await.unwrap_err();
    }
    assert_eq!(used(&mut ledger, "b").await, 70);
}

#[tokio::test]
async fn a_turn_is_known_for_an_hour_after_it_was_made_last_and_then_takes_no_memory() {
    let moved = MovedClock::build().unwrap();
    let clock = moved.clock(0).unwrap();
    let server = RedisServer::start_by(&clock).unwrap();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let ahead_s = Arc::new(AtomicI64::new(0));
    let agreed_s = Arc::clone(&ahead_s);
    let by: LedgerClock = Arc::new(move || Ok(SystemClock.now().plus(agreed_s.load(Relaxed) * 1_000)));
    let mut ledger =
        RedisLedger::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), &opened, "weir-0", by);
    let total = |number| TakeRequest { span: SpanNow::Total, ..hundred(number) };
    let pass = |seconds| clock.set(ahead_s.fetch_add(seconds, Relaxed) + seconds).unwrap();
    let granted = take_one(&mut ledger, &total(1)).await;
    let given = GiveBack { tokens: 30, turn: turn(2), ..all_of(&total(1), &granted) };
    for _ in 0..3 {
        assert_eq!(give_back(&mut ledger, &given).await.unwrap(), Some(30));
        pass(3_500);
        let again = take_one(&mut ledger, &total(1)).await;
        assert_eq!((again.granted, again.used), (100, 70), "it was made less than an hour ago");
    }
    assert_eq!(give_back(&mut ledger, &given).await.unwrap(), Some(30));
    pass(3_700);
    let anew = take_one(&mut ledger, &total(1)).await;
    assert_eq!((anew.granted, anew.used), (100, 170), "nobody repeats it after so long");
    pass(3_700);
    take_one(&mut ledger, &TakeRequest { turn: None, ..total(1) }).await;
    let key = opened.keyspace.budget_key(&budget("b"));
    let mut fields = server.query::<Vec<String>>(&["HKEYS", &key]).unwrap();
    fields.sort();
    assert_eq!(fields, ["hweir-0", "s", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_while_the_replica_is_frozen_gets_one_grant_and_the_same_from_the_replica_that_takes_over() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options =
        RedisOptions { wait_replicas: 1, response_timeout: Duration::from_millis(500), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut waits = ledger(&options, &opened, "weir-0");
    assert_eq!(take_patiently(&mut waits, &[hundred(1)]).await[0].used, 100);
    let slot = opened.keyspace.slot(opened.keyspace.budget_shard(&budget("b")));
    let primary = cluster.owner_of(slot).unwrap();
    let heir = cluster.replicas_of(primary).unwrap()[0];
    cluster.freeze(heir);
    for _ in 0..3 {
        ask_in_vain(&mut waits, &hundred(2)).await;
    }
    cluster.thaw(heir);
    let granted = take_patiently(&mut waits, &[hundred(2)]).await[0];
    assert_eq!((granted.granted, granted.used), (100, 200));

    cluster.kill(primary);
    cluster.wait_primary(heir).unwrap();
    // The heir has no replica: with wait_replicas = 1 it would not be heard.
    let mut ledger = ledger(&RedisOptions { wait_replicas: 0, ..options }, &opened, "weir-0");
    let again = take_patiently(&mut ledger, &[hundred(2)]).await[0];
    assert_eq!((again.granted, again.used), (100, 200));
    assert_eq!(take_patiently(&mut ledger, &[hundred(3)]).await[0].used, 300);
}
