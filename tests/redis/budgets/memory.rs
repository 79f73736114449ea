//! How much memory of Redis a budget takes, and for how long.

use std::sync::Arc;

use testkit::redis::RedisServer;
use weir_core::limit::budget::{
    BudgetId, SpanNow,
    ledger::{Account, CountId, GiveBack, TakeAnswer, TakeTurn},
};
use weir_redis::{
    Keyspace, RedisLedger, RedisOptions,
    rebuild::{BudgetChange, BudgetKeyState, Held, Scope},
};

use super::{LIMIT, all_of, alone, budget, giving, ledger, look, new_number, rolling, take, turn, used};
use crate::{
    redis_support::{DAY_MS, opened, own, own_keyspace, server},
    refunds::begun,
};

const HOUR_MS: i64 = 3_600_000;

/// A server whose one shard has so many totals at the most.
async fn few_totals(max_totals: u32) -> (RedisServer, Arc<Keyspace>, RedisLedger) {
    let server = server();
    let options = RedisOptions { shards: 1, max_totals, ..own(&server) };
    let opened = opened(&options).await.unwrap();
    let ledger = ledger(&options, &opened, "weir-0");
    (server, opened.keyspace, ledger)
}

fn of(campaign: &str) -> BudgetId {
    BudgetId { name: "money".into(), campaign: Some(campaign.into()) }
}

fn total(tokens: u64) -> TakeTurn {
    TakeTurn { span: SpanNow::Total, ..turn(tokens) }
}

async fn take_of(ledger: &mut RedisLedger, budget: &BudgetId, turn: &TakeTurn) -> TakeAnswer {
    ledger.turn_at(budget, new_number(), turn).await.unwrap().unwrap().0
}

/// What docs/budgets.md says: with its name and up to 60 buckets.
#[tokio::test]
async fn a_budget_takes_at_most_4_kb_and_450_bytes_for_each_holder_in_redis() {
    const HOLDERS: usize = 8;
    let (server, options, opened) = own_keyspace().await;
    let key = opened.keyspace.budget_key(&budget("large"));
    let mut holders: Vec<_> = (0..HOLDERS).map(|number| ledger(&options, &opened, &format!("weir-{number}"))).collect();
    let one = TakeTurn { limit: 10_u64.pow(15), ..turn(1_000_000) };
    let bytes = || server.query::<usize>(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).unwrap();
    let some = async |by: &mut RedisLedger, back| take(by, "large", &TakeTurn { back, ..one.clone() }).await.unwrap();
    let last = some(&mut holders[0], Vec::new()).await.bucket;
    for earlier in 1..60 {
        let bucket = last - earlier * DAY_MS / 60;
        server.query::<()>(&["HSET", &key, &bucket.to_string(), "123456789"]).unwrap();
    }
    let (used, _) = look(&mut holders[0], &budget("large"), DAY_MS).await;
    assert_eq!(used, 59 * 123_456_789 + 1_000_000, "all buckets count");
    let alone = bytes();
    for ledger in &mut holders {
        let mut back = Vec::new();
        for _ in 0..20 {
            let answer = some(ledger, back).await;
            back = vec![GiveBack { tokens: 7, ..all_of(&one, &answer) }];
        }
    }
    let all = bytes();
    assert!(alone <= 4_000 + 450, "{alone} bytes with one lease");
    assert!(all <= 4_000 + HOLDERS * 450, "{all} bytes with {HOLDERS} holders");
}

/// What `weir plan` reckons with.
#[tokio::test]
async fn a_total_of_a_campaign_takes_at_most_1_1_kb_with_one_lease() {
    let (server, keyspace, mut ledger) = few_totals(1).await;
    let budget = of(&"c".repeat(40));
    let key = keyspace.budget_key(&budget);
    let one = TakeTurn { limit: 10_u64.pow(15), ..total(1_000_000) };
    let mut back = Vec::new();
    for _ in 0..20 {
        let answer = take_of(&mut ledger, &budget, &TakeTurn { back, ..one.clone() }).await;
        back = vec![GiveBack { tokens: 7, ..all_of(&one, &answer) }];
    }
    let bytes = server.query::<usize>(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).unwrap();
    assert!(bytes <= 1_100, "{bytes} bytes");
}

