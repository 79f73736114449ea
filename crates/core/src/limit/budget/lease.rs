//! Leases: the tokens of budgets that one instance holds.
//!
//! One task per process owns [`Leases`]. Batches [claim](Leases::claim) what they need in one step, without I/O. Where the tokens
//! that are held do not suffice, the batch is pending: its place is reserved, and it claims again, judged anew, when it is
//! [ready](Leases::ready). What to ask the [ledger](crate::limit::budget::ledger) is what is [due](Leases::due).
//!
//! Invariant: a token is spent once, by a claim that was judged after the token had arrived and before its lease ended.
//!
//! Invariant: the tokens that a pending ticket has reserved are not taken by one that came later.
//!
//! Invariant: of one budget, one turn is in flight at a time. It asks for what all pending tickets lack. A ticket that it asked
//! for is covered by the answer, or is answered with what the ledger had. So a ticket waits for two calls at most, while the
//! ledger answers within the lease and its own wants stay the same. A lease that ends too early for a ticket is longer the next time.
//! Where a budget turns out to be spent, an intent that it denies leaves what it had of another one to a later intent, which may need more of a
//! third: the ticket waits for that once more.
//!
//! Invariant: no budget passes for spent here while tokens of it, for the same window under the same limit, go back from here. Whether it is
//! spent, the answer tells to the turn that carries them, and not to one that was made before. So a ticket waits for that turn, too.
//!
//! Invariant: a turn without an answer may have been taken, so it is repeated with its number until there is an answer, and before another
//! of its budget. The lease of what it was granted ends by when it was sent first; what nobody can spend any more goes back.

mod claim;
mod funded;
mod held;
mod judge;
mod length;
mod moment;
mod outbox;
mod owed;
mod slot;
mod spending;
mod table;
#[cfg(test)]
mod tests;
mod turns;
mod waiter;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use claim::Key;
pub use claim::{
    Answers, BudgetState, BudgetUse, CallNumber, Claim, Claimed, Due, DueTurn, LeaseNumber, Outcome, Refused, Spent,
    Ticket, Want,
};
pub use funded::{Funded, Lender, Unspent};
use held::{Grant, LeaseTerms};
use judge::Line;
use length::KEPT;
pub use length::LONGEST_LEASE;
use moment::Moment;
use outbox::{Asker, Outboxes};
pub(crate) use owed::LATE_MS;
pub use owed::Owed;
use table::Table;
use turns::TurnInFlight;

use crate::limit::budget::{BudgetId, ledger::GiveBack};

/// The tokens that one process holds of all budgets.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Leases {
    most_budgets: usize,
    table: Table,
    tickets: BTreeMap<Ticket, Pending>,
    calls: HashMap<CallNumber, TurnInFlight>,
    outboxes: Outboxes,
    claims: u64,
    places: u64,
    /// Of the numbers of its turns.
    run: i64,
    last_call: u64,
    is_closed: bool,
}

#[derive(Debug, Clone)]
struct Pending {
    /// Its place in the order of arrival.
    place: u64,
    /// The budgets that it has reserved tokens of, or waits for.
    slots: Vec<u32>,
    /// Since when it could claim; it stays so when tokens end.
    ready_since: Option<Moment>,
}

impl Leases {
    /// No leases. `most_budgets`: how many budgets it knows at a time; budgets that tickets wait for come on top. `run`: that of its turns'
    /// numbers ([`TurnNumber::run`](crate::limit::share::TurnNumber::run)), unless [another one begins](Leases::begin_run) before.
    #[must_use]
    pub fn new(most_budgets: usize, run: i64) -> Self {
        Self {
            most_budgets,
            table: Table::default(),
            tickets: BTreeMap::new(),
            calls: HashMap::new(),
            outboxes: Outboxes::default(),
            claims: 0,
            places: 0,
            run,
            last_call: 0,
            is_closed: false,
        }
    }

    /// Its turns are of this run, if it has made none yet.
    pub fn begin_run(&mut self, run: impl FnOnce() -> i64) {
        if self.last_call == 0 {
            self.run = run();
        }
    }

