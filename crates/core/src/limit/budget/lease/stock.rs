//! The tokens that are held of one budget in one window under one limit, who waits for them, and what to ask the ledger.

use std::time::Duration;

use super::{
    claim::BudgetMode,
    held::{Grant, HeldTokens, LeaseTerms},
    judge::Line,
    length::{KEPT, LeaseLength},
    moment::{CountedSince, Moment, milliseconds},
    spending::Spending,
};
use crate::limit::budget::{
    SpanNow,
    ledger::{TakeAnswer, TakeTurn, unit},
};

/// Tokens are refilled in the last part of their lease, one of so many: a batch that comes when they end need not wait for the call.
const LEASE_PARTS: u32 = 10;
/// A refill that nobody needs yet has at most so many tokens, or what is spent in a second, whichever is more: an instance that is killed
/// loses what it holds.
const SMALL: u64 = 2_000;
/// It has at most one of so many parts of the limit: what is held where no more intents come is denied to others. At an even load an instance
/// spends a hundredth of a rolling window's limit in a lease at most, and no refill grows beyond half as much again: so there it changes
/// nothing.
const PARTS: u64 = 50;
/// A spent budget is asked for again after so long, even if it frees later: a rebuild may have counted it again meanwhile, and an
/// instance that stood still may have given tokens back.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// A budget of which nothing is held is forgotten when it was not claimed for this long.
const FORGET: Duration = Duration::from_secs(60);

/// A ticket that waits for this budget.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    /// Its place in the order of arrival, over all budgets.
    pub(super) place: u64,
    /// The tokens reserved for it, including those that are missing.
    pub(super) need: u64,
    /// The smallest cost that it needs them for.
    smallest: u8,
    /// As in [`BudgetUse`](super::BudgetUse).
    pub(super) unavailable_after: Option<Duration>,
    /// The budget's answer to this ticket, once known, until when: the ledger could not grant all that it was asked for. Without
    /// it, a ticket would wait for as long as a little frees again and again.
    pub(super) settled: Option<(BudgetMode, Moment)>,
}

impl Waiter {
    fn settled(&self, now: Moment) -> Option<BudgetMode> {
        self.settled.and_then(|(mode, until)| (now < until).then_some(mode))
    }
}

/// Another window or limit has a stock of its own: no tokens are carried over, and those of the one before go back once that was not claimed
/// for a while.
#[derive(Debug, Clone)]
pub(super) struct Stock {
    pub(super) span: SpanNow,
    pub(super) limit: u64,
    best_effort: bool,
    /// Whether a batch has claimed some, and whether another one has since.
    batches: [bool; 2],
    pub(super) held: HeldTokens,
    /// In the order of their places.
    pub(super) waiting: Vec<Waiter>,
    /// How many tokens a refill asks for while few are spent.
    batch: u64,
    pub(super) spending: Spending,
    pub(super) lease: LeaseLength,
    /// It is spent until then: the ledger had less than was needed, and is asked again when leases of others may have given tokens back.
    pub(super) closed_until: Moment,
    /// When it frees, where it is spent.
    free_at: Moment,
    /// What the ledger last reported as used.
    pub(super) used: Option<u64>,
    /// Since when its tokens are counted, as the ledger answered last.
    pub(super) counted_since: CountedSince,
    /// Not to be asked for ahead of need before.
    ahead_from: Moment,
    pub(super) claimed_at: Moment,
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

impl Stock {
    pub(super) fn new(span: SpanNow, limit: u64) -> Self {
        Self {
            span,
            limit,
            best_effort: false,
            batches: [false; 2],
            held: HeldTokens::default(),
            waiting: Vec::new(),
            batch: first_refill(limit),
            spending: Spending::default(),
            lease: LeaseLength::new(span),
            closed_until: Moment::START,
            free_at: Moment::NEVER,
            used: None,
            counted_since: CountedSince::UNKNOWN,
            ahead_from: Moment::START,
            claimed_at: Moment::START,
        }
    }

    pub(super) fn claimed(&mut self, best_effort: bool, now: Moment) {
        (self.best_effort, self.claimed_at) = (best_effort, now);
    }

    /// A batch claims tokens for the first time.
    pub(super) const fn has_another_batch(&mut self) {
        self.batches = [true, self.batches[0]];
    }

    /// How long before its end a lease is about to end.
    fn about_to_end(&self) -> Duration {
        self.lease.get() / LEASE_PARTS
    }

