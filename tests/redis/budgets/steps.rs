//! The scripts and the reference grant, take back and count anew alike: random steps, each repeated on the reference at the time that the
//! server's clock showed.

use std::collections::BTreeMap;

use fastrand::Rng;
use testkit::stack::Stack;
use weir_core::{
    budget::{BudgetId, MAX_LIMIT, SpanNow},
    ledger::{
        Book, CountId, GiveBack, TakeAnswer, TakeRequest, TurnNumber,
        recount::{Buckets, bucket_at},
    },
    time::Time,
};
use weir_redis::{
    RedisLedger,
    rebuild::{BudgetChange, BudgetRestorer, BudgetState, Held, Scope},
};

use super::{budget, ledger, look, request, rolling};
use crate::{
    redis_support::{DAY_MS, opened, options},
    refunds::begun,
};

/// Steps on each of the two.
const STEPS: usize = 100_000;
/// Steps that are sent at once.
const STEPS_A_ROUND: usize = 400;
/// Every so manieth round gives tokens back.
const GIVE_BACK_EVERY: usize = 4;
/// Before every so manieth round a budget is counted anew.
const COUNT_EVERY: usize = 6;
/// The grants that tokens are given back of: the latest ones, old enough that some have left the window.
const REMEMBERED: usize = 4_000;
const HOLDERS: [&str; 4] = ["weir-0", "weir-1", "", "a:b c"];
const HOUR_MS: i64 = 3_600_000;

/// What the steps are drawn from.
struct Draw {
    rng: Rng,
    budgets: Vec<BudgetId>,
    /// The server's clock at the beginning.
    began: Time,
    /// The last number of a turn.
    last_number: u64,
    /// The last turn of each kind, holder and budget.
    last_turns: BTreeMap<(Kind, usize, BudgetId), TurnNumber>,
}

/// What a turn is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Take,
    GiveBack,
}

impl Draw {
    fn new(seed: u64, began: Time) -> Self {
        let mut budgets: Vec<BudgetId> = (0..9).map(|number| budget(&format!("b{number}"))).collect();
        // Names that a key must keep apart.
        for (name, campaign) in [("a", "b:c"), ("a:b", "c"), ("b0", "may"), ("", "")] {
            budgets.push(BudgetId { name: name.into(), campaign: Some(campaign.into()) });
        }
        Self { rng: Rng::with_seed(seed), budgets, began, last_number: 0, last_turns: BTreeMap::new() }
    }

    /// Mostly the budget's own kind of window.
    fn span(&mut self, number: usize) -> SpanNow {
        let kind = if self.rng.u8(..20) == 0 { self.rng.usize(..) } else { number };
        let period = |minutes: i64| {
            let start = self.began.plus(minutes * HOUR_MS / 60);
            SpanNow::Period { start, end: start.plus(HOUR_MS) }
        };
        match kind % 4 {
            0 => rolling(*self.rng.choice(&[40, 600, 1_700, 5_000]).unwrap()),
            1 => rolling(1_700),
            // From long over to not begun; what began 59 to 61 minutes ago decides what of the others is dropped.
            2 => period(*self.rng.choice(&[-600, -122, -60, -59, -1, -1, -1, 0, 30]).unwrap()),
            _ => SpanNow::Total,
        }
    }

    /// A new turn, the last one again, one that another came after, one of another run of the process; or none.
    fn turn(&mut self, of: (Kind, usize, BudgetId)) -> Option<TurnNumber> {
        self.last_number += 1;
        let new = TurnNumber { run: 10, number: self.last_number };
        let last = self.last_turns.get(&of).copied().unwrap_or(new);
        let TurnNumber { run, number } = last;
        let turn = match self.rng.u8(..16) {
            0..4 => return None,
            4 => return Some(TurnNumber { run, number: number.saturating_sub(1).max(1) }),
            5 => return Some(TurnNumber { run: (run - 1).max(1), ..new }),
            6 => TurnNumber { run: run + 1, ..new },
            7..11 => last,
            _ => TurnNumber { run, ..new },
        };
        self.last_turns.insert(of, turn);
        Some(turn)
    }

