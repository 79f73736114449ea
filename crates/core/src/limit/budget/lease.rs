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
//! Invariant: no budget passes for spent here while tokens of it, for the same window, go back from here. Whether it is spent, the answer
//! tells to the turn that carries them, and not to one that was made before. So a ticket waits for that turn, too.
//!
//! Invariant: a turn without an answer may have been taken, so it is repeated with its number until there is an answer, and before another
//! of its budget. The lease of what it was granted ends by when it was sent first; what nobody can spend any more goes back.

mod claim;
mod funded;
mod held;
mod holding;
mod judge;
mod length;
mod moment;
mod owed;
mod spending;
mod stock;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use claim::{
    Answers, BudgetState, BudgetUse, CallNumber, Claim, Claimed, Due, DueTurn, LeaseNumber, Outcome, Refused, Spent,
    Ticket, Want,
};
pub use funded::{Funded, Lender, Settling, Unspent};
use judge::Line;
use length::KEPT;
pub use length::LONGEST_LEASE;
use moment::Moment;
pub(crate) use owed::LATE_MS;
pub use owed::Owed;
use table::Table;

use crate::limit::{
    budget::{BudgetId, ledger::TakeAnswer},
    share::TurnNumber,
};

/// Turns that are in flight at the same time, at most; each has a connection of its own. Where more are due, budgets take their turns one after
/// the other: those whose last one has no answer, and all others.
pub const MOST_TURNS: usize = 64;
/// How many of them are repeated, at most: a node that does not answer leaves half of the places to budgets of others.
const MOST_REPEATED: usize = MOST_TURNS / 2;
/// How often it is looked while as many are as may be: a budget may be unavailable by then, for those who wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tokens that one process holds of all budgets.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Leases {
    most_budgets: usize,
    table: Table,
    tickets: BTreeMap<Ticket, Pending>,
    places: u64,
    last_turn: TurnNumber,
    /// The numbers of the budgets that made the last one: a new one, and one that is repeated.
    last_asked: [u32; 2],
    /// Likewise.
    in_flight: [usize; 2],
    is_closed: bool,
}

#[derive(Debug, Clone)]
struct Pending {
    /// Its place in the order of arrival.
    place: u64,
    /// The budgets that it has reserved tokens of, or waits for; ascending.
    budgets: Vec<u32>,
    /// Since when it could claim; it stays so when tokens end.
    ready_since: Option<Moment>,
}

impl Leases {
    /// No leases. `most_budgets`: how many budgets it holds tokens of at a time; budgets that tickets wait for come on top.
    #[must_use]
    pub fn new(most_budgets: usize) -> Self {
        let (table, tickets) = Default::default();
        let (places, last_turn, last_asked, in_flight, is_closed) = Default::default();
        Self { most_budgets, table, tickets, places, last_turn, last_asked, in_flight, is_closed }
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
        let place = self.tickets.get(&ticket).map(|pending| pending.place);
        let mut lines: Vec<Line> = Vec::with_capacity(claim.budgets.len());
        for used in &claim.budgets {
            lines.push(self.line(used, judged_at, place, now));
        }
        let outcomes = judge::judge(claim, &mut lines);
        let claimed = if lines.iter().all(Line::is_covered) {
            self.cancel(ticket);
            let taken = lines.iter().map(|line| {
                let stock = self.table.change(line.budget).last();
                let (span, limit, counted) = (stock.span, stock.limit, stock.counted_since.until(judged_at));
                let terms = stock.spend(line.taken, judged_at);
                (terms.map(|terms| LeaseNumber { span, limit, terms }), counted)
            });
            let (leases, counted_for_ms) = taken.unzip();
            let spent = lines.iter().map(Line::spent).collect();
            Claimed::Answered(Answers { outcomes, spent, leases, counted_for_ms })
        } else {
            self.reserve(ticket, &lines, now);
            Claimed::Pending
        };
        if self.table.len() > self.most_budgets {
            self.forget_least_recent(now);
        }
        claimed
    }