#[tokio::test]
async fn a_key_ends_a_day_after_what_it_counts_and_only_a_total_stays() {
    let (server, keyspace, mut ledger) = alone().await;
    let (_, now) = look(&mut ledger, &budget("b"), 1).await;
    let options = own(&server);
    let mut seen = super::ledger(&options, &opened(&options).await.unwrap(), "");
    let left = |name: &str| server.query::<i64>(&["PTTL", &keyspace.budget_key(&budget(name))]).unwrap();
    let mut of = async |name: &str, span| take(&mut ledger, name, &TakeTurn { span, ..turn(1) }).await.unwrap();
    let period = |start: i64| SpanNow::Period { start: now.plus(start), end: now.plus(start + DAY_MS) };

    of("rolling", rolling(DAY_MS)).await;
    assert!((2 * DAY_MS + 4_000..2 * DAY_MS + 12_000 + DAY_MS / 60).contains(&left("rolling")), "{}", left("rolling"));
    of("period", period(-DAY_MS / 2)).await;
    let expected = DAY_MS / 2 + HOUR_MS + DAY_MS;
    assert!((expected - 60_000..=expected).contains(&left("period")), "{}", left("period"));
    // Neither the period before nor a shorter window of another policy makes the key end earlier.
    of("period", period(-DAY_MS - DAY_MS / 2)).await;
    of("period", rolling(600)).await;
    assert!((expected - 60_000..=expected).contains(&left("period")), "{}", left("period"));
    // A look writes nothing, not even how long the key lives.
    server.query::<()>(&["PEXPIRE", &keyspace.budget_key(&budget("rolling")), "50000"]).unwrap();
    used(&mut seen, "rolling").await;
    assert!(left("rolling") <= 50_000);
    used(&mut seen, "nobody's").await;
    assert_eq!(left("nobody's"), -2, "there is none");

    of("total", SpanNow::Total).await;
    assert_eq!(left("total"), -1, "it stays");
    of("total", rolling(600)).await;
    assert_eq!(left("total"), -1, "the next version of the policy may count in total again");
    of("b", rolling(600)).await;
    of("b", SpanNow::Total).await;
    assert_eq!(left("b"), -1, "a total from now on");

    let short = TakeTurn { lease_ms: 20, span: rolling(300), ..turn(1) };
    let back = all_of(&short, &take(&mut ledger, "short", &short).await.unwrap());
    assert!((DAY_MS - 60_000..=DAY_MS + 345).contains(&left("short")), "{}", left("short"));
    take(&mut ledger, "nobody's", &giving(&[back])).await.unwrap();
    assert_eq!(left("nobody's"), -2, "what comes back makes none");
}

#[tokio::test]
async fn totals_of_campaigns_are_bounded_and_those_that_had_to_go_stay_spent() {
    const MOST: usize = 20;
    let (server, keyspace, mut ledger) = few_totals(20).await;
    let of = |number: usize| of(&format!("c{number}"));
    let mut some = async |number: usize, tokens| take_of(&mut ledger, &of(number), &total(tokens)).await;
    let there = |number: usize| {
        let exists = server.query::<u8>(&["EXISTS", &keyspace.budget_key(&of(number))]).unwrap();
        exists == 1
    };
    for number in 0..MOST {
        assert_eq!(some(number, 10).await.granted, 10);
    }
    let spent = MOST - 1;
    assert_eq!(some(spent, LIMIT - 10).await.used, LIMIT);
    assert_eq!(some(spent, 1).await.granted, 0);
    // It makes room first, though it is the youngest; then the oldest do.
    assert_eq!(some(MOST, 10).await.granted, 10, "room is made at once");
    assert!(!there(spent) && there(0), "the spent one goes first");
    for number in MOST + 1..5 * MOST {
        assert_eq!(some(number, 10).await.granted, 10, "{number}");
    }
    let left = (0..5 * MOST).filter(|number| there(*number)).count();
    assert!(left == MOST && there(5 * MOST - 1), "{left} are left");
    for number in [0, spent] {
        let answer = some(number, 10).await;
        assert_eq!((answer.granted, answer.used, answer.free_in_ms), (0, LIMIT, None), "{number} stays spent");
        assert!(!there(number), "and takes no memory");
    }
}

#[tokio::test]
async fn a_total_that_tokens_came_back_to_is_none_of_the_spent_ones_that_go_first() {
    let (_server, _, mut ledger) = few_totals(2).await;
    let total = total(10);
    take_of(&mut ledger, &of("a"), &total).await;
    let answer = take_of(&mut ledger, &of("b"), &total).await;
    // Who gives back and wants nothing says no limit.
    let back = TakeTurn { span: SpanNow::Total, limit: 0, ..giving(&[all_of(&total, &answer)]) };
    assert_eq!(take_of(&mut ledger, &of("b"), &back).await.used, 0);
    assert_eq!(take_of(&mut ledger, &of("c"), &total).await.granted, 10, "room is made");
    assert_eq!(take_of(&mut ledger, &of("b"), &total).await.granted, 10, "the oldest has gone");
}

