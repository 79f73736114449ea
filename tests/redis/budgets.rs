//! The ledger of budgets never grants more than a limit, whatever is lost, repeated or moved; and a part of Redis that is in trouble
//! keeps no other part from answering.

mod memory;
mod turns;

use std::{sync::Arc, time::Duration};

use testkit::{
    clock::MovedClock,
    redis::{RedisCluster, RedisServer},
    stack::Stack,
};
use weir_core::{
    budget::{BudgetId, SpanNow},
    ledger::{Account, GiveBack, TakeAnswer, TakeRequest},
    ports::{Clock, Ledger, StoreError},
    time::Time,
};
use weir_redis::{
    Keyspace, LedgerClock, Opened, RedisLedger, RedisOptions, RedisStats,
    rebuild::{BudgetChange, BudgetState, Held, Scope},
};
use weir_worker::clock::SystemClock;

use crate::{
    redis_support::{DAY_MS, opened, options, own, patiently, server},
    refunds::begun,
};

const LIMIT: u64 = 1_000;

pub(crate) fn budget(name: &str) -> BudgetId {
    BudgetId { name: name.into(), campaign: None }
}

pub(crate) fn rolling(window_ms: i64) -> SpanNow {
    SpanNow::Rolling { window_ms }
}

pub(crate) fn ledger(options: &RedisOptions, opened: &Opened, holder: &str) -> RedisLedger {
    let clock: LedgerClock = Arc::new(|| Ok(SystemClock.now()));
    RedisLedger::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, holder, clock)
}

/// A request for exactly so many tokens of a budget per day.
pub(crate) fn request(name: &str, tokens: u64) -> TakeRequest {
    TakeRequest {
        budget: budget(name),
        span: rolling(DAY_MS),
        limit: LIMIT,
        need: tokens,
        want: tokens,
        unit: 1,
        least: 1,
        lease_ms: 5_000,
        turn: None,
    }
}

/// All of the tokens that an answer to a request granted.
pub(crate) fn all_of(request: &TakeRequest, answer: &TakeAnswer) -> GiveBack {
    let TakeAnswer { granted: tokens, bucket, count_id, .. } = *answer;
    GiveBack { budget: request.budget.clone(), span: request.span, bucket, count_id, tokens, turn: None }
}

async fn take(ledger: &mut RedisLedger, requests: &[TakeRequest]) -> (Vec<Option<TakeAnswer>>, Result<(), StoreError>) {
    let mut answers = vec![None; requests.len()];
    let result = ledger.take(requests, &mut answers).await;
    (answers, result)
}

async fn take_one(ledger: &mut RedisLedger, request: &TakeRequest) -> TakeAnswer {
    let (answers, result) = take(ledger, std::slice::from_ref(request)).await;
    result.unwrap();
    answers[0].unwrap()
}

/// Asks again until it is answered, for at most a minute.
async fn take_patiently(ledger: &mut RedisLedger, requests: &[TakeRequest]) -> Vec<TakeAnswer> {
    let (mut answers, mut said) = (vec![None; requests.len()], None);
    let done = patiently(Duration::from_secs(60), async || {
        said = ledger.take(requests, &mut answers).await.err();
        assert!(matches!(said, None | Some(StoreError::Temporary(_))), "{said:?}");
        said.is_none().then_some(())
    });
    let done = done.await;
    assert!(done.is_some(), "no answers within a minute; last: {said:?}");
    answers.into_iter().map(Option::unwrap).collect()
}

/// Gives tokens back; tells how many were taken.
async fn give_back(ledger: &mut RedisLedger, given: &GiveBack) -> Result<Option<u64>, StoreError> {
    let mut answers = [None];
    let outcome = ledger.give_back(std::slice::from_ref(given), &mut answers).await;
    outcome.map(|()| answers[0])
}

/// What is used of a budget in so long a window, and the server's clock.
pub(crate) async fn look(ledger: &mut RedisLedger, budget: &BudgetId, window_ms: i64) -> (u64, Time) {
    let request = TakeRequest { budget: budget.clone(), span: rolling(window_ms), want: 0, need: 0, ..request("", 0) };
    let mut found = None;
    ledger.take_each(&[request], &[0], |_, answer, now| found = Some((answer.used, now))).await.unwrap();
    found.unwrap()
}

async fn used(ledger: &mut RedisLedger, name: &str) -> u64 {
    look(ledger, &budget(name), DAY_MS).await.0
}

/// The server and a ledger on it.
async fn alone() -> (RedisServer, Arc<Keyspace>, RedisLedger) {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let ledger = ledger(&options, &opened, "weir-0");
    (server, opened.keyspace, ledger)
}

/// Names of budgets, some of each shard.
fn names() -> Vec<String> {
    (0..64).map(|number| format!("budget-{number}")).collect()
}