    /// How it answers to a ticket (`settled`: what it has already answered) what is more than it holds. `unavailable_at`: from when on the
    /// ledger is unavailable for the ticket.
    pub(super) fn mode(&self, settled: Option<BudgetMode>, unavailable_at: Moment, now: Moment) -> BudgetMode {
        if let Some(mode) = settled {
            mode
        } else if now < self.closed_until {
            BudgetMode::Spent { free_at: self.free_at }
        } else if unavailable_at <= now {
            BudgetMode::Unavailable
        } else {
            BudgetMode::Open
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

    /// The places of the tickets that would still wait for it if they claimed now. `unavailable_at`: from when on the ledger is unavailable
    /// for one.
    pub(super) fn blocked(&self, unavailable_at: impl Fn(&Waiter) -> Moment, now: Moment) -> impl Iterator<Item = u64> {
        let mut left = self.held.usable(now);
        self.waiting.iter().filter_map(move |waiter| {
            let got = waiter.need.min(left);
            left -= got;
            let is_open = self.mode(waiter.settled(now), unavailable_at(waiter), now) == BudgetMode::Open;
            (got < waiter.need && is_open).then_some(waiter.place)
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

    /// Until when intents come: the last one within a lease, and lately.
    pub(super) fn in_use_until(&self) -> Moment {
        self.claimed_at.plus(self.lease.get().min(KEPT))
    }

    /// Whether the tokens are to be refilled before somebody needs them: it is in use, and few are left. A first batch may be all that comes
    /// here of a small campaign. `is_last`: no other window or limit of the budget was claimed since.
    fn wants_more(&self, spare: u64, is_last: bool, now: Moment) -> bool {
        let is_in_use = is_last && now < self.in_use_until() && self.batches[1];
        is_in_use && self.limit > 0 && spare.saturating_mul(2) < self.batch.max(self.in_a_second(now))
    }

    /// The most that is asked for ahead of need.
    fn most_ahead(&self) -> u64 {
        (self.limit / PARTS).max(1)
    }

    /// What is spent in a second, as far as so much may be asked for ahead of need.
    fn in_a_second(&self, now: Moment) -> u64 {
        self.spending.in_a_second(now).min(self.most_ahead())
    }

    /// The turn that asks for tokens now, if any.
    pub(super) fn refill(&self, is_last: bool, now: Moment) -> Option<TakeTurn> {
        let lack = self.lack(now);
        let is_ahead = self.wants_more(lack.spare, is_last, now) && now >= self.ahead_from;
        if now < self.closed_until || self.limit == 0 || (lack.tokens == 0 && !is_ahead) {
            return None;
        }
        // What is needed comes in whole units; ahead of need any number will do, so that an instance can hold as few as it spends.
        let unit = unit(self.limit, self.best_effort || lack.tokens == 0);
        let most = self.limit - self.limit % unit;
        let need = lack.tokens.next_multiple_of(unit).min(most);
        // With what is spare, no more than is spent in a second.
        let ahead = self.batch.max(self.in_a_second(now).saturating_sub(lack.spare));
        let want = ahead.max(need).next_multiple_of(unit).min(most);
        let least = if need == 0 { unit } else { u64::from(lack.smallest).next_multiple_of(unit).min(need) };
        let lease_ms = i64::try_from(self.lease.get().as_millis()).unwrap_or(i64::MAX);
        Some(TakeTurn { need, want, unit, least, lease_ms, ..TakeTurn::nothing(self.span, self.limit) })
    }

    /// When to look at it again, while no turn of its budget is without an answer; it may ask for tokens from then on.
    pub(super) fn next_look(&self, is_last: bool, asks_from: Moment, now: Moment) -> Moment {
        let asks_from = asks_from.max(self.closed_until);
        let lack = self.lack(now);
        let at = if lack.tokens > 0 {
            asks_from
        } else if self.wants_more(lack.spare, is_last, now) {
            asks_from.max(self.ahead_from)
        } else {
            let about_to_end = self.about_to_end();
            self.held.next_end(now.plus(about_to_end)).minus(about_to_end)
        };
        at.min(self.over_at(is_last)).min(self.leaves_at())
    }

    /// What the ledger has answered to a turn that asked for tokens: `(when it was asked last, now)`.
    pub(super) fn answered(&mut self, turn: &TakeTurn, answer: &TakeAnswer, (asked_at, now): (Moment, Moment)) {
        self.used = Some(answer.used);
        self.counted_since = CountedSince::of(asked_at, answer.counted_for_ms);
        if answer.granted < turn.want {
            self.batch = answer.granted.clamp(1, self.batch.max(1));
        }
        // A call that is repeated may have got too little when it was made first, and there is more by now.
        let is_spent = answer.free_in_ms != Some(0);
        if is_spent && (answer.granted < turn.need || answer.granted == 0) {
            self.close(answer, now);
        } else {
            self.closed_until = Moment::START;
            if answer.granted == 0 {
                self.ahead_from = now.plus(self.lease.get().min(KEPT));
            }
        }
    }

    fn close(&mut self, answer: &TakeAnswer, now: Moment) {
        self.free_at = answer.free_in_ms.map_or(Moment::NEVER, |ms| now.plus(milliseconds(ms)));
        // By then some leases of now have ended, and what was left of them has been given back.
        let lease = self.lease.get().min(KEPT);
        let leases_over = if answer.leased > 0 { now.plus(lease + lease / 4) } else { Moment::NEVER };
        self.closed_until = self.free_at.min(now.plus(ASK_AGAIN)).min(leases_over);
        let mode = BudgetMode::Spent { free_at: self.free_at };
        let mut left = self.held.usable(now);
        for waiter in &mut self.waiting {
            let got = waiter.need.min(left);
            left -= got;
            if got < waiter.need && waiter.settled(now).is_none() {
                (waiter.need, waiter.settled) = (got, Some((mode, now.plus(KEPT))));
            }
        }
    }

    pub(super) fn spend(&mut self, tokens: u64, judged_at: Moment) -> Option<LeaseTerms> {
        let (terms, used_up) = self.held.take(tokens, judged_at);
        // Spent in the first half of its lease: one half as long would have done.
        let is_early = terms.is_some_and(|terms| judged_at.plus(self.lease.get() / 2) < terms.ends);
        if used_up > 0 && is_early {
            self.lease.was_too_long();
        }
        let largest = self.most_ahead().min(SMALL);
        for _ in 0..used_up {
            self.batch = (self.batch + (self.batch / 2).max(1)).min(largest);
        }
        self.spending.add(tokens, judged_at);
        terms
    }

    /// What is left of leases that have ended; and until when it may wait for the next turn. There is a turn soon while the budget is in use.
    /// Where little is left of it, others may need the tokens before.
    pub(super) fn end_leases(&mut self, is_last: bool, now: Moment) -> (Vec<Grant>, Moment) {
        let ended = self.held.end(now);
        if ended.is_empty() {
            return (ended, now);
        }
        let is_scarce = self.closed_until > Moment::START || self.used.is_none_or(|used| used >= self.limit / 10 * 9);
        let may_wait = is_last && now < self.in_use_until() && !is_scarce;
        let by = if may_wait { now.plus(self.lease.get()) } else { now };
        for _ in ended.iter().filter(|grant| grant.is_mostly_unspent()) {
            self.batch = (self.batch / 2).max(1);
        }
        if self.waiting.iter().any(|waiter| waiter.need > 0) {
            self.lease.was_too_short();
        } else {
            // Nobody lacked the rest.
            self.lease.was_too_long();
        }
        (ended, by)
    }

    /// Reserves what a ticket with this place needs, in the order of arrival.
    pub(super) fn reserve(&mut self, place: u64, line: &Line, now: Moment) {
        let answer = (line.mode != BudgetMode::Open).then(|| (line.mode, now.plus(KEPT)));
        let index = self.waiting.partition_point(|other| other.place < place);
        let before = self.waiting.get(index).filter(|waiter| waiter.place == place).cloned();
        let settled = before.as_ref().and_then(|waiter| waiter.settled.filter(|(_, until)| now < *until)).or(answer);
        let Line { taken: need, smallest, unavailable_after, .. } = *line;
        let waiter = Waiter { place, need, smallest, unavailable_after, settled };
        match before {
            Some(_) => self.waiting[index] = waiter,
            None => self.waiting.insert(index, waiter),
        }
    }

    /// The ticket with this place waits no longer.
    pub(super) fn release(&mut self, place: u64) {
        self.waiting.retain(|waiter| waiter.place != place);
    }

    /// When what is more than a first refill is for others, because intents no longer come here, where every turn of the budget has its
    /// answer. What is held may be half of all that the ledger had, and a lease lasts for up to a minute.
    fn leaves_at(&self) -> Moment {
        let has_much = self.held.total() > first_refill(self.limit);
        if has_much && self.waiting.is_empty() { self.claimed_at.plus(KEPT) } else { Moment::NEVER }
    }

    /// Removes that from what is held, once it is for others. It begins anew when intents come again.
    pub(super) fn leave(&mut self, now: Moment) -> Vec<Grant> {
        if self.leaves_at() > now {
            return Vec::new();
        }
        let first = first_refill(self.limit);
        self.batch = self.batch.min(first);
        self.held.take_beyond(first)
    }

    /// When nothing of it needs to be known any more, as it is, where every turn of the budget has its answer.
    pub(super) fn over_at(&self, is_last: bool) -> Moment {
        if !self.waiting.is_empty() {
            Moment::NEVER
        } else if !is_last {
            self.claimed_at.plus(KEPT)
        } else if self.held.total() == 0 {
            self.claimed_at.plus(FORGET)
        } else {
            Moment::NEVER
        }
    }
}