    fn take(&mut self, holder: usize) -> TakeRequest {
        let number = self.rng.usize(..self.budgets.len());
        let budget = self.budgets[number].clone();
        let limit = *self.rng.choice(&[0, 1, 7, 1_000, 100_000, MAX_LIMIT - 1, MAX_LIMIT]).unwrap();
        // Budgets are mostly of one limit: large enough that they fill, and become free again.
        let limit = if self.rng.u8(..10) == 0 { limit } else { [20_000, 500, MAX_LIMIT - 1][number % 3] };
        let unit = if self.rng.bool() { 1 } else { (limit / 1_000).max(1) };
        let most = *self.rng.choice(&[limit / 2_000, limit / 100, limit]).unwrap();
        let want = self.rng.u64(..=most);
        TakeRequest {
            span: self.span(number),
            limit,
            need: if self.rng.bool() { 0 } else { self.rng.u64(..=want) },
            want,
            unit,
            least: self.rng.u64(1..=unit + 1),
            lease_ms: self.rng.i64(1..=300),
            turn: self.turn((Kind::Take, holder, budget.clone())),
            budget,
        }
    }

    /// A token of each budget, in a period. A key that ends is counted from another time on, which the reference does not know; with
    /// this none ends within two hours.
    fn firsts(&self) -> Vec<TakeRequest> {
        let span = SpanNow::Period { start: self.began, end: self.began.plus(HOUR_MS) };
        let one = TakeRequest { span, lease_ms: 1, ..request("", 1) };
        self.budgets.iter().map(|budget| TakeRequest { budget: budget.clone(), ..one.clone() }).collect()
    }

    /// Of some grant; sometimes more than were granted.
    fn give_back(&mut self, holder: usize, granted: &[GiveBack]) -> GiveBack {
        let mut given = granted[self.rng.usize(..granted.len())].clone();
        given.tokens = match self.rng.u8(..8) {
            0 => 0,
            1 => given.tokens.saturating_mul(3),
            2 => u64::MAX,
            3..6 => given.tokens,
            _ => self.rng.u64(..=given.tokens),
        };
        given.turn = self.turn((Kind::GiveBack, holder, given.budget.clone()));
        given
    }
}

/// What was seen of the ledger, to know that the steps reach everything.
#[derive(Debug, Default)]
struct Seen {
    granted: u32,
    denied: u32,
    /// Rolling windows from which tokens had left.
    freed: u32,
    waits: u32,
    never: u32,
    shared: u32,
    given_back: u32,
    too_late: u32,
    /// Turns that got what they had, or gave back what they had given.
    repeated: u32,
}

impl Seen {
    fn note(&mut self, request: &TakeRequest, answer: &TakeAnswer) {
        self.granted += u32::from(answer.granted > 0);
        self.denied += u32::from(answer.granted == 0 && request.want > 0);
        self.shared += u32::from(answer.granted > 0 && answer.granted < request.want);
        self.waits += u32::from(answer.free_in_ms.is_some_and(|wait| wait > 0));
        self.never += u32::from(answer.free_in_ms.is_none());
    }
}

async fn run(urls: &[String], seed: u64) -> Seen {
    let options = options(urls);
    let opened = opened(&options).await.unwrap();
    let mut ledgers = HOLDERS.map(|holder| ledger(&options, &opened, holder));
    let (_, began) = look(&mut ledgers[0], &budget("b0"), 1).await;
    let (mut draw, mut book, mut seen) = (Draw::new(seed, began), Book::default(), Seen::default());
    let mut granted: [Vec<GiveBack>; HOLDERS.len()] = Default::default();
    take(&mut ledgers[0], &mut book, HOLDERS[0], &draw.firsts(), &mut seen).await;
    let mut restorer = begun(&options, &Scope::Lost).await.unwrap().budgets();
    for round in 0..STEPS / STEPS_A_ROUND {
        if round % COUNT_EVERY == 0 {
            count_anew(&mut restorer, &mut ledgers[0], &mut book, &mut draw).await;
        }
        let holder = draw.rng.usize(..HOLDERS.len());
        if round % GIVE_BACK_EVERY == 3 && !granted[holder].is_empty() {
            let tokens: Vec<GiveBack> = (0..STEPS_A_ROUND).map(|_| draw.give_back(holder, &granted[holder])).collect();
            give_back(&mut ledgers[holder], &mut book, HOLDERS[holder], &tokens, &mut seen).await;
        } else {
            let requests: Vec<TakeRequest> = (0..STEPS_A_ROUND).map(|_| draw.take(holder)).collect();
            let grants = take(&mut ledgers[holder], &mut book, HOLDERS[holder], &requests, &mut seen).await;
            granted[holder].extend(grants);
            let too_many = granted[holder].len().saturating_sub(REMEMBERED);
            granted[holder].drain(..too_many);
        }
    }
    seen
}