fn requests(names: &[String], tokens: u64) -> Vec<TakeRequest> {
    names.iter().map(|name| request(name, tokens)).collect()
}

#[tokio::test]
async fn a_budget_of_a_lost_shard_grants_nothing_and_others_do() {
    let (server, keyspace, mut ledger) = alone().await;
    let shard = keyspace.budget_shard(&budget("lost"));
    let other = names().into_iter().find(|name| keyspace.budget_shard(&budget(name)) != shard).unwrap();
    let both = [request("lost", 10), request(&other, 10)];
    let granted = take_one(&mut ledger, &both[0]).await;
    server.query::<()>(&["DEL", &keyspace.epoch_key(shard)]).unwrap();

    let (answers, result) = take(&mut ledger, &both).await;
    assert_eq!(answers[1].unwrap().granted, 10);
    assert_eq!(answers[0], None);
    let lost = |result: Result<(), StoreError>| match result {
        Err(StoreError::LostHistory { shards, message }) => {
            assert_eq!(shards, [shard]);
            assert!(message.contains("budget lost") && message.contains("weir rebuild"), "{message}");
        }
        other => panic!("{other:?}"),
    };
    lost(result);
    lost(give_back(&mut ledger, &all_of(&both[0], &granted)).await.map(drop));
    server.query::<()>(&["SET", &keyspace.epoch_key(shard), keyspace.epoch()]).unwrap();
    assert_eq!(used(&mut ledger, "lost").await, 10, "nothing was granted or given back meanwhile");
}

#[tokio::test]
async fn a_wiped_server_is_not_taken_for_one_where_nothing_was_granted() {
    let (server, _, mut ledger) = alone().await;
    take_one(&mut ledger, &request("b", LIMIT)).await;
    server.query::<()>(&["FLUSHALL"]).unwrap();
    let (answers, result) = take(&mut ledger, &requests(&names(), 1)).await;
    assert!(matches!(result, Err(StoreError::LostHistory { .. })), "{result:?}");
    assert!(answers.iter().all(Option::is_none));
    assert_eq!(server.query::<u64>(&["DBSIZE"]).unwrap(), 0, "something was written");
}

