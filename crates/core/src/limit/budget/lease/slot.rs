//! One budget: the tokens held of it, who waits for it, and what to ask the ledger.

mod answers;
mod quiet;

use std::{sync::Arc, time::Duration};

pub(super) use self::answers::TurnAnswer;
use super::{
    claim::{BudgetMode, BudgetState, CallNumber, Key},
    held::{Grant, HeldTokens, LeaseTerms},
    judge::Line,
    length::{KEPT, LeaseLength},
    moment::{CountedSince, Moment},
    outbox::SentTurn,
    spending::Spending,
    waiter::Waiter,
};
use crate::limit::{
    budget::ledger::{TakeTurn, unit},
    share::TurnNumber,
};

/// Tokens are refilled in the last part of their lease, one of so many: a batch that comes when they end need not wait for the call.
const LEASE_PARTS: u32 = 10;
/// A refill that nobody needs yet has at most so many tokens, or what is spent in a second, whichever is more: an instance that is killed
/// loses what it holds.
const SMALL: u64 = 2_000;
/// Of a limit below 100,000 it has at most one of so many parts. At an even load an instance spends a hundredth of a rolling window's limit in a
/// lease at most, and no refill grows beyond half as much again: so there it changes nothing.
const PARTS: u64 = 50;

/// The ledger had less than was needed.
#[derive(Debug, Clone, Copy)]
struct Shortage {
    free_at: Moment,
    /// When the ledger is asked again, `free_at` at the latest: earlier where leases of others may give tokens back.
    until: Moment,
}

#[derive(Debug, Clone)]
pub(super) struct BudgetSlot {
    pub(super) key: Arc<Key>,
    pub(super) best_effort: bool,
    pub(super) held: HeldTokens,
    /// In the order of their places.
    pub(super) waiting: Vec<Waiter>,
    /// The call in flight.
    pub(super) call: Option<CallNumber>,
    /// The last one, where it has no answer: it is repeated before there is another.
    pub(super) unanswered: Option<Box<SentTurn>>,
    /// How many tokens a refill asks for while few are spent.
    pub(super) batch: u64,
    spending: Spending,
    pub(super) lease: LeaseLength,
    closed: Option<Shortage>,
    /// What the ledger last reported as used.
    pub(super) used: Option<u64>,
    /// Since when its tokens are counted, as the ledger answered last.
    pub(super) counted_since: CountedSince,
    /// Since when the ledger has refused; `NEVER`: it does not.
    pub(super) refused_since: Moment,
    refusals: u8,
    pause_until: Moment,
    /// Not to be asked ahead of need before.
    ahead_from: Moment,
    claimed_at: Moment,
    /// Another limit or period of the same budget has been claimed since.
    pub(super) is_superseded: bool,
    /// Of a lease that has ended, more than a first refill was left: it may wait for the next turn.
    has_left_much: bool,
    pub(super) last_claim: u64,
    pub(super) wake_at: Moment,
    /// Whether it is to be looked at when something is next due.
    pub(super) is_dirty: bool,
}

struct Lack {
    tokens: u64,
    smallest: u8,
    /// The usable tokens that nobody has reserved, without those whose lease is about to end.
    spare: u64,
}

/// What a refill asks for while nothing is known of how many are spent. So much stays here where intents no longer come: rare ones do not
/// wait.
fn first_refill(limit: u64) -> u64 {
    unit(limit, false).min(SMALL)
}

/// The most that a refill asks for while few are spent.
fn largest_refill(limit: u64) -> u64 {
    (limit / PARTS).clamp(1, SMALL)
}

impl BudgetSlot {
    pub(super) fn new(key: Arc<Key>, best_effort: bool) -> Self {
        Self {
            batch: first_refill(key.limit),
            spending: Spending::default(),
            lease: LeaseLength::new(key.span),
            key,
            best_effort,
            held: HeldTokens::default(),
            waiting: Vec::new(),
            call: None,
            unanswered: None,
            closed: None,
            used: None,
            counted_since: CountedSince::UNKNOWN,
            refused_since: Moment::NEVER,
            refusals: 0,
            pause_until: Moment::START,
            ahead_from: Moment::START,
            claimed_at: Moment::START,
            is_superseded: false,
            has_left_much: false,
            last_claim: 0,
            wake_at: Moment::NEVER,
            is_dirty: false,
        }
    }

    pub(super) fn claimed(&mut self, best_effort: bool, claim: u64, now: Moment) {
        self.best_effort = best_effort;
        (self.claimed_at, self.is_superseded) = (now, false);
        self.last_claim = claim;
    }

    /// How long before its end a lease is about to end.
    fn about_to_end(&self) -> Duration {
        self.lease.get() / LEASE_PARTS
    }