    fn line(&mut self, used: &BudgetUse, judged_at: Moment, place: Option<u64>, now: Moment) -> Line {
        let budget = self.table.number(&used.id);
        let holding = self.table.change(budget);
        holding.end_leases(now);
        let unavailable_at = holding.unavailable_at(used.unavailable_after);
        let stock = holding.claimed(used, now);
        if place.is_none() {
            stock.has_another_batch();
        }
        let (available, settled) = stock.available(place, judged_at, now);
        Line {
            budget,
            mode: stock.mode(settled, unavailable_at, now),
            unavailable_after: used.unavailable_after,
            limit: used.limit,
            used: stock.used.unwrap_or(0),
            available,
            taken: 0,
            smallest: u8::MAX,
            has_denied: false,
        }
    }

    fn reserve(&mut self, ticket: Ticket, lines: &[Line], now: Moment) {
        let mut budgets: Vec<u32> = lines.iter().map(|line| line.budget).collect();
        budgets.sort_unstable();
        let before = self.tickets.remove(&ticket);
        let place = before.as_ref().map_or(self.places + 1, |pending| pending.place);
        self.places = self.places.max(place);
        let of_before = before.into_iter().flat_map(|pending| pending.budgets);
        for budget in of_before.filter(|budget| budgets.binary_search(budget).is_err()) {
            self.table.change(budget).release(place);
        }
        for line in lines {
            self.table.change(line.budget).reserve(place, line, now);
        }
        self.tickets.insert(ticket, Pending { place, budgets, ready_since: None });
    }