/// Counts some budget anew, as a rebuild does.
async fn count_anew(restorer: &mut BudgetRestorer, ledger: &mut RedisLedger, book: &mut Book, draw: &mut Draw) {
    let number = draw.rng.usize(..draw.budgets.len());
    let (budget, span) = (draw.budgets[number].clone(), draw.span(number));
    let (_, now) = look(ledger, &budget, 1).await;
    let mut tokens = Buckets::new();
    for _ in 0..draw.rng.usize(..4) {
        let spent_at = now.plus(-draw.rng.i64(0..2_000));
        *tokens.entry(bucket_at(span, spent_at)).or_default() += draw.rng.u64(1..200);
    }
    let held = Held::Replace(tokens.clone());
    let change = BudgetChange { found: &BudgetState::Open, becomes: BudgetState::Open, span, held };
    assert_eq!(restorer.change(&budget, &change, now).await.unwrap(), BudgetState::Open);
    let mut count_id = CountId::default();
    let look = TakeRequest { budget: budget.clone(), need: 0, want: 0, ..request("", 1) };
    ledger.take_each(&[look], &[0], |_, answer, _| count_id = answer.count_id).await.unwrap();
    book.recount(Time::from_millis(count_id.0).unwrap(), &budget, span, &tokens);
}

async fn take(
    ledger: &mut RedisLedger,
    book: &mut Book,
    holder: &str,
    requests: &[TakeRequest],
    seen: &mut Seen,
) -> Vec<GiveBack> {
    let mut answers = vec![None; requests.len()];
    let open: Vec<usize> = (0..requests.len()).collect();
    ledger.take_each(requests, &open, |at, answer, now| answers[at] = Some((answer, now))).await.unwrap();
    let mut grants = Vec::new();
    for (request, answer) in requests.iter().zip(answers) {
        let (answer, now) = answer.unwrap();
        let before = used(book, now, (&request.budget, request.span));
        let expected = book.take(now, holder, request);
        seen.repeated += u32::from(answer.granted > 0 && answer.used == before);
        assert_eq!(answer, expected, "{holder:?} at {now}: {request:?}");
        seen.note(request, &answer);
        if answer.granted > 0 {
            let TakeAnswer { granted: tokens, bucket, count_id, .. } = answer;
            grants.push(GiveBack {
                budget: request.budget.clone(),
                span: request.span,
                bucket,
                count_id,
                tokens,
                turn: None,
            });
        }
    }
    grants
}

/// What the reference counts of a budget.
fn used(book: &mut Book, now: Time, (budget, span): (&BudgetId, SpanNow)) -> u64 {
    book.take(now, "", &TakeRequest { budget: budget.clone(), span, need: 0, want: 0, ..request("", 1) }).used
}

async fn give_back(ledger: &mut RedisLedger, book: &mut Book, holder: &str, tokens: &[GiveBack], seen: &mut Seen) {
    let mut answers = vec![None; tokens.len()];
    ledger.give_back_each(tokens, |at, back, now| answers[at] = Some((back, now))).await.unwrap();
    for (given, answer) in tokens.iter().zip(answers) {
        let (back, now) = answer.unwrap();
        let rolls = matches!(given.span, SpanNow::Rolling { .. });
        let of = (&given.budget, if rolls { rolling(DAY_MS) } else { given.span });
        let before = used(book, now, of);
        assert_eq!(back, book.give_back(now, holder, given), "{holder:?} at {now}: {given:?}");
        seen.given_back += u32::from(back > 0);
        seen.repeated += u32::from(back > 0 && used(book, now, of) == before);
        seen.too_late += u32::from(back == 0 && given.tokens > 0);
        seen.freed += u32::from(back == 0 && rolls);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_random_steps_are_those_of_the_reference() {
    let (server, cluster) = (vec![Stack::shared().redis().to_owned()], Stack::shared().redis_cluster().to_vec());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let (one, many) = tokio::join!(run(&server, seed), run(&cluster, seed));
    for seen in [one, many] {
        eprintln!("{seen:?}");
        let Seen { granted, denied, freed, waits, never, shared, given_back, too_late, repeated } = seen;
        let fewest = [granted, denied, freed, waits, never, shared, given_back, too_late, repeated].into_iter().min();
        assert!(fewest >= Some(1_000), "the steps reach too little: {seen:?}");
    }
}
