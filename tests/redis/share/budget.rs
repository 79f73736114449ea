//! Budgets: `lua/take.lua` and `lua/restore_budget.lua`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use fastrand::Rng;
use weir_core::{
    basis::time::Time,
    limit::{
        budget::{
            BudgetId, MAX_LIMIT, SpanNow,
            ledger::{Account, GiveBack, OwedTokens, TakeAnswer, TakeTurn, TokenBook},
        },
        share::{Reference as _, TurnNumber},
    },
    ports::StoreError,
};
use weir_redis::{
    RedisLedger,
    rebuild::{BudgetChange, BudgetKeyState, BudgetRestorer, Held, Scope},
};

use super::{Place, Reached, Scripted};
use crate::{
    budgets::{all_of, budget, ledger, rolling, turn},
    redis_support::DAY_MS,
    refunds::begun,
};

/// Steps that are taken one after the other.
const AT_ONCE: usize = 100;
/// What comes back in one turn, at most.
const MOST_BACK: usize = 8;
/// The grants that tokens are given back of: the latest ones, old enough that some have left the window.
const REMEMBERED: usize = 1_000;
const HOLDERS: [&str; 4] = ["weir-0", "weir-1", "", "a:b c"];
const HOUR_MS: i64 = 3_600_000;
const NOBODY_KNOWS: &str = "nobody knows what it has used";

#[derive(Debug)]
pub(super) enum Step {
    Take(BudgetId, TurnNumber, TakeTurn),
    /// A rebuild counts a budget anew: sent alone.
    Recount(BudgetId, SpanNow, Account),
    /// What becomes of the budget of an unknown campaign: sent alone.
    Unknown(BudgetId, Unknown),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    Open,
    Closed,
    ClosedUntil(Time),
}

#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// `None`: a later turn was taken before.
    Taken(Option<TakeAnswer>),
    /// It is of an unknown campaign.
    Refused,
    Written,
}

pub(super) struct Budgets {
    place: Arc<Place>,
    ledgers: [RedisLedger; HOLDERS.len()],
    restorer: BudgetRestorer,
    books: BTreeMap<BudgetId, TokenBook>,
    budgets: Vec<BudgetId>,
    /// What becomes of those of campaigns that have no key.
    unknown: BTreeMap<BudgetId, Unknown>,
    /// What can be given back, with its budget.
    granted: [VecDeque<(BudgetId, GiveBack)>; HOLDERS.len()],
    /// The server's clock at the beginning, and at the last step.
    began: Time,
    now: Time,
    last_number: u64,
    last_turns: BTreeMap<(usize, BudgetId), (TurnNumber, TakeTurn)>,
    /// What was used before the last step, and after it.
    used: (u64, u64),
    /// Whether that came to what it had come to before.
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

    /// A new turn, the last one again, one that another came after, one of another run of the process; or only a look.
    fn take(&mut self, rng: &mut Rng, holder: usize) -> Step {
        self.last_number += 1;
        let number = rng.usize(..self.budgets.len());
        let budget = self.budgets[number].clone();
        let of = (holder, budget.clone());
        let new = TurnNumber { run: 10, number: self.last_number };
        let (last, last_turn) = self.last_turns.get(&of).cloned().unzip();
        let TurnNumber { run, number: before } = last.unwrap_or(new);
        let mut turn = self.turn(rng, (holder, number));
        let number = match rng.u8(..16) {
            0 => return Step::Take(budget, TurnNumber::default(), turn),
            1 => TurnNumber { run, number: before.saturating_sub(1).max(1) },
            2 => TurnNumber { run: (run - 1).max(1), ..new },
            3 => TurnNumber { run: run + 1, ..new },
            4..8 => {
                turn = last_turn.unwrap_or(turn);
                TurnNumber { run, number: before }
            }
            _ => TurnNumber { run, ..new },
        };
        if last.is_none_or(|last| number > last) {
            self.last_turns.insert(of, (number, turn.clone()));
        }
        Step::Take(budget, number, turn)
    }

    fn turn(&mut self, rng: &mut Rng, (holder, number): (usize, usize)) -> TakeTurn {
        let limit = *rng.choice(&[0, 1, 7, 1_000, 100_000, MAX_LIMIT - 1, MAX_LIMIT]).unwrap();
        // Budgets are mostly of one limit: large enough that they fill, and become free again.
        let limit = if rng.u8(..10) == 0 { limit } else { [20_000, 500, MAX_LIMIT - 1][number % 3] };
        let unit = if rng.bool() { 1 } else { (limit / 1_000).max(1) };
        let most = *rng.choice(&[limit / 2_000, limit / 100, limit]).unwrap();
        let want = if rng.u8(..6) == 0 { 0 } else { rng.u64(..=most) };
        let owed = OwedTokens { tokens: rng.u64(..100), ago_ms: rng.i64(-100..10_000) };
        TakeTurn {
            span: self.span(rng, number),
            limit,
            need: if rng.bool() { 0 } else { rng.u64(..=want) },
            want,
            unit,
            least: rng.u64(1..=unit + 1),
            lease_ms: rng.i64(1..=300),
            held: if rng.bool() { 0 } else { rng.u64(..1_000) },
            back: self.back(rng, (holder, number)),
            owed: if rng.u8(..3) == 0 { vec![owed; rng.usize(1..3)] } else { Vec::new() },
        }
    }