    /// How it answers to a ticket (`settled`: what it has already answered) what is more than it holds.
    pub(super) fn mode(
        &self,
        settled: Option<BudgetMode>,
        unavailable_after: Option<Duration>,
        now: Moment,
    ) -> BudgetMode {
        if let Some(mode) = settled {
            return mode;
        }
        if let Some(closed) = self.closed(now) {
            return BudgetMode::Spent { used: self.used.unwrap_or(0), free_at: closed.free_at };
        }
        match unavailable_after {
            Some(after) if self.unavailable_at(after) <= now => BudgetMode::Unavailable,
            Some(_) | None => BudgetMode::Open,
        }
    }

    /// When the ledger will not have answered for this long.
    fn unavailable_at(&self, after: Duration) -> Moment {
        self.refused_since.plus(after)
    }

    fn closed(&self, now: Moment) -> Option<Shortage> {
        self.closed.filter(|closed| now < closed.until)
    }

    pub(super) fn state(&self, now: Moment) -> BudgetState {
        let Key { id, span, limit } = (*self.key).clone();
        let closed = self.closed(now);
        BudgetState {
            id,
            span,
            limit,
            held: self.held.total(),
            used: self.used,
            is_spent: closed.is_some(),
            free_at: closed.and_then(|closed| closed.free_at.passed()),
            unavailable_since: self.refused_since.passed(),
        }
    }

    /// The tokens that a claim may take which was judged then, of a ticket with this place (`None`: it has not waited), and what
    /// it was answered before. Its own reservation is kept from later tickets, and theirs from it.
    pub(super) fn available(&self, place: Option<u64>, judged_at: Moment, now: Moment) -> (u64, Option<BudgetMode>) {
        let (mut earlier, mut others, mut own) = (0, 0, None);
        for waiter in &self.waiting {
            if Some(waiter.place) == place {
                own = Some(waiter);
                continue;
            }
            others += waiter.need;
            earlier += if place.is_some_and(|place| waiter.place < place) { waiter.need } else { 0 };
        }
        let usable = self.held.usable(now);
        let reserved = own.map_or(0, |own| own.need.min(usable.saturating_sub(earlier)));
        let settled = own.and_then(|own| own.settled(now));
        // A settled ticket keeps to its reservation: with more, its intents could lack tokens of other budgets again.
        let most = if settled.is_some() { reserved } else { reserved.max(usable.saturating_sub(others)) };
        (most.min(self.held.usable(judged_at)), settled)
    }

    /// When the budget is next unavailable for a ticket that waits.
    pub(super) fn next_unavailable(&self, now: Moment) -> Moment {
        let at = self.waiting.iter().filter_map(|waiter| Some(self.unavailable_at(waiter.unavailable_after?)));
        at.filter(|at| now < *at).min().unwrap_or(Moment::NEVER)
    }

    /// The places of the tickets that would still wait for this budget if they claimed now.
    pub(super) fn blocked(&self, now: Moment) -> impl Iterator<Item = u64> {
        let mut left = self.held.usable(now);
        self.waiting.iter().filter_map(move |waiter| {
            let got = waiter.need.min(left);
            left -= got;
            let is_open = self.mode(waiter.settled(now), waiter.unavailable_after, now) == BudgetMode::Open;
            let waits = got < waiter.need && is_open;
            waits.then_some(waiter.place)
        })
    }

    fn lack(&self, now: Moment) -> Lack {
        let mut lack = Lack { tokens: 0, smallest: u8::MAX, spare: self.held.usable(now) };
        for waiter in &self.waiting {
            let got = waiter.need.min(lack.spare);
            lack.spare -= got;
            if got < waiter.need && waiter.settled(now).is_none() {
                lack.tokens += waiter.need - got;
                lack.smallest = lack.smallest.min(waiter.smallest);
            }
        }
        lack.spare = lack.spare.min(self.held.lasting(now, now.plus(self.about_to_end())));
        lack
    }

    /// Whether the tokens are to be refilled before somebody needs them: it is in use, and few are left.
    fn wants_more(&self, spare: u64, now: Moment) -> bool {
        self.is_in_use(now) && spare.saturating_mul(2) < self.batch.max(self.spending.in_a_second(now))
    }

    /// The turn to make now, if any; a new one has this number.
    pub(super) fn ask(&mut self, number: TurnNumber, now: Moment) -> Option<SentTurn> {
        if self.call.is_some() || self.key.limit == 0 || now < self.asks_from() {
            return None;
        }
        if let Some(unanswered) = self.unanswered.take() {
            return Some(*unanswered);
        }
        Some(SentTurn::new(number, self.refill(now)?))
    }