    /// Takes what a batch needs in one step, or reserves its place. A claim of a ticket that was pending uses its reservation; what
    /// it wants may be something else than before.
    ///
    /// # Panics
    /// Where a place in the claim does not exist, or a budget is in it twice.
    pub fn claim(&mut self, ticket: Ticket, claim: &Claim, passed: Duration) -> Claimed {
        if self.is_closed {
            return Claimed::Pending;
        }
        let (now, judged_at) = (Moment::of(passed), Moment::of(claim.judged_at));
        self.claims += 1;
        let place = self.tickets.get(&ticket).map(|pending| pending.place);
        let mut lines: Vec<Line> = Vec::with_capacity(claim.budgets.len());
        for used in &claim.budgets {
            lines.push(self.line(used, claim, place, now));
        }
        let outcomes = judge::judge(claim, &mut lines);
        let claimed = if lines.iter().all(Line::is_covered) {
            self.cancel(ticket);
            let leases = lines.iter().map(|line| self.spend(line, judged_at)).collect();
            let counted_for = |line: &Line| self.table.get(line.slot).counted_since.until(judged_at);
            let counted_for_ms = lines.iter().map(counted_for).collect();
            let spent = lines.iter().map(Line::spent).collect();
            Claimed::Answered(Answers { outcomes, spent, leases, counted_for_ms })
        } else {
            self.reserve(ticket, &lines, now);
            Claimed::Pending
        };
        while self.table.len() > self.most_budgets
            && let Some(least_recent) = self.table.least_recent()
        {
            self.forget(least_recent, now);
        }
        claimed
    }

    fn line(&mut self, used: &BudgetUse, claim: &Claim, place: Option<u64>, now: Moment) -> Line {
        let key = Key { id: used.id.clone(), span: used.span, limit: used.limit };
        let number = self.table.find(&key).unwrap_or_else(|| self.table.add(key, used.best_effort));
        self.end_leases(number, now);
        self.table.claimed(number, self.claims);
        let slot = self.table.change(number);
        slot.claimed(used.best_effort, self.claims, now);
        let (available, settled) = slot.available(place, Moment::of(claim.judged_at), now);
        Line {
            slot: number,
            mode: slot.mode(settled, used.unavailable_after, now),
            unavailable_after: used.unavailable_after,
            limit: used.limit,
            used: slot.used.unwrap_or(0),
            available,
            taken: 0,
            smallest: u8::MAX,
            has_denied: false,
        }
    }

    fn spend(&mut self, line: &Line, judged_at: Moment) -> Option<LeaseNumber> {
        let slot = self.table.change(line.slot);
        let terms = slot.spend(line.taken, judged_at)?;
        Some(LeaseNumber { span: slot.key.span, limit: slot.key.limit, terms })
    }

    fn reserve(&mut self, ticket: Ticket, lines: &[Line], now: Moment) {
        let slots: Vec<u32> = lines.iter().map(|line| line.slot).collect();
        let before = self.tickets.remove(&ticket);
        let place = before.as_ref().map_or(self.places + 1, |pending| pending.place);
        self.places = self.places.max(place);
        let now_used: BTreeSet<u32> = slots.iter().copied().collect();
        for number in before.into_iter().flat_map(|pending| pending.slots).filter(|number| !now_used.contains(number)) {
            self.table.change(number).release(place);
        }
        for line in lines {
            self.table.change(line.slot).reserve(place, line, now);
        }
        self.tickets.insert(ticket, Pending { place, slots, ready_since: None });
    }

