//! Budgets: `lua/take.lua`, `lua/give_back.lua` and `lua/restore_budget.lua`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use fastrand::Rng;
use weir_core::{
    budget::{BudgetId, MAX_LIMIT, SpanNow},
    ledger::{Account, Book, GiveBack, Grain, TakeAnswer, TakeRequest},
    limit::share::TurnNumber,
    ports::StoreError,
    time::Time,
};
use weir_redis::{
    RedisLedger,
    rebuild::{BudgetChange, BudgetRestorer, BudgetState, Held, Scope},
};

use super::{Place, Reached, Scripted};
use crate::{
    budgets::{all_of, budget, ledger, request, rolling},
    redis_support::DAY_MS,
    refunds::begun,
};

/// Steps that are sent at once.
const AT_ONCE: usize = 400;
/// The grants that tokens are given back of: the latest ones, old enough that some have left the window.
const REMEMBERED: usize = 4_000;
const HOLDERS: [&str; 4] = ["weir-0", "weir-1", "", "a:b c"];
const HOUR_MS: i64 = 3_600_000;

#[derive(Debug)]
pub(super) enum Step {
    Take(TakeRequest),
    GiveBack(GiveBack),
    /// A rebuild counts a budget anew: sent alone.
    Recount(BudgetId, SpanNow, Account),
}

#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Taken(TakeAnswer),
    Back(u64),
    Counted,
}

pub(super) struct Budgets {
    place: Arc<Place>,
    ledgers: [RedisLedger; HOLDERS.len()],
    restorer: BudgetRestorer,
    book: Book,
    budgets: Vec<BudgetId>,
    granted: [VecDeque<GiveBack>; HOLDERS.len()],
    /// The server's clock at the beginning, and at the last step.
    began: Time,
    now: Time,
    /// The last number of a turn.
    last_number: u64,
    /// The last turn of each holder at each budget, of takes (`true`) and of what is given back.
    last_turns: BTreeMap<(bool, usize, BudgetId), TurnNumber>,
    /// Whether the last step came to what it had come to before.
    is_repeated: bool,
}

impl Budgets {
    /// Mostly the budget's own kind of window.
    fn span(&self, rng: &mut Rng, number: usize) -> SpanNow {
        let kind = if rng.u8(..20) == 0 { rng.usize(..) } else { number };
        let period = |minutes: i64| {
            let start = self.began.plus(minutes * HOUR_MS / 60);
            SpanNow::Period { start, end: start.plus(HOUR_MS) }
        };
        match kind % 4 {
            0 => rolling(*rng.choice(&[40, 600, 1_700, 5_000]).unwrap()),
            1 => rolling(1_700),
            // From long over to not begun; what began 59 to 61 minutes ago decides what of the others is dropped.
            2 => period(*rng.choice(&[-600, -122, -60, -59, -1, -1, -1, 0, 30]).unwrap()),
            _ => SpanNow::Total,
        }
    }