#[tokio::test]
async fn a_closed_budget_grants_nothing_and_takes_tokens_back() {
    let (server, keyspace, mut ledger) = alone().await;
    let closed = request("closed", 10);
    let granted = take_one(&mut ledger, &closed).await;
    let key = keyspace.budget_key(&closed.budget);
    server.query::<()>(&["HSET", &key, "x", "the topic begins later"]).unwrap();
    let (answers, result) = take(&mut ledger, &[closed.clone(), request("open", 10)]).await;
    assert_eq!((answers[0], answers[1].unwrap().granted), (None, 10));
    match result {
        Err(StoreError::LostHistory { shards, message }) => {
            assert_eq!(shards, [keyspace.budget_shard(&closed.budget)]);
            for part in ["budget closed", "the topic begins later", "weir rebuild"] {
                assert!(message.contains(part), "{message}");
            }
        }
        other => panic!("{other:?}"),
    }
    let back = give_back(&mut ledger, &GiveBack { tokens: 4, ..all_of(&closed, &granted) }).await.unwrap();
    assert_eq!(back, Some(4));
    server.query::<()>(&["HDEL", &key, "x"]).unwrap();
    assert_eq!(used(&mut ledger, "closed").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_keeps_no_answer_of_the_others_away() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { response_timeout: Duration::from_secs(60), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let names = names();
    let asked = requests(&names, 1);
    let owner = |name: &String| {
        let shard = opened.keyspace.budget_shard(&budget(name));
        cluster.owner_of(opened.keyspace.slot(shard)).unwrap()
    };
    let silent: Vec<bool> = names.iter().map(|name| owner(name) == 2).collect();
    take_patiently(&mut ledger, &asked).await;
    cluster.freeze(2);
    let healthy = silent.iter().filter(|silent| !**silent).count();
    let (told, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let open: Vec<usize> = (0..asked.len()).collect();
    let all = ledger.take_each(&asked, &open, |at, answer, _| told.send((at, answer)).unwrap());
    let others = async {
        for _ in 0..healthy {
            let (at, answer) = answered.recv().await.unwrap();
            assert!(!silent[at]);
            assert_eq!(answer.used, 2);
        }
    };
    // The call as a whole waits for the silent node; whoever does not may drop it.
    let in_time = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! { biased; result = all => panic!("{result:?}"), () = others => {} }
    });
    in_time.await.unwrap();
    cluster.thaw(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_reported_and_asked_once() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { response_timeout: Duration::from_millis(500), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let asked = requests(&names(), 1);
    take_patiently(&mut ledger, &asked).await;
    cluster.freeze(1);
    let (answers, result) = take(&mut ledger, &asked).await;
    assert!(matches!(&result, Err(StoreError::Temporary(why)) if why.contains("no reply in time")), "{result:?}");
    cluster.thaw(1);
    cluster.wait_whole().unwrap();
    let mut missing = 0;
    for (request, answer) in asked.iter().zip(&answers) {
        let silent =
            cluster.owner_of(opened.keyspace.slot(opened.keyspace.budget_shard(&request.budget))).unwrap() == 1;
        assert_eq!(answer.is_none(), silent, "{request:?}");
        missing += u32::from(silent);
    }
    assert!(missing > 0);
    // What the frozen node carried out when it thawed counts as spent, and once.
    for (request, answer) in asked.iter().zip(take_patiently(&mut ledger, &asked).await) {
        assert!((2..=3).contains(&answer.used), "{request:?}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_others_take_back_is_known_while_a_node_is_silent() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { response_timeout: Duration::from_millis(500), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let asked = requests(&names(), 3);
    let granted = take_patiently(&mut ledger, &asked).await;
    let given: Vec<GiveBack> = asked.iter().zip(&granted).map(|(request, answer)| all_of(request, answer)).collect();
    cluster.freeze(1);
    let mut answers = vec![None; given.len()];
    let result = ledger.give_back(&given, &mut answers).await;
    assert!(matches!(result, Err(StoreError::Temporary(_))), "{result:?}");
    cluster.thaw(1);
    cluster.wait_whole().unwrap();
    for (given, answer) in given.iter().zip(answers) {
        let owner = cluster.owner_of(opened.keyspace.slot(opened.keyspace.budget_shard(&given.budget))).unwrap();
        assert_eq!(answer, (owner != 1).then_some(3), "{given:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_no_grant_that_was_answered() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    let options =
        RedisOptions { wait_replicas: 1, response_timeout: Duration::from_millis(800), ..options(&cluster.nodes()) };
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let names = names();
    for _ in 0..20 {
        take_patiently(&mut ledger, &requests(&names, 3)).await;
    }
    let victim = cluster.primaries().unwrap()[0];
    let heir = cluster.replicas_of(victim).unwrap()[0];
    cluster.kill(victim);
    cluster.wait_primary(heir).unwrap();
    // The heir has no replica: with wait_replicas = 1 it would not be heard.
    let options = RedisOptions { wait_replicas: 0, ..options };
    let mut after = self::ledger(&options, &opened, "weir-1");
    for answer in take_patiently(&mut after, &requests(&names, 1)).await {
        assert!(answer.used > 60, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_take_at_once_share_the_limit_and_use_all_of_it() {
    let options = options(&[Stack::shared().redis()]);
    let opened = opened(&options).await.unwrap();
    let ask = TakeRequest { want: 200, ..request("b", 1) };
    let hammer = |holder: usize| {
        let mut ledger = ledger(&options, &opened, &format!("weir-{holder}"));
        let ask = ask.clone();
        async move {
            // Who asks first is granted a part only, so that a holder whose connection is slower finds something left.
            let mut sum = take_one(&mut ledger, &ask).await.granted;
            let first = sum;
            (first, async move {
                let mut empty = 0;
                while empty < 3 {
                    let granted = take_one(&mut ledger, &ask).await.granted;
                    sum += granted;
                    empty += u32::from(granted == 0);
                }
                sum
            })
        }
    };
    let ((first, a), (second, b), (third, c), (fourth, d)) = tokio::join!(hammer(0), hammer(1), hammer(2), hammer(3));
    for granted in [first, second, third, fourth] {
        assert!((1..LIMIT).contains(&granted), "{granted} of {LIMIT} at the first request");
    }
    let sums: [u64; 4] = tokio::join!(a, b, c, d).into();
    assert_eq!(sums.iter().sum::<u64>(), LIMIT, "{sums:?}");
}

#[tokio::test]
async fn tokens_given_back_twice_or_of_nothing_make_nothing() {
    let (server, keyspace, mut ledger) = alone().await;
    let taken = request("b", 10);
    let granted = take_one(&mut ledger, &taken).await;
    let all = all_of(&taken, &granted);
    let foreign = GiveBack { budget: budget("nobody's"), ..all.clone() };
    let mut back = Vec::new();
    ledger.give_back_each(&[all.clone(), all, foreign], |_, tokens, _| back.push(tokens)).await.unwrap();
    assert_eq!(back, [10, 0, 0]);
    for (name, fields) in [("b", &["s"][..]), ("nobody's", &[])] {
        let key = keyspace.budget_key(&budget(name));
        assert_eq!(server.query::<Vec<String>>(&["HKEYS", &key]).unwrap(), fields, "since when it is counted stays");
    }
}

/// Else what was admitted before the count and became visible after it would pass for a part of it, once the clock is right.
#[tokio::test]
async fn a_budget_that_is_counted_anew_by_a_server_that_is_behind_is_counted_since_then() {
    const HOUR_MS: i64 = 3_600_000;
    let moved = MovedClock::build().unwrap();
    let clock = moved.clock(0).unwrap();
    let server = RedisServer::start_by(&clock).unwrap();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let mut restorer = begun(&options, &Scope::Lost).await.unwrap().budgets();
    let (_, now) = look(&mut ledger, &budget("total"), 1).await;
    clock.set(-2 * HOUR_MS / 1_000).unwrap();
    let mut account = Account::default();
    account.add(0, 60);
    let held = Held::Replace(account);
    let change = BudgetChange { found: &BudgetState::Absent, becomes: BudgetState::Open, span: SpanNow::Total, held };
    assert_eq!(restorer.change(&budget("total"), &change, now).await.unwrap(), BudgetState::Absent);
    clock.set(0).unwrap();
    let hundred = TakeRequest { span: SpanNow::Total, ..request("total", 100) };
    let answers = take_patiently(&mut ledger, &[hundred]).await;
    assert!(answers[0].used == 160 && answers[0].counted_for_ms < HOUR_MS, "{answers:?}");
}

#[tokio::test]
async fn a_server_whose_clock_is_wrong_grants_nothing_and_frees_nothing() {
    const HOUR_S: i64 = 3_600;
    let moved = MovedClock::build().unwrap();
    let clock = moved.clock(0).unwrap();
    let server = RedisServer::start_by(&clock).unwrap();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let (_, now) = look(&mut ledger, &budget("rolling"), 1).await;
    let period = SpanNow::Period { start: now.plus(-DAY_MS), end: now.plus(DAY_MS) };
    let all: Vec<TakeRequest> = [("rolling", rolling(HOUR_S * 1_000)), ("period", period), ("total", SpanNow::Total)]
        .map(|(name, span)| TakeRequest { span, ..request(name, LIMIT) })
        .into();
    let (answers, result) = take(&mut ledger, &all).await;
    result.unwrap();
    assert!(answers.iter().flatten().all(|answer| answer.granted == LIMIT), "{answers:?}");
    // More than the window ahead, and behind.
    for (ahead_s, expected) in [(2 * HOUR_S, " s ahead of most others"), (-2 * HOUR_S, " s behind most others")] {
        clock.set(ahead_s).unwrap();
        let (answers, result) = take(&mut ledger, &all).await;
        assert!(answers.iter().all(Option::is_none), "{answers:?}");
        assert!(matches!(&result, Err(StoreError::Temporary(why)) if why.contains(expected)), "{result:?}");
    }
    // As far as clocks may be apart, none has left its window.
    for ahead_s in [240, 0, -240] {
        clock.set(ahead_s).unwrap();
        for answer in take_patiently(&mut ledger, &all).await {
            assert_eq!((answer.granted, answer.used), (0, LIMIT), "{ahead_s} s");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_of_a_moving_slot_are_granted_on_whichever_node_they_are() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let opened = opened(&options).await.unwrap();
    let mut ledger = ledger(&options, &opened, "weir-0");
    let keyspace = &opened.keyspace;
    let shard = keyspace.budget_shard(&budget("budget-0"));
    let of_shard = |from: usize| {
        let names = (from..).map(|number| format!("budget-{number}"));
        names.filter(|name| keyspace.budget_shard(&budget(name)) == shard).take(4).collect::<Vec<_>>()
    };
    let (old, new) = (of_shard(0), of_shard(10_000));
    take_patiently(&mut ledger, &requests(&old, 1)).await;
    let slot = keyspace.slot(shard);
    let from = cluster.owner_of(slot).unwrap();
    let half = cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
    let names = [old, new].concat();
    for (moved, expected) in [(None, [2, 1]), (Some(keyspace.epoch_key(shard)), [3, 2]), (None, [4, 3])] {
        if let Some(key) = moved {
            half.move_key(&key).unwrap();
            half.move_key(&keyspace.budget_key(&budget(&names[0]))).unwrap();
        }
        let answers = take(&mut ledger, &requests(&names, 1)).await;
        answers.1.unwrap();
        let used: Vec<u64> = answers.0.into_iter().map(|answer| answer.unwrap().used).collect();
        assert_eq!(used, [[expected[0]; 4], [expected[1]; 4]].concat());
    }
    while half.move_keys(100).unwrap() > 0 {}
    half.finish().unwrap();
    cluster.wait_agreed().unwrap();
    for (answer, expected) in take_patiently(&mut ledger, &requests(&names, 1)).await.iter().zip([5, 5, 5, 5, 4]) {
        assert_eq!(answer.used, expected);
    }
}