    /// Of some grants; sometimes more than were granted.
    fn back(&mut self, rng: &mut Rng, (holder, number): (usize, usize)) -> Vec<GiveBack> {
        let budget = &self.budgets[number];
        let grants: Vec<&GiveBack> = self.granted[holder].iter().filter(|of| of.0 == *budget).map(|of| &of.1).collect();
        let some = if grants.is_empty() || rng.bool() { 0 } else { rng.usize(1..=MOST_BACK) };
        let one = |_| {
            let given = **rng.choice(&grants).unwrap();
            let tokens = match rng.u8(..8) {
                0 => 0,
                1 => given.tokens.saturating_mul(3),
                2 => u64::MAX,
                3..6 => given.tokens,
                _ => rng.u64(..=given.tokens),
            };
            GiveBack { tokens, ..given }
        };
        (0..some).map(one).collect()
    }

    fn recount(&self, rng: &mut Rng) -> Step {
        let number = rng.usize(..self.budgets.len());
        let (span, mut account) = (self.span(rng, number), Account::default());
        for _ in 0..rng.usize(..4) {
            let spent_at = self.now.plus(-rng.i64(0..2_000));
            account.add(span.bucket(spent_at.millis()), rng.u64(1..200));
        }
        Step::Recount(self.budgets[number].clone(), span, account)
    }

    /// None that the clock comes to.
    fn unknown(&self, rng: &mut Rng) -> Step {
        let budget = rng.choice(self.unknown.keys()).unwrap().clone();
        let [past, future] = [-HOUR_MS, HOUR_MS].map(|away| Unknown::ClosedUntil(self.began.plus(away)));
        Step::Unknown(budget, *rng.choice(&[Unknown::Open, Unknown::Closed, past, future]).unwrap())
    }
}

/// Has a campaign's shard say what becomes of its budget while that has no key.
fn write_unknown(place: &Place, budget: &BudgetId, unknown: Unknown) {
    let keyspace = &place.opened.keyspace;
    let key = keyspace.unknown_key(keyspace.budget_shard(budget));
    let until = match unknown {
        Unknown::Open => return place.query(&["HDEL", &key, &budget.name]),
        Unknown::Closed => 0,
        Unknown::ClosedUntil(until) => until.millis(),
    };
    place.query(&["HSET", &key, &budget.name, &format!("{until} {NOBODY_KNOWS}")])
}

impl Scripted for Budgets {
    type Step = Step;
    type Reply = Reply;
    const MEMBERS: usize = HOLDERS.len();
    const STEPS: usize = 100_000;
    const LEAST: usize = 1_000;
    const AHEAD_S: &'static [i64] = &[6, -5, 0];

    async fn new(place: Arc<Place>) -> Self {
        let mut budgets: Vec<BudgetId> = (0..9).map(|number| budget(&format!("b{number}"))).collect();
        // Names that a key must keep apart.
        for (name, campaign) in [("a", "b:c"), ("a:b", "c"), ("b0", "may"), ("", "")] {
            budgets.push(BudgetId { name: name.into(), campaign: Some(campaign.into()) });
        }
        let began = place.clock();
        let of_campaigns = budgets.iter().filter(|budget| budget.campaign.is_some());
        let unknown: BTreeMap<BudgetId, Unknown> = of_campaigns.map(|of| (of.clone(), Unknown::Closed)).collect();
        unknown.iter().for_each(|(budget, unknown)| write_unknown(&place, budget, *unknown));
        Self {
            ledgers: HOLDERS.map(|holder| ledger(&place.options, &place.opened, holder)),
            restorer: begun(&place.options, &Scope::Lost).await.unwrap().budgets(),
            place,
            books: BTreeMap::new(),
            budgets,
            unknown,
            granted: Default::default(),
            began,
            now: began,
            last_number: 0,
            last_turns: BTreeMap::new(),
            used: (0, 0),
            is_repeated: false,
        }
    }

    fn draw(&mut self, rng: &mut Rng, holder: usize) -> Vec<Step> {
        match rng.u8(..24) {
            0..4 => vec![self.recount(rng)],
            4 => vec![self.unknown(rng)],
            _ => (0..AT_ONCE).map(|_| self.take(rng, holder)).collect(),
        }
    }