    /// The ticket claims no longer: its reservation is for others.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(pending) = self.tickets.remove(&ticket) {
            for budget in pending.budgets {
                self.table.change(budget).release(pending.place);
            }
        }
    }

    /// Beyond the most budgets gives back what is held of those that were claimed least lately and that no ticket waits for: of some more at
    /// a time, because all are looked at for that.
    fn forget_least_recent(&mut self, now: Moment) {
        let all = self.table.iter().filter_map(|(number, holding)| Some((number, holding.stocks.last()?.claimed_at)));
        let mut live: Vec<(Moment, u32)> = all.map(|(number, claimed_at)| (claimed_at, number)).collect();
        let Some(beyond) = live.len().checked_sub(self.most_budgets).filter(|beyond| *beyond > 0) else { return };
        live.sort_unstable();
        live.retain(|(_, number)| self.table.get(*number).stocks.iter().all(|stock| stock.waiting.is_empty()));
        for (_, number) in live.into_iter().take(beyond + self.most_budgets / 16) {
            self.table.change(number).forget(now);
        }
    }

    /// Takes up what becomes of tokens beside those that are spent.
    pub fn settle(&mut self, settling: Settling, passed: Duration) {
        match settling {
            Settling::Unspent(tokens) => self.put_back(&tokens, passed),
            Settling::Owed(owed) => self.owe(owed),
        }
    }

    /// Puts back tokens of a claim that were not spent (budget, lease, how many), at most as many as the claim took. Where their
    /// lease has ended or its budget is forgotten, they are given back to the ledger. No refill makes up for them.
    pub fn put_back(&mut self, tokens: &[(BudgetId, LeaseNumber, u64)], passed: Duration) {
        for (id, lease, tokens) in tokens {
            let number = self.table.number(id);
            self.table.change(number).put_back(lease, *tokens, Moment::of(passed));
        }
    }

    /// Has the ledger count what replays owe, where it has not counted it.
    pub fn owe(&mut self, owed: Vec<Owed>) {
        for owed in owed.into_iter().filter(|owed| owed.used.limit > 0) {
            let number = self.table.number(&owed.used.id);
            self.table.change(number).owe(owed);
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
        let waited_for: BTreeSet<u32> = self.tickets.values().flat_map(|pending| &pending.budgets).copied().collect();
        let blocked: BTreeSet<u64> =
            waited_for.into_iter().flat_map(|number| self.table.get(number).blocked(now)).collect();
        for pending in self.tickets.values_mut().filter(|pending| !blocked.contains(&pending.place)) {
            pending.ready_since.get_or_insert(now);
        }
        blocked
    }

    /// Drops tickets that did not claim for a while after they were ready. When the next one is to be looked at.
    fn drop_lost_tickets(&mut self, now: Moment) -> Moment {
        self.note_ready(now);
        let over = |pending: &Pending| pending.ready_since.map_or(Moment::NEVER, |since| since.plus(KEPT));
        let lost: Vec<Ticket> =
            self.tickets.iter().filter(|(_, pending)| over(pending) <= now).map(|(ticket, _)| *ticket).collect();
        lost.into_iter().for_each(|ticket| self.cancel(ticket));
        self.tickets.values().map(over).min().unwrap_or(Moment::NEVER)
    }

    /// The turns to take at the ledger now, which are in flight afterwards, and when to look again at the latest. The first turn follows the
    /// number `before`.
    pub fn due(&mut self, passed: Duration, before: impl Fn() -> TurnNumber) -> Due {
        let now = Moment::of(passed);
        let mut next_at = self.drop_lost_tickets(now);
        let mut turns = Vec::new();
        for (is_repeated, most) in [(true, MOST_REPEATED), (false, MOST_TURNS)] {
            let kind = usize::from(is_repeated);
            let mut due = self.table.due(now, self.last_asked[kind]);
            due.retain(|number| self.table.get(*number).is_repeated() == is_repeated);
            for number in due {
                if self.in_flight[kind] == most || self.in_flight.iter().sum::<usize>() == MOST_TURNS {
                    next_at = next_at.min(now.plus(LOOK_EVERY));
                    break;
                }
                self.last_turn = self.last_turn.next(&before);
                let holding = self.table.change(number);
                holding.tidy(now);
                if let Some(asked) = holding.ask(self.last_turn, number, now) {
                    self.last_asked[kind] = number;
                    self.in_flight[kind] += 1;
                    turns.push(asked);
                }
                if holding.stocks.is_empty() && holding.is_settled() {
                    self.table.remove(number);
                } else {
                    let next = holding.next_look(now);
                    self.table.wakes(number, next);
                }
            }
        }
        Due { turns, next_at: self.table.next_look(now).min(next_at).passed() }
    }

    /// The ledger's answer to a call that was sent then. The tokens may be spent by claims judged from now on, until the lease ends:
    /// its length after the turn was sent first. What an answer grants that comes later than that goes back.
    pub fn answered(
        &mut self,
        call: CallNumber,
        answer: Result<TakeAnswer, Refused>,
        sent_at: Duration,
        passed: Duration,
    ) {
        if let Some(holding) = self.table.asked(call) {
            self.in_flight[usize::from(holding.is_repeated())] -= 1;
            holding.answered(answer, Moment::of(sent_at), Moment::of(passed));
        }
    }

    /// The ledger has taken a later turn of this instance, of which this process knows nothing: it was restored from a snapshot. The turn comes
    /// to nothing, and later ones are of this run, or of the next one where this one is not later than theirs. Whether what it gives back was
    /// taken is not known, so that counts as spent.
    pub fn overtaken(&mut self, call: CallNumber, run: i64) {
        if let Some(holding) = self.table.asked(call) {
            self.in_flight[usize::from(holding.is_repeated())] -= 1;
            holding.overtaken();
            self.last_turn.run = run.max(self.last_turn.run + 1);
        }
    }

    /// The process stops: everything unspent is to be given back, and nothing is granted any more.
    pub fn close(&mut self, passed: Duration) {
        self.is_closed = true;
        self.tickets.clear();
        let all: Vec<u32> = self.table.iter().map(|(number, _)| number).collect();
        for number in all {
            let holding = self.table.change(number);
            holding.forget(Moment::of(passed));
            holding.pause_until = Moment::START;
        }
    }

    /// How many tokens wait to go back.
    #[must_use]
    pub fn unreturned(&self) -> u64 {
        self.table.iter().map(|(_, holding)| holding.unreturned()).sum()
    }

    /// Whether every turn has its answer, and nothing is left to be told to the ledger.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.table.iter().all(|(_, holding)| holding.is_settled())
    }

    /// What is known of each budget: where it is known for several windows or limits, of the one that was claimed last.
    #[must_use]
    pub fn states(&self) -> Vec<BudgetState> {
        self.table.iter().filter_map(|(_, holding)| holding.state()).collect()
    }
}