    fn refill(&mut self, now: Moment) -> Option<TakeTurn> {
        let lack = self.lack(now);
        if lack.tokens == 0 && !(self.wants_more(lack.spare, now) && now >= self.ahead_from) {
            return None;
        }
        // What is needed comes in whole units; ahead of need any number will do, so that an instance can hold as few as it spends.
        let unit = unit(self.key.limit, self.best_effort || lack.tokens == 0);
        let most = self.key.limit - self.key.limit % unit;
        let need = lack.tokens.next_multiple_of(unit).min(most);
        // With what is spare, no more than is spent in a second.
        let ahead = self.batch.max(self.spending.in_a_second(now).saturating_sub(lack.spare));
        let want = ahead.max(need).next_multiple_of(unit).min(most);
        let least = if need == 0 { unit } else { u64::from(lack.smallest).next_multiple_of(unit).min(need) };
        for waiter in &mut self.waiting {
            waiter.is_asked = waiter.settled(now).is_none();
        }
        Some(TakeTurn {
            span: self.key.span,
            limit: self.key.limit,
            need,
            want,
            unit,
            least,
            lease_ms: i64::try_from(self.lease.get().as_millis()).unwrap_or(i64::MAX),
            back: Vec::new(),
            owed: Vec::new(),
        })
    }

    fn asks_from(&self) -> Moment {
        self.pause_until.max(self.closed.map_or(Moment::START, |closed| closed.until))
    }

    /// When to look at it again, if nothing happens before. In the future, once everything that was due is done.
    pub(super) fn next_look(&self, now: Moment) -> Moment {
        let mut at = self.held.first_end();
        if self.call.is_some() {
            return at;
        }
        let lack = self.lack(now);
        if lack.tokens > 0 || self.unanswered.is_some() {
            at = at.min(self.asks_from());
        } else if self.wants_more(lack.spare, now) && self.key.limit > 0 {
            at = at.min(self.asks_from().max(self.ahead_from));
        } else {
            let about_to_end = self.about_to_end();
            at = at.min(self.held.next_end(now.plus(about_to_end)).minus(about_to_end));
        }
        for waiter in &self.waiting {
            at = at.min(
                waiter.settled.map_or(Moment::NEVER, |(_, until)| if now < until { until } else { Moment::NEVER }),
            );
        }
        at.min(self.over_at()).min(self.leaves_at())
    }

    pub(super) fn spend(&mut self, tokens: u64, judged_at: Moment) -> Option<LeaseTerms> {
        let taken = self.held.take(tokens, judged_at);
        // Spent in the first half of its lease: one half as long would have done.
        let is_early = taken.terms.is_some_and(|terms| judged_at.plus(self.lease.get() / 2) < terms.ends);
        if taken.used_up > 0 && is_early {
            self.lease.was_too_long();
        }
        for _ in 0..taken.used_up {
            self.batch = (self.batch + (self.batch / 2).max(1)).min(largest_refill(self.key.limit));
        }
        self.spending.add(tokens, judged_at);
        taken.terms
    }

    /// Tokens of a claim come back.
    pub(super) fn was_not_spent(&mut self, tokens: u64, now: Moment) {
        self.spending.take_off(tokens, now);
    }

    pub(super) fn end_leases(&mut self, now: Moment) -> Vec<Grant> {
        let ended: Vec<Grant> = self.held.end(now).collect();
        for _ in ended.iter().filter(|grant| grant.is_mostly_unspent()) {
            self.batch = (self.batch / 2).max(1);
        }
        if ended.is_empty() {
            return ended;
        }
        self.has_left_much |= ended.iter().map(|grant| grant.tokens).sum::<u64>() > first_refill(self.key.limit);
        if self.waiting.iter().any(|waiter| waiter.need > 0) {
            self.lease.was_too_short();
        } else {
            // Nobody lacked the rest.
            self.lease.was_too_long();
        }
        ended
    }

    /// Reserves what a ticket with this place needs, in the order of arrival.
    pub(super) fn reserve(&mut self, place: u64, line: &Line, now: Moment) {
        let answer = (line.mode != BudgetMode::Open).then(|| (line.mode, now.plus(KEPT)));
        let index = self.waiting.partition_point(|other| other.place < place);
        if let Some(waiter) = self.waiting.get_mut(index).filter(|waiter| waiter.place == place) {
            (waiter.need, waiter.smallest) = (line.taken, line.smallest);
            waiter.unavailable_after = line.unavailable_after;
            waiter.settled = waiter.settled.filter(|(_, until)| now < *until).or(answer);
            return;
        }
        let Line { taken: need, smallest, unavailable_after, .. } = *line;
        let waiter = Waiter { place, need, smallest, unavailable_after, is_asked: false, settled: answer };
        self.waiting.insert(index, waiter);
    }

    /// The ticket with this place waits no longer.
    pub(super) fn release(&mut self, place: u64) {
        self.waiting.retain(|waiter| waiter.place != place);
    }
}