    async fn on_server(&mut self, holder: usize, steps: &[Step]) -> Result<Vec<(Reply, Time)>, StoreError> {
        let (mut replies, ledger) = (Vec::new(), &mut self.ledgers[holder]);
        for step in steps {
            match step {
                Step::Take(budget, number, turn) => {
                    let taken = match ledger.turn_at(budget, *number, turn).await {
                        Err(StoreError::LostHistory { message, .. }) if message.contains(NOBODY_KNOWS) => {
                            replies.push((Reply::Refused, self.now));
                            continue;
                        }
                        taken => taken?,
                    };
                    // One that comes behind another one tells no time.
                    let now = taken.map_or(self.now, |(_, now)| now);
                    self.now = now;
                    replies.push((Reply::Taken(taken.map(|(answer, _)| answer)), now));
                }
                Step::Recount(budget, span, account) => {
                    let found = self.restorer.look(std::slice::from_ref(budget), self.now).await?.remove(0);
                    let (becomes, held) = (BudgetKeyState::Open, Held::Replace(account.clone()));
                    let change = BudgetChange { found: &found, becomes, span: *span, limit: MAX_LIMIT, held };
                    assert_eq!(self.restorer.change(budget, &change, self.now).await?, found);
                    // The time is when the count began.
                    let (seen, _) = ledger.turn_at(budget, TurnNumber::default(), &turn(0)).await?.unwrap();
                    replies.push((Reply::Written, Time::from_millis(seen.count_id.0).unwrap()));
                }
                Step::Unknown(budget, unknown) => {
                    write_unknown(&self.place, budget, *unknown);
                    replies.push((Reply::Written, self.now));
                }
            }
        }
        Ok(replies)
    }

    fn on_reference(&mut self, holder: usize, step: &Step, now: Time) -> Reply {
        (self.now, self.used, self.is_repeated) = (now, (0, 0), false);
        let (budget, span) = match step {
            Step::Take(budget, _, TakeTurn { span, .. }) | Step::Recount(budget, span, _) => (budget, span),
            Step::Unknown(budget, unknown) => {
                self.unknown.insert(budget.clone(), *unknown);
                return Reply::Written;
            }
        };
        let book = self.books.entry(budget.clone()).or_default();
        let is_unknown = match self.unknown.get(budget) {
            None | Some(Unknown::Open) => false,
            Some(Unknown::Closed) => book.is_unknown(None, now),
            Some(Unknown::ClosedUntil(until)) => book.is_unknown(Some(*until), now),
        };
        if is_unknown && matches!(step, Step::Take(..)) {
            return Reply::Refused;
        }
        let span = if matches!(span, SpanNow::Rolling { .. }) { rolling(DAY_MS) } else { *span };
        let look = TakeTurn { span, ..turn(0) };
        let before = book.look(&look, now).used;
        let (reply, tokens) = match step {
            Step::Take(_, number, turn) => {
                let answer = book.turn(HOLDERS[holder], *number, turn, now);
                (Reply::Taken(answer), answer.map_or(0, |answer| answer.granted))
            }
            Step::Recount(_, span, account) => {
                book.recount(now, *span, account);
                (Reply::Written, 0)
            }
            Step::Unknown(..) => (Reply::Written, 0),
        };
        self.used = (before, book.look(&look, now).used);
        self.is_repeated = tokens > 0 && self.used.0 == self.used.1;
        reply
    }

    fn note(&mut self, holder: usize, step: &Step, reply: &Reply, is_heard: bool) -> Reached {
        if let (true, Step::Take(budget, number, turn), Reply::Taken(Some(answer @ TakeAnswer { granted: 1.., .. }))) =
            (is_heard, step, reply)
            && number.number > 0
        {
            let granted = &mut self.granted[holder];
            granted.push_back((budget.clone(), all_of(turn, answer)));
            granted.drain(..granted.len().saturating_sub(REMEMBERED));
        }
        let taken = |is: fn(&TakeAnswer, &TakeTurn) -> bool| match (step, reply) {
            (Step::Take(_, number, turn), Reply::Taken(Some(answer))) => number.number > 0 && is(answer, turn),
            _ => false,
        };
        let (before, after) = self.used;
        vec![
            ("repeated", self.is_repeated),
            ("behind", matches!(reply, Reply::Taken(None))),
            ("refused", *reply == Reply::Refused),
            ("granted", taken(|answer, _| answer.granted > 0)),
            ("denied", taken(|answer, turn| answer.granted == 0 && turn.want > 0)),
            ("shared", taken(|answer, turn| (1..turn.want).contains(&answer.granted))),
            ("waits", taken(|answer, _| answer.free_in_ms > Some(0))),
            ("never", taken(|answer, _| answer.free_in_ms.is_none())),
            ("given back", after < before && taken(|_, turn| !turn.back.is_empty())),
            ("owed", after > before && taken(|_, turn| turn.want == 0)),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        let keyspace = &self.place.opened.keyspace;
        let record = |budget| (keyspace.slot(keyspace.budget_shard(budget)), keyspace.budget_key(budget));
        self.budgets.iter().map(record).collect()
    }

    fn forget(&mut self) {
        self.books.clear();
    }
}
