//! What a process has of one budget: its stocks, the turn that has no answer, and what the ledger has yet to be told.
//!
//! A holder's turns at a budget are made one after the other, whatever windows and limits of it are known here: the ledger knows the
//! last one alone. What comes back, and what replays owe, goes with the next turn; where there is none soon, and for what replays owe in
//! another window or under another limit, there is one of its own.

use std::{sync::Arc, time::Duration};

use super::{
    BudgetState, BudgetUse, CallNumber, DueTurn, LeaseNumber, Refused,
    held::{Grant, LeaseTerms},
    judge::Line,
    moment::{Moment, milliseconds},
    owed::Owed,
    stock::{Stock, Waiter},
};
use crate::limit::{
    budget::{
        BudgetId, SpanNow,
        ledger::{GiveBack, TakeAnswer, TakeTurn},
    },
    share::TurnNumber,
};

/// What comes back in one turn, at most.
const MOST_BACK: usize = 8;
/// What replays owe is kept apart by when they were admitted, so often at most.
const MOST_OWED: usize = 100;
/// After so long a turn gives nothing back when it is repeated: the ledger knows a turn for an hour, and would take tokens back twice.
const REPEATED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The first pause after a turn that the ledger did not answer; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MOST_DOUBLINGS: u8 = 6;

/// A turn that has no answer. It is repeated before there is another.
#[derive(Debug, Clone)]
struct SentTurn {
    number: TurnNumber,
    turn: TakeTurn,
    owed: Vec<Owed>,
    /// When it was made first; `None`: it is not repeated.
    first_at: Option<Moment>,
    is_in_flight: bool,
}

impl SentTurn {
    /// The turn as it is made now.
    fn made(&mut self, now: Moment) -> TakeTurn {
        self.is_in_flight = true;
        if self.first_at.is_some_and(|first_at| first_at.plus(REPEATED_WITHIN) <= now) {
            self.turn.back.clear();
        }
        self.turn.owed = self.owed.iter().map(|owed| owed.at(now)).collect();
        self.turn.clone()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) id: Arc<BudgetId>,
    /// Of each window and limit. That of the last claim is the last one.
    pub(super) stocks: Vec<Stock>,
    turn: Option<Box<SentTurn>>,
    /// Since when the ledger has not answered; `NEVER`: it does.
    refused_since: Moment,
    refusals: u8,
    pub(super) pause_until: Moment,
    /// What goes back: what was granted in the same bucket of the same count at once.
    back: Vec<GiveBack>,
    /// Until when that may wait for the next turn, while the budget is in use.
    back_by: Moment,
    owed: Vec<Owed>,
    pub(super) wake_at: Moment,
}

impl Holding {
    pub(super) fn new(id: Arc<BudgetId>) -> Self {
        Self {
            id,
            stocks: Vec::new(),
            turn: None,
            refused_since: Moment::NEVER,
            refusals: 0,
            pause_until: Moment::START,
            back: Vec::new(),
            back_by: Moment::START,
            owed: Vec::new(),
            wake_at: Moment::NEVER,
        }
    }

    /// Whether nothing is left to be told, and every turn has its answer.
    pub(super) fn is_settled(&self) -> bool {
        self.turn.is_none() && self.back.is_empty() && self.owed.is_empty()
    }

    /// Whether a call is in flight, and of which turn.
    pub(super) fn is_asked(&self, number: u64) -> bool {
        self.turn.as_ref().is_some_and(|sent| sent.is_in_flight && sent.number.number == number)
    }

    /// Whether its turn was made before, and had no answer.
    pub(super) fn is_repeated(&self) -> bool {
        self.turn.as_ref().is_some_and(|sent| sent.first_at.is_some())
    }

    /// Whether tokens of this window have yet to go back.
    pub(super) fn has_back(&self, span: SpanNow) -> bool {
        self.back.iter().any(|back| back.span == span)
    }