    /// A new turn, the last one again, one that another came after, one of another run of the process; or none.
    fn turn(&mut self, rng: &mut Rng, of: (bool, usize, BudgetId)) -> Option<TurnNumber> {
        self.last_number += 1;
        let new = TurnNumber { run: 10, number: self.last_number };
        let last = self.last_turns.get(&of).copied().unwrap_or(new);
        let TurnNumber { run, number } = last;
        let turn = match rng.u8(..16) {
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

    fn take(&mut self, rng: &mut Rng, holder: usize) -> Step {
        let number = rng.usize(..self.budgets.len());
        let budget = self.budgets[number].clone();
        let limit = *rng.choice(&[0, 1, 7, 1_000, 100_000, MAX_LIMIT - 1, MAX_LIMIT]).unwrap();
        // Budgets are mostly of one limit: large enough that they fill, and become free again.
        let limit = if rng.u8(..10) == 0 { limit } else { [20_000, 500, MAX_LIMIT - 1][number % 3] };
        let unit = if rng.bool() { 1 } else { (limit / 1_000).max(1) };
        let most = *rng.choice(&[limit / 2_000, limit / 100, limit]).unwrap();
        let want = rng.u64(..=most);
        Step::Take(TakeRequest {
            span: self.span(rng, number),
            limit,
            need: if rng.bool() { 0 } else { rng.u64(..=want) },
            want,
            unit,
            least: rng.u64(1..=unit + 1),
            lease_ms: rng.i64(1..=300),
            turn: self.turn(rng, (true, holder, budget.clone())),
            budget,
        })
    }

    /// Of some grant; sometimes more than were granted.
    fn give_back(&mut self, rng: &mut Rng, holder: usize) -> Step {
        let mut given = self.granted[holder][rng.usize(..self.granted[holder].len())].clone();
        given.tokens = match rng.u8(..8) {
            0 => 0,
            1 => given.tokens.saturating_mul(3),
            2 => u64::MAX,
            3..6 => given.tokens,
            _ => rng.u64(..=given.tokens),
        };
        given.turn = self.turn(rng, (false, holder, given.budget.clone()));
        Step::GiveBack(given)
    }

    fn recount(&self, rng: &mut Rng) -> Step {
        let number = rng.usize(..self.budgets.len());
        let (span, mut account) = (self.span(rng, number), Account::default());
        for _ in 0..rng.usize(..4) {
            let spent_at = self.now.plus(-rng.i64(0..2_000));
            account.add(Grain::Bucket.place(span, spent_at.millis()), rng.u64(1..200));
        }
        Step::Recount(self.budgets[number].clone(), span, account)
    }
}

impl Scripted for Budgets {
    type Step = Step;
    type Reply = Reply;
    const MEMBERS: usize = HOLDERS.len();
    const STEPS: usize = 100_000;
    const LEAST: u32 = 1_000;
    const AHEAD_S: &'static [i64] = &[6, -5, 0];

    async fn new(place: Arc<Place>) -> Self {
        let mut budgets: Vec<BudgetId> = (0..9).map(|number| budget(&format!("b{number}"))).collect();
        // Names that a key must keep apart.
        for (name, campaign) in [("a", "b:c"), ("a:b", "c"), ("b0", "may"), ("", "")] {
            budgets.push(BudgetId { name: name.into(), campaign: Some(campaign.into()) });
        }
        let began = place.clock();
        Self {
            ledgers: HOLDERS.map(|holder| ledger(&place.options, &place.opened, holder)),
            restorer: begun(&place.options, &Scope::Lost).await.unwrap().budgets(),
            place,
            book: Book::default(),
            budgets,
            granted: Default::default(),
            began,
            now: began,
            last_number: 0,
            last_turns: BTreeMap::new(),
            is_repeated: false,
        }
    }

    fn draw(&mut self, rng: &mut Rng, holder: usize) -> Vec<Step> {
        match rng.u8(..24) {
            0..4 => vec![self.recount(rng)],
            4..9 if !self.granted[holder].is_empty() => (0..AT_ONCE).map(|_| self.give_back(rng, holder)).collect(),
            _ => (0..AT_ONCE).map(|_| self.take(rng, holder)).collect(),
        }
    }

    async fn on_server(&mut self, holder: usize, steps: &[Step]) -> Result<Vec<(Reply, Time)>, StoreError> {
        let (mut takes, mut backs, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        let ledger = &mut self.ledgers[holder];
        for step in steps {
            match step {
                Step::Take(request) => takes.push(request.clone()),
                Step::GiveBack(given) => backs.push(given.clone()),
                Step::Recount(budget, span, account) => {
                    let found = self.restorer.look(std::slice::from_ref(budget)).await?.remove(0);
                    let (becomes, held) = (BudgetState::Open, Held::Replace(account.clone()));
                    let change = BudgetChange { found: &found, becomes, span: *span, held };
                    assert_eq!(self.restorer.change(budget, &change, self.now).await?, found);
                    let look = TakeRequest { budget: budget.clone(), need: 0, want: 0, ..request("", 1) };
                    // The time is when the count began.
                    let each = |at, answer: TakeAnswer, _| {
                        replies.push((at, Reply::Counted, Time::from_millis(answer.count_id.0).unwrap()));
                    };
                    ledger.take_each(&[look], &[0], each).await?;
                }
            }
        }
        let open: Vec<usize> = (0..takes.len()).collect();
        ledger.take_each(&takes, &open, |at, answer, now| replies.push((at, Reply::Taken(answer), now))).await?;
        ledger.give_back_each(&backs, |at, back, now| replies.push((at, Reply::Back(back), now))).await?;
        replies.sort_by_key(|(at, ..)| *at);
        Ok(replies.into_iter().map(|(_, reply, now)| (reply, now)).collect())
    }

    fn on_reference(&mut self, holder: usize, step: &Step, now: Time) -> Reply {
        self.now = now;
        let (Step::Take(TakeRequest { budget, span, .. })
        | Step::GiveBack(GiveBack { budget, span, .. })
        | Step::Recount(budget, span, _)) = step;
        let span = if matches!(span, SpanNow::Rolling { .. }) { rolling(DAY_MS) } else { *span };
        let look = TakeRequest { budget: budget.clone(), span, need: 0, want: 0, ..request("", 1) };
        let (book, holder) = (&mut self.book, HOLDERS[holder]);
        let before = book.take(now, "", &look).used;
        let (reply, tokens) = match step {
            Step::Take(request) => {
                let answer = book.take(now, holder, request);
                (Reply::Taken(answer), answer.granted)
            }
            Step::GiveBack(given) => {
                let back = book.give_back(now, holder, given);
                (Reply::Back(back), back)
            }
            Step::Recount(budget, span, account) => {
                book.recount(now, budget, *span, account);
                (Reply::Counted, 0)
            }
        };
        self.is_repeated = tokens > 0 && book.take(now, "", &look).used == before;
        reply
    }

    fn note(&mut self, holder: usize, step: &Step, reply: &Reply, is_heard: bool) -> Reached {
        if let (true, Step::Take(request), Reply::Taken(answer @ TakeAnswer { granted: 1.., .. })) =
            (is_heard, step, reply)
        {
            let granted = &mut self.granted[holder];
            granted.push_back(all_of(request, answer));
            granted.drain(..granted.len().saturating_sub(REMEMBERED));
        }
        let taken = |is: fn(&TakeAnswer, &TakeRequest) -> bool| match (step, reply) {
            (Step::Take(request), Reply::Taken(answer)) => is(answer, request),
            _ => false,
        };
        let back = |is: fn(u64, &GiveBack) -> bool| match (step, reply) {
            (Step::GiveBack(given), Reply::Back(back)) => is(*back, given),
            _ => false,
        };
        vec![
            ("repeated", self.is_repeated),
            ("granted", taken(|answer, _| answer.granted > 0)),
            ("denied", taken(|answer, request| answer.granted == 0 && request.want > 0)),
            ("shared", taken(|answer, request| (1..request.want).contains(&answer.granted))),
            ("waits", taken(|answer, _| answer.free_in_ms > Some(0))),
            ("never", taken(|answer, _| answer.free_in_ms.is_none())),
            ("given back", back(|back, _| back > 0)),
            ("too late", back(|back, given| back == 0 && given.tokens > 0)),
            ("freed", back(|back, given| back == 0 && matches!(given.span, SpanNow::Rolling { .. }))),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        let keyspace = &self.place.opened.keyspace;
        let record = |budget| (keyspace.slot(keyspace.budget_shard(budget)), keyspace.budget_key(budget));
        self.budgets.iter().map(record).collect()
    }

    fn forget(&mut self) {
        self.book = Book::default();
    }
}