    /// The ticket claims no longer: its reservation is for others.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(pending) = self.tickets.remove(&ticket) {
            for number in pending.slots {
                self.table.change(number).release(pending.place);
            }
        }
    }

    /// Puts back tokens of a claim that were not spent (budget, lease, how many), at most as many as the claim took. Where their
    /// lease has ended or its budget is forgotten, they are given back to the ledger. No refill makes up for them.
    pub fn put_back(&mut self, tokens: &[(BudgetId, LeaseNumber, u64)], passed: Duration) {
        let now = Moment::of(passed);
        for (id, lease, tokens) in tokens {
            let key = Key { id: id.clone(), span: lease.span, limit: lease.limit };
            let grant = Grant { terms: lease.terms, tokens: *tokens, granted: 0 };
            let number = self.table.find(&key);
            if let Some(number) = number {
                self.table.change(number).was_not_spent(*tokens, now);
            }
            match number.filter(|_| now < lease.terms.ends && !self.is_closed) {
                Some(number) => self.table.change(number).held.add(grant),
                None => self.give_back(&key, &grant, now),
            }
        }
    }

    /// Pending tickets for which there is what they needed of each budget that grants it, in the order of arrival. One that claims now (judged
    /// now) is answered, unless its intents need more of a budget because another one denies some of them by now.
    pub fn ready(&mut self, passed: Duration) -> Vec<Ticket> {
        let blocked = self.note_ready(Moment::of(passed));
        let ready = self.tickets.iter().filter(|(_, pending)| !blocked.contains(&pending.place));
        let by_place: BTreeMap<u64, Ticket> = ready.map(|(ticket, pending)| (pending.place, *ticket)).collect();
        by_place.into_values().collect()
    }

    /// Notes which tickets could claim. The places of the others.
    fn note_ready(&mut self, now: Moment) -> BTreeSet<u64> {
        let blocked = self.blocked(now);
        for pending in self.tickets.values_mut().filter(|pending| !blocked.contains(&pending.place)) {
            pending.ready_since.get_or_insert(now);
        }
        blocked
    }

    fn waited_for(&self) -> BTreeSet<u32> {
        self.tickets.values().flat_map(|pending| pending.slots.iter().copied()).collect()
    }

    /// The places of the tickets that would still wait.
    fn blocked(&self, now: Moment) -> BTreeSet<u64> {
        self.waited_for().into_iter().flat_map(|number| self.table.get(number).blocked(now)).collect()
    }

    /// Drops tickets that did not claim for a while after they were ready. The next moment when a ticket is to be
    /// looked at.
    fn drop_lost_tickets(&mut self, now: Moment) -> Moment {
        self.note_ready(now);
        let over = |pending: &Pending| pending.ready_since.map_or(Moment::NEVER, |since| since.plus(KEPT));
        let lost: Vec<Ticket> =
            self.tickets.iter().filter(|(_, pending)| over(pending) <= now).map(|(ticket, _)| *ticket).collect();
        for ticket in lost {
            self.cancel(ticket);
        }
        let unavailable = self.waited_for().into_iter().map(|number| self.table.get(number).next_unavailable(now));
        self.tickets.values().map(over).chain(unavailable).min().unwrap_or(Moment::NEVER)
    }

    /// The process stops: everything unspent is to be given back, and nothing is granted any more.
    pub fn close(&mut self, passed: Duration) {
        self.is_closed = true;
        self.tickets.clear();
        for number in self.table.all() {
            self.forget(number, Moment::of(passed));
        }
        self.outboxes.hurry();
    }

    /// Whether every turn has its answer, and nothing is left to be told to the ledger.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.outboxes.is_empty()
    }

    /// What is known of each budget: where it is known for several periods or limits, of the one that was claimed last.
    #[must_use]
    pub fn states(&self, passed: Duration) -> Vec<BudgetState> {
        let now = Moment::of(passed);
        let mut last = BTreeMap::new();
        for slot in self.table.iter() {
            let entry = last.entry(&slot.key.id).or_insert(slot);
            *entry = if entry.last_claim < slot.last_claim { slot } else { entry };
        }
        last.into_values().map(|slot| slot.state(now)).collect()
    }

    fn end_leases(&mut self, number: u32, now: Moment) {
        if self.table.get(number).held.first_end() > now {
            return;
        }
        let slot = self.table.change(number);
        let (key, by, ended) = (std::sync::Arc::clone(&slot.key), slot.back_by(now), slot.end_leases(now));
        for grant in &ended {
            self.give_back(&key, grant, by);
        }
    }

    /// Where intents no longer come, gives back what others may need, at once.
    fn leave_to_others(&mut self, number: u32, now: Moment) {
        if !self.table.get(number).leaves(now) {
            return;
        }
        let slot = self.table.change(number);
        let (key, left) = (std::sync::Arc::clone(&slot.key), slot.leave());
        for grant in &left {
            self.give_back(&key, grant, now);
        }
        self.outboxes.change(&key.id, |outbox| outbox.hurry(now));
    }

    /// Gives back what is held of a budget, and forgets it. A turn that has no answer is repeated all the same.
    fn forget(&mut self, number: u32, now: Moment) {
        let mut slot = self.table.remove(number);
        for grant in slot.end_leases(Moment::NEVER) {
            self.give_back(&slot.key, &grant, now);
        }
        if let Some(call) = slot.call.and_then(|call| self.calls.get_mut(&call)) {
            call.asker = Asker::Outbox;
            self.outboxes.change(&slot.key.id, |outbox| outbox.asks(Asker::Outbox));
        } else if let Some(sent) = slot.unanswered.take() {
            self.outboxes.change(&slot.key.id, |outbox| outbox.refused(*sent, now));
        }
    }

    /// Tokens go back to the ledger, by then at the latest.
    fn give_back(&mut self, key: &Key, grant: &Grant, by: Moment) {
        let LeaseTerms { ends, bucket, count_id, .. } = grant.terms;
        // What is still on lease goes at once: now, then.
        let is_on_lease = by < ends;
        let given = GiveBack { span: key.span, bucket, count_id, tokens: grant.tokens, is_on_lease };
        if given.tokens == 0 {
            return;
        }
        self.outboxes.change(&key.id, |outbox| outbox.give_back(given, ends, by));
        if let Some(number) = self.table.find(key) {
            self.table.change(number).reopen();
        }
    }
}