    pub(super) fn unreturned(&self) -> u64 {
        self.back.iter().map(|back| back.tokens).sum()
    }

    /// The stock of this window and limit, for a claim. What is held by another one goes back soon. One that another has followed may come
    /// again: for a batch that was judged before, or a policy of before.
    pub(super) fn claimed(&mut self, used: &BudgetUse, now: Moment) -> &mut Stock {
        let is_it = |stock: &Stock| (stock.span, stock.limit) == (used.span, used.limit);
        if !self.stocks.last().is_some_and(is_it) {
            let known = self.stocks.iter().position(is_it).map(|place| self.stocks.remove(place));
            self.stocks.reserve_exact(1);
            self.stocks.push(known.unwrap_or_else(|| Stock::new(used.span, used.limit)));
        }
        let stock = self.last();
        stock.claimed(used.best_effort, now);
        stock
    }

    /// That of the last claim.
    pub(super) fn last(&mut self) -> &mut Stock {
        self.stocks.last_mut().expect("a claim has a stock of each of its budgets")
    }

    /// From when on it is unavailable for those who wait for so long; the ledger will not have answered for that long.
    pub(super) fn unavailable_at(&self, after: Option<Duration>) -> Moment {
        after.map_or(Moment::NEVER, |after| self.refused_since.plus(after))
    }

    /// Reserves what a ticket with this place needs, of the stock of the last claim alone.
    pub(super) fn reserve(&mut self, place: u64, line: &Line, now: Moment) {
        if let Some((last, others)) = self.stocks.split_last_mut() {
            others.iter_mut().for_each(|stock| stock.release(place));
            last.reserve(place, line, now);
        }
    }

    pub(super) fn release(&mut self, place: u64) {
        self.stocks.iter_mut().for_each(|stock| stock.release(place));
    }

    /// The places of the tickets that would still wait for it if they claimed now.
    pub(super) fn blocked(&self, now: Moment) -> impl Iterator<Item = u64> {
        let unavailable_at = move |waiter: &Waiter| self.unavailable_at(waiter.unavailable_after);
        self.stocks.iter().flat_map(move |stock| stock.blocked(unavailable_at, now))
    }

    /// How it stands; `None`: nothing but what goes back is known of it. A turn that has no answer is made again until it has one.
    pub(super) fn state(&self) -> Option<BudgetState> {
        let stock = self.stocks.last()?;
        let unavailable_since = self.turn.as_ref().and_then(|_| self.refused_since.passed());
        let (held, used) = (stock.held.total(), stock.used);
        Some(BudgetState { id: BudgetId::clone(&self.id), held, used, unavailable_since })
    }

    /// Tokens of a claim come back that were not spent.
    pub(super) fn put_back(&mut self, lease: &LeaseNumber, tokens: u64, now: Moment) {
        let grant = Grant { terms: lease.terms, tokens, granted: 0 };
        let stock = self.stocks.iter_mut().find(|stock| (stock.span, stock.limit) == (lease.span, lease.limit));
        if let Some(stock) = stock {
            stock.spending.take_off(tokens, now);
            if now < lease.terms.ends {
                return stock.held.add(grant);
            }
        }
        self.give_back(lease.span, &grant, now);
    }

    /// Tokens go back to the ledger, by then at the latest. It is asked again by the turn that carries them, where the budget was spent.
    fn give_back(&mut self, span: SpanNow, grant: &Grant, by: Moment) {
        let (tokens, LeaseTerms { bucket, count_id, .. }) = (grant.tokens, grant.terms);
        if tokens == 0 {
            return;
        }
        self.back_by = if self.back.is_empty() { by } else { self.back_by.min(by) };
        let is_same = |other: &&mut GiveBack| (other.span, other.bucket, other.count_id) == (span, bucket, count_id);
        match self.back.iter_mut().find(is_same) {
            Some(same) => same.tokens += tokens,
            None => self.back.push(GiveBack { span, bucket, count_id, tokens }),
        }
        for stock in self.stocks.iter_mut().filter(|stock| stock.span == span) {
            stock.closed_until = Moment::START;
        }
    }

