//! The ledger of budgets never grants more than a limit, whatever is lost, repeated or moved; and a part of Redis that is in trouble
//! keeps no other part from answering.

mod memory;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use testkit::{
    clock::ProcessClock,
    redis::{RedisCluster, RedisServer},
    stack::Stack,
};
use weir_core::{
    basis::time::Time,
    limit::{
        budget::{
            BudgetId, SpanNow,
            lease::BudgetUse,
            ledger::{Account, GiveBack, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::{Clock, StoreError},
};
use weir_redis::{
    Keyspace, LedgerClock, Opened, RedisLedger, RedisOptions, RedisStats,
    rebuild::{BudgetChange, BudgetKeyState, Held, Scope},
};
use weir_worker::clock::SystemClock;

use crate::{
    redis_support::{DAY_MS, lost, opened, options, own, own_keyspace, patiently},
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
    RedisLedger::with(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, holder, clock)
}

/// A keyspace, and a ledger on it.
async fn ledger_of(options: &RedisOptions) -> (Opened, RedisLedger) {
    let opened = opened(options).await.unwrap();
    let ledger = ledger(options, &opened, "weir-0");
    (opened, ledger)
}

/// A ledger on a server of one's own that goes by a clock of its own.
async fn by_a_clock() -> (ProcessClock, RedisServer, RedisOptions, RedisLedger) {
    let clock = ProcessClock::ahead(0).unwrap();
    let server = RedisServer::start_by(&clock).unwrap();
    let options = own(&server);
    let (_, ledger) = ledger_of(&options).await;
    (clock, server, options, ledger)
}

/// A turn for exactly so many tokens of a budget per day.
pub(crate) fn turn(tokens: u64) -> TakeTurn {
    TakeTurn { need: tokens, want: tokens, lease_ms: 5_000, ..TakeTurn::nothing(rolling(DAY_MS), LIMIT) }
}

/// A turn that wants nothing, and gives tokens back.
pub(crate) fn giving(back: &[GiveBack]) -> TakeTurn {
    TakeTurn { back: back.to_vec(), ..turn(0) }
}

/// All of the tokens that a turn was granted.
pub(crate) fn all_of(turn: &TakeTurn, answer: &TakeAnswer) -> GiveBack {
    let TakeAnswer { granted: tokens, bucket, count_id, .. } = *answer;
    GiveBack { span: turn.span, bucket, count_id, tokens }
}

/// A turn that no holder has made.
pub(crate) fn new_number() -> TurnNumber {
    static LAST: AtomicU64 = AtomicU64::new(1_000);
    TurnNumber { run: 1_838_215_884_800_001, number: LAST.fetch_add(1, Relaxed) }
}

async fn take(ledger: &mut RedisLedger, name: &str, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
    Ok(ledger.turn_at(&budget(name), new_number(), turn).await?.expect("it is a later one").0)
}

/// Asks again, in another turn, until it is answered, for at most a minute.
async fn take_patiently(ledger: &mut RedisLedger, name: &str, turn: &TakeTurn) -> TakeAnswer {
    take_turn_patiently(ledger, name, new_number(), turn).await
}

/// Repeats a turn until it is answered, for at most a minute.
async fn take_turn_patiently(ledger: &mut RedisLedger, name: &str, number: TurnNumber, turn: &TakeTurn) -> TakeAnswer {
    let mut said = None;
    let done = patiently(Duration::from_secs(60), async || match ledger.turn_at(&budget(name), number, turn).await {
        Ok(answer) => Some(answer.expect("it is the last one").0),
        Err(StoreError::Temporary(why)) => {
            said = Some(why);
            None
        }
        Err(other) => panic!("{other:?}"),
    });
    let done = done.await;
    done.unwrap_or_else(|| panic!("no answer within a minute; last: {said:?}"))
}

/// What is used of a budget in so long a window, and the server's clock.
pub(crate) async fn look(ledger: &mut RedisLedger, budget: &BudgetId, window_ms: i64) -> (u64, Time) {
    let look = TakeTurn { span: rolling(window_ms), ..turn(0) };
    let (answer, now) = ledger.turn_at(budget, TurnNumber::default(), &look).await.unwrap().unwrap();
    (answer.used, now)
}

async fn used(ledger: &mut RedisLedger, name: &str) -> u64 {
    look(ledger, &budget(name), DAY_MS).await.0
}

async fn alone() -> (RedisServer, Arc<Keyspace>, RedisLedger) {
    let (server, options, opened) = own_keyspace().await;
    let ledger = ledger(&options, &opened, "weir-0");
    (server, opened.keyspace, ledger)
}

/// Names of budgets, some of each shard.
fn names() -> Vec<String> {
    (0..64).map(|number| format!("budget-{number}")).collect()
}

#[tokio::test]
async fn a_budget_of_a_lost_shard_grants_nothing_and_others_do() {
    let (server, keyspace, mut ledger) = alone().await;
    let shard = keyspace.budget_shard(&budget("lost"));
    let other = names().into_iter().find(|name| keyspace.budget_shard(&budget(name)) != shard).unwrap();
    let granted = take(&mut ledger, "lost", &turn(10)).await.unwrap();
    server.query::<()>(&["DEL", &keyspace.epoch_key(shard)]).unwrap();

    assert_eq!(take(&mut ledger, &other, &turn(10)).await.unwrap().granted, 10);
    for turn in [turn(10), giving(&[all_of(&turn(10), &granted)])] {
        let (shards, message) = lost(take(&mut ledger, "lost", &turn).await);
        assert_eq!(shards, [shard]);
        assert!(message.contains("budget lost") && message.contains("weir rebuild"), "{message}");
    }
    server.query::<()>(&["SET", &keyspace.epoch_key(shard), keyspace.epoch()]).unwrap();
    assert_eq!(used(&mut ledger, "lost").await, 10, "nothing was granted or given back meanwhile");
}

#[tokio::test]
async fn a_closed_budget_grants_nothing_and_takes_tokens_back_once_it_is_open() {
    let (server, keyspace, mut ledger) = alone().await;
    let granted = take(&mut ledger, "closed", &turn(10)).await.unwrap();
    let key = keyspace.budget_key(&budget("closed"));
    server.query::<()>(&["HSET", &key, "x", "the topic begins later"]).unwrap();
    assert_eq!(take(&mut ledger, "open", &turn(10)).await.unwrap().granted, 10);
    let (number, exchange) = (new_number(), TakeTurn { back: vec![all_of(&turn(4), &granted)], ..turn(1) });
    let (shards, message) = lost(ledger.turn_at(&budget("closed"), number, &exchange).await);
    assert_eq!(shards, [keyspace.budget_shard(&budget("closed"))]);
    for part in ["budget closed", "the topic begins later", "weir rebuild"] {
        assert!(message.contains(part), "{message}");
    }
    server.query::<()>(&["HDEL", &key, "x"]).unwrap();
    let (answer, _) = ledger.turn_at(&budget("closed"), number, &exchange).await.unwrap().unwrap();
    assert_eq!((answer.granted, answer.used), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_keeps_no_answer_of_the_others_away() {
    let mut cluster = RedisCluster::start(3, 0).unwrap();
    let options = RedisOptions { response_timeout: Duration::from_secs(60), ..options(&cluster.nodes()) };
    let (opened, mut ledger) = ledger_of(&options).await;
    for name in names() {
        take_patiently(&mut ledger, &name, &turn(2)).await;
    }
    let (limit, span, unavailable_after) = (LIMIT, rolling(DAY_MS), None);
    let used = |name: String| BudgetUse { id: budget(&name), limit, span, best_effort: true, unavailable_after };
    let uses: Vec<BudgetUse> = names().into_iter().map(used).collect();
    let slot = |used: &BudgetUse| opened.keyspace.slot(opened.keyspace.budget_shard(&used.id));
    let silent: Vec<bool> = uses.iter().map(|used| cluster.owner_of(slot(used)).unwrap() == 2).collect();
    cluster.freeze(2);
    let healthy = silent.iter().filter(|silent| !**silent).count();
    let (told, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let all = ledger.look_each(&uses, 1, |at, answer| told.send((at, answer)).unwrap());
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
async fn holders_that_take_at_once_share_the_limit_and_use_all_of_it() {
    let options = options(&[Stack::shared().redis()]);
    let opened = opened(&options).await.unwrap();
    let ask = TakeTurn { want: 200, ..turn(1) };
    let hammer = |holder: usize| {
        let mut ledger = ledger(&options, &opened, &format!("weir-{holder}"));
        let ask = ask.clone();
        async move {
            // Who asks first is granted a part only, so that a holder whose connection is slower finds something left.
            let mut sum = take(&mut ledger, "b", &ask).await.unwrap().granted;
            let first = sum;
            (first, async move {
                let mut empty = 0;
                while empty < 3 {
                    let granted = take(&mut ledger, "b", &ask).await.unwrap().granted;
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

/// Else what was admitted before the count and became visible after it would pass for a part of it, once the clock is right.
#[tokio::test]
async fn a_budget_that_is_counted_anew_by_a_server_that_is_behind_is_counted_since_then() {
    const HOUR_MS: i64 = 3_600_000;
    let (clock, _server, options, mut ledger) = by_a_clock().await;
    let mut restorer = begun(&options, &Scope::Lost).await.unwrap().budgets();
    let (_, now) = look(&mut ledger, &budget("total"), 1).await;
    clock.set(-2 * HOUR_MS / 1_000).unwrap();
    let mut account = Account::default();
    account.add(0, 60);
    let held = Held::Replace(account);
    let change = BudgetChange {
        found: &BudgetKeyState::Absent,
        becomes: BudgetKeyState::Open,
        span: SpanNow::Total,
        limit: LIMIT,
        held,
    };
    assert_eq!(restorer.change(&budget("total"), &change, now).await.unwrap(), BudgetKeyState::Absent);
    clock.set(0).unwrap();
    let answer = take_patiently(&mut ledger, "total", &TakeTurn { span: SpanNow::Total, ..turn(100) }).await;
    assert!(answer.used == 160 && answer.counted_for_ms < HOUR_MS, "{answer:?}");
}

/// A rebuild whose reply was lost makes its change again.
#[tokio::test]
async fn a_budget_that_a_rebuild_has_opened_is_told_from_one_that_was_lost_and_begun_anew() {
    let (server, options, opened) = own_keyspace().await;
    let mut ledger = ledger(&options, &opened, "weir-0");
    let mut restorer = begun(&options, &Scope::Lost).await.unwrap().budgets();
    let (total, span) = (budget("total"), SpanNow::Total);
    let (_, now) = look(&mut ledger, &total, 1).await;
    let (closed, held) = (BudgetKeyState::Closed("a run counts it".to_owned()), Held::Add(Account::default()));
    let close = BudgetChange { found: &BudgetKeyState::Absent, becomes: closed.clone(), span, limit: LIMIT, held };
    assert_eq!(restorer.change(&total, &close, now).await.unwrap(), BudgetKeyState::Absent);
    let mut account = Account::default();
    account.add(0, 60);
    let open =
        BudgetChange { found: &closed, becomes: BudgetKeyState::Open, span, limit: LIMIT, held: Held::Add(account) };
    assert_eq!(restorer.change(&total, &open, now).await.unwrap(), closed);
    let of_total = |tokens| TakeTurn { span, ..turn(tokens) };
    assert_eq!(take(&mut ledger, "total", &of_total(100)).await.unwrap().used, 160);
    assert_eq!(restorer.change(&total, &open, now).await.unwrap(), closed, "it is done already");
    assert_eq!(take(&mut ledger, "total", &of_total(10)).await.unwrap().used, 170, "and not twice");

    server.query::<()>(&["DEL", &opened.keyspace.budget_key(&total)]).unwrap();
    assert_eq!(take(&mut ledger, "total", &of_total(10)).await.unwrap().used, 10);
    assert_eq!(restorer.change(&total, &open, now).await.unwrap(), BudgetKeyState::Open);
    assert_eq!(take(&mut ledger, "total", &of_total(10)).await.unwrap().used, 20, "nothing was changed");
}

#[tokio::test]
async fn a_server_whose_clock_is_wrong_grants_nothing_and_frees_nothing() {
    const HOUR_S: i64 = 3_600;
    let (clock, _server, _, mut ledger) = by_a_clock().await;
    let (_, now) = look(&mut ledger, &budget("rolling"), 1).await;
    let period = SpanNow::Period { start: now.plus(-DAY_MS), end: now.plus(DAY_MS) };
    let all = [("rolling", rolling(HOUR_S * 1_000)), ("period", period), ("total", SpanNow::Total)]
        .map(|(name, span)| (name, TakeTurn { span, ..turn(LIMIT) }));
    for (name, turn) in &all {
        assert_eq!(take(&mut ledger, name, turn).await.unwrap().granted, LIMIT, "{name}");
    }
    // More than the window ahead, and behind.
    for (ahead_s, expected) in [(2 * HOUR_S, " s ahead of most others"), (-2 * HOUR_S, " s behind most others")] {
        clock.set(ahead_s).unwrap();
        for (name, turn) in &all {
            let result = take(&mut ledger, name, turn).await;
            assert!(matches!(&result, Err(StoreError::Temporary(why)) if why.contains(expected)), "{result:?}");
        }
    }
    // As far as clocks may be apart, none has left its window.
    for ahead_s in [240, 0, -240] {
        clock.set(ahead_s).unwrap();
        for (name, turn) in &all {
            let answer = take_patiently(&mut ledger, name, turn).await;
            assert_eq!((answer.granted, answer.used), (0, LIMIT), "{name} {ahead_s} s");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_slot_moves_budgets_are_granted_on_whichever_node_they_are_and_unknown_campaigns_stay_closed() {
    const WHY: &str = "nobody knows what they have used";
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let (opened, mut ledger) = ledger_of(&options).await;
    let (keyspace, shard) = (&opened.keyspace, 0);
    let of_shard = |name: &str| {
        let of = |number| BudgetId { name: name.into(), campaign: Some(format!("campaign-{number}").into()) };
        (0..).map(of).filter(|id| keyspace.budget_shard(id) == shard).take(5).collect::<Vec<_>>()
    };
    let (closed, open, old) = (of_shard("closed"), of_shard("open"), of_shard("old").remove(0));
    ledger.turn_at(&old, new_number(), &turn(1)).await.unwrap();
    let slot = keyspace.slot(shard);
    let from = cluster.owner_of(slot).unwrap();
    let unknown = keyspace.unknown_key(shard);
    cluster.node(from).query::<()>(&["HSET", &unknown, "closed", &format!("0 {WHY}")]).unwrap();
    let half = cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
    let moved = [None, Some(keyspace.epoch_key(shard)), Some(unknown), Some(keyspace.budget_key(&old))];
    for (((closed, open), moved), used) in closed.iter().zip(&open).zip(moved).zip(2..) {
        if let Some(key) = moved {
            half.move_key(&key).unwrap();
        }
        let refused = ledger.turn_at(closed, new_number(), &turn(1)).await;
        assert!(refused.is_err(), "{refused:?}");
        for (budget, used) in [(open, 1), (&old, used)] {
            let (answer, _) = ledger.turn_at(budget, new_number(), &turn(1)).await.unwrap().unwrap();
            assert_eq!((answer.granted, answer.used), (1, used), "{budget:?}");
        }
    }
    half.finish().unwrap();
    let asked =
        patiently(Duration::from_secs(60), async || match ledger.turn_at(&closed[4], new_number(), &turn(1)).await {
            Err(StoreError::LostHistory { message, .. }) => Some(message),
            Err(StoreError::Temporary(_)) => None,
            other => panic!("{other:?}"),
        });
    assert!(asked.await.is_some_and(|message| message.contains(WHY)));
}