#[tokio::test]
async fn a_spent_total_that_nothing_came_back_to_goes_first() {
    let (server, keyspace, mut ledger) = few_totals(2).await;
    let total = total(10);
    take_of(&mut ledger, &of("open"), &total).await;
    let all = TakeTurn { span: SpanNow::Total, ..turn(LIMIT) };
    let granted = take_of(&mut ledger, &of("spent"), &all).await;
    // Of another count.
    let vain = GiveBack { count_id: CountId(1), ..all_of(&all, &granted) };
    let answer =
        take_of(&mut ledger, &of("spent"), &TakeTurn { span: SpanNow::Total, limit: 0, ..giving(&[vain]) }).await;
    assert_eq!(answer.used, LIMIT);
    assert_eq!(take_of(&mut ledger, &of("new"), &total).await.granted, 10, "room is made");
    let there = ["open", "spent", "new"]
        .map(|campaign| server.query::<u8>(&["EXISTS", &keyspace.budget_key(&of(campaign))]).unwrap());
    assert_eq!(there, [1, 0, 1]);
}

#[tokio::test]
async fn a_turn_that_only_gives_back_makes_no_total_and_none_has_to_go_for_it() {
    let (server, keyspace, mut ledger) = few_totals(1).await;
    let total = total(10);
    let granted = take_of(&mut ledger, &of("there"), &total).await;
    let back = TakeTurn { span: SpanNow::Total, limit: 0, ..giving(&[all_of(&total, &granted)]) };
    assert_eq!(take_of(&mut ledger, &of("lost"), &back).await.used, 0);
    let exists = |campaign: &str| server.query::<u8>(&["EXISTS", &keyspace.budget_key(&of(campaign))]).unwrap() == 1;
    assert!(exists("there") && !exists("lost"));
    assert_eq!(take_of(&mut ledger, &of("there"), &total).await.used, 20, "it is the one that there was");
}

#[tokio::test]
async fn of_totals_that_a_rebuild_writes_those_that_are_closed_or_spent_go_first_and_those_without_room_are_spent() {
    const MOST: u32 = 3;
    let server = server();
    let options = RedisOptions { shards: 1, max_totals: MOST, ..own(&server) };
    let opened = opened(&options).await.unwrap();
    let (keyspace, mut ledger) = (Arc::clone(&opened.keyspace), ledger(&options, &opened, "weir-0"));
    let total = total(10);
    take_of(&mut ledger, &of("old"), &total).await;
    let (_, now) = look(&mut ledger, &budget("b"), 1).await;
    let rebuild = begun(&options, &Scope::All).await.unwrap();
    let mut restorer = rebuild.budgets();
    let new = ["closed", "spent", "beyond"].map(of);
    let gone = restorer.without_room(&new).await.unwrap();
    assert_eq!(gone, [of("beyond")], "the last one");
    restorer.mark_gone(&gone).await.unwrap();
    let mut all = Account::default();
    all.add(0, LIMIT);
    let closed = BudgetKeyState::Closed("nobody knows what it has used".to_owned());
    for (id, becomes, account) in [(&new[0], closed, Account::default()), (&new[1], BudgetKeyState::Open, all)] {
        let (found, held) = (&BudgetKeyState::Absent, Held::Replace(account));
        let change = BudgetChange { found, becomes, span: SpanNow::Total, limit: LIMIT, held };
        assert_eq!(restorer.change(id, &change, now).await.unwrap(), BudgetKeyState::Absent);
    }
    assert!(restorer.without_room(&[of("one more")]).await.unwrap() == [of("one more")], "all is full");
    assert!(rebuild.finish().await.unwrap().is_empty());

    let answer = take_of(&mut ledger, &of("beyond"), &total).await;
    assert_eq!((answer.granted, answer.used, answer.free_in_ms), (0, LIMIT, None), "it is spent");
    for campaign in ["new", "newer"] {
        assert_eq!(take_of(&mut ledger, &of(campaign), &total).await.granted, 10, "room is made");
    }
    let there = ["old", "closed", "spent", "beyond", "new", "newer"]
        .map(|campaign| server.query::<u8>(&["EXISTS", &keyspace.budget_key(&of(campaign))]).unwrap());
    assert_eq!(there, [1, 0, 0, 0, 1, 1]);
}

#[tokio::test]
async fn a_total_that_counts_in_a_window_by_now_is_kept() {
    let (_server, _, mut ledger) = few_totals(1).await;
    let total = total(10);
    take_of(&mut ledger, &of("a"), &total).await;
    // Another version of the policy.
    assert_eq!(take_of(&mut ledger, &of("a"), &turn(LIMIT)).await.used, LIMIT);
    assert_eq!(take_of(&mut ledger, &of("b"), &total).await.granted, 10, "room is made");
    let spent = take_of(&mut ledger, &of("a"), &turn(LIMIT)).await;
    assert_eq!((spent.granted, spent.used), (0, LIMIT));
}