    /// Replays owe so much. Beyond what is kept apart it passes for admitted earlier: that counts too much rather than too little.
    pub(super) fn owe(&mut self, owed: Owed) {
        let is_kept_apart = self.owed.len() < MOST_OWED;
        if is_kept_apart || !self.owed.iter_mut().any(|other| other.merge(&owed)) {
            self.owed.push(owed);
        }
    }

    pub(super) fn end_leases(&mut self, now: Moment) {
        let known = self.stocks.len();
        for place in 0..known {
            let stock = &mut self.stocks[place];
            let span = stock.span;
            let (ended, by) = stock.end_leases(place + 1 == known, now);
            ended.iter().for_each(|grant| self.give_back(span, grant, by));
        }
    }

    /// What nobody here needs any more goes back.
    pub(super) fn tidy(&mut self, now: Moment) {
        self.end_leases(now);
        if self.turn.is_some() {
            return;
        }
        let known = self.stocks.len();
        for place in (0..known).rev() {
            let stock = &mut self.stocks[place];
            let span = stock.span;
            let left = if stock.over_at(place + 1 == known) <= now {
                self.stocks.remove(place).held.take_beyond(0)
            } else {
                stock.leave(now)
            };
            left.iter().for_each(|grant| self.give_back(span, grant, now));
        }
    }

    /// Gives all tokens back. A turn that has no answer is repeated all the same.
    pub(super) fn forget(&mut self, now: Moment) {
        for mut stock in std::mem::take(&mut self.stocks) {
            stock.held.take_beyond(0).iter().for_each(|grant| self.give_back(stock.span, grant, now));
        }
    }

    /// The turn to make now, if any; a new one has this number. `place`: that of the budget among all.
    pub(super) fn ask(&mut self, number: TurnNumber, place: u32, now: Moment) -> Option<DueTurn> {
        let is_paused = now < self.pause_until;
        match &self.turn {
            Some(sent) if sent.is_in_flight || is_paused => return None,
            Some(_) => {}
            None => self.turn = Some(Box::new(self.next_turn(number, is_paused, now)?)),
        }
        let sent = self.turn.as_mut()?;
        let call = CallNumber { budget: place, turn: sent.number.number };
        Some(DueTurn { call, budget: BudgetId::clone(&self.id), number: sent.number, turn: sent.made(now) })
    }

    /// A new turn: one that asks for tokens, or else one of its own for what goes back and what replays owe. What goes back goes with it, and what
    /// replays owe in its window under its limit.
    fn next_turn(&mut self, number: TurnNumber, is_paused: bool, now: Moment) -> Option<SentTurn> {
        let mut stocks = self.stocks.iter().enumerate().filter(|_| !is_paused);
        let refill = stocks.find_map(|(place, stock)| stock.refill(place + 1 == self.stocks.len(), now));
        let mut turn = refill.or_else(|| match (self.owed.first(), self.back.first()) {
            (Some(owed), _) => Some(TakeTurn::nothing(owed.used.span, owed.used.limit)),
            (None, Some(back)) if self.back_at() <= now => Some(TakeTurn::nothing(back.span, 0)),
            (None, _) => None,
        })?;
        turn.back = self.back.drain(..self.back.len().min(MOST_BACK)).collect();
        turn.held = self.stocks.iter().map(|stock| stock.held.total()).sum();
        let of_turn = |owed: &mut Owed| (owed.used.span, owed.used.limit) == (turn.span, turn.limit);
        let owed = self.owed.extract_if(.., of_turn).collect();
        Some(SentTurn { number, turn, owed, first_at: None, is_in_flight: false })
    }

    /// When what goes back has a turn of its own, if there is none before.
    fn back_at(&self) -> Moment {
        match self.back.len() {
            0 => Moment::NEVER,
            MOST_BACK.. => Moment::START,
            _ => self.back_by.min(self.stocks.last().map_or(Moment::START, Stock::in_use_until)),
        }
    }

    /// When to look at it again, if nothing happens before. In the future, once everything that was due is done.
    pub(super) fn next_look(&self, now: Moment) -> Moment {
        let waiting = self.stocks.iter().flat_map(|stock| &stock.waiting);
        let of_waiters = waiting.flat_map(|waiter| {
            let settled = waiter.settled.map_or(Moment::NEVER, |(_, until)| until);
            [settled, self.unavailable_at(waiter.unavailable_after)]
        });
        let ends = self.stocks.iter().map(|stock| stock.held.first_end());
        let at = of_waiters.filter(|at| *at > now).chain(ends).min().unwrap_or(Moment::NEVER);
        match &self.turn {
            Some(sent) if sent.is_in_flight => at,
            Some(_) => at.min(self.pause_until),
            None => {
                let next = |(place, stock): (usize, &Stock)| {
                    stock.next_look(place + 1 == self.stocks.len(), self.pause_until, now)
                };
                let own = if self.owed.is_empty() { self.back_at() } else { Moment::START };
                self.stocks.iter().enumerate().map(next).fold(at.min(own), Moment::min)
            }
        }
    }

    /// Its turn has this answer; it was asked last then. What comes later than the lease of its grant ends, or when nobody is there who could spend
    /// it, goes back.
    pub(super) fn answered(&mut self, answer: Result<TakeAnswer, Refused>, asked_at: Moment, now: Moment) {
        let Some(mut sent) = self.turn.take() else { return };
        let is_repeated = sent.first_at.is_some();
        let first_at = *sent.first_at.get_or_insert(asked_at);
        let Ok(answer) = answer else {
            sent.is_in_flight = false;
            self.turn = Some(sent);
            return self.refused(now);
        };
        let TakeTurn { span, limit, want, lease_ms, .. } = sent.turn;
        let ends = first_at.plus(milliseconds(lease_ms));
        let terms = LeaseTerms { since: now, ends, bucket: answer.bucket, count_id: answer.count_id };
        let grant = Grant { terms, tokens: answer.granted, granted: answer.granted };
        self.end_leases(now);
        let has_back = self.has_back(span);
        let asking = self.stocks.iter_mut().find(|stock| (stock.span, stock.limit) == (span, limit));
        match asking.filter(|_| want > 0) {
            Some(stock) if now < ends => {
                stock.held.add(grant);
                // What has yet to go back is asked for by the next turn.
                let free_in_ms = if has_back { Some(0) } else { answer.free_in_ms };
                stock.answered(&sent.turn, &TakeAnswer { free_in_ms, ..answer }, (asked_at, now));
                self.heard();
            }
            Some(stock) => {
                // It is asked again, for a longer lease where the answer came at once.
                let may_be_longer = stock.lease.may_be_longer();
                if !is_repeated && may_be_longer {
                    stock.lease.was_too_short();
                } else if !is_repeated {
                    self.refused(now);
                }
                self.give_back(span, &grant, now);
            }
            None => {
                self.give_back(span, &grant, now);
                self.heard();
            }
        }
    }

    /// Its turn comes to nothing, because the ledger has taken a later one.
    pub(super) fn overtaken(&mut self) {
        if let Some(sent) = self.turn.take() {
            sent.owed.into_iter().for_each(|owed| self.owe(owed));
        }
        self.heard();
    }

    fn heard(&mut self) {
        (self.refused_since, self.refusals, self.pause_until) = (Moment::NEVER, 0, Moment::START);
    }

    fn refused(&mut self, now: Moment) {
        self.refused_since = self.refused_since.min(now);
        self.pause_until = now.plus(LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(u32::from(self.refusals))));
        self.refusals = (self.refusals + 1).min(MOST_DOUBLINGS);
    }
}
