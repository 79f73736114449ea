//! The turns of a process at the ledger: which are due, and what becomes of their answers.

use std::{sync::Arc, time::Duration};

use super::{
    CallNumber, Due, DueTurn, Leases, Owed, Refused,
    moment::{Moment, milliseconds},
    outbox::{Asker, Outbox, SentTurn},
    slot::TurnAnswer,
};
use crate::limit::{
    budget::{
        BudgetId,
        ledger::{GiveBack, TakeAnswer, TakeTurn},
    },
    share::TurnNumber,
};

#[derive(Debug, Clone)]
pub(super) struct TurnInFlight {
    budget: BudgetId,
    sent: SentTurn,
    pub(super) asker: Asker,
}

impl Leases {
    /// Has the ledger count what replays owe, where it has not counted it.
    pub fn owe(&mut self, owed: Vec<Owed>) {
        owed.into_iter().filter(|owed| owed.used.limit > 0).for_each(|owed| self.outboxes.owe(owed));
    }

    /// How many tokens wait to go back.
    #[must_use]
    pub fn unreturned(&self) -> u64 {
        self.outboxes.unreturned()
    }

    /// What to ask the ledger now (it is in flight from then on), and when to look again at the latest.
    pub fn due(&mut self, passed: Duration) -> Due {
        let now = Moment::of(passed);
        let next_ticket = self.drop_lost_tickets(now);
        let mut turns = Vec::new();
        for number in self.table.take_due(now) {
            self.end_leases(number, now);
            if self.table.get(number).is_over(now) || self.is_closed {
                self.forget(number, now);
                continue;
            }
            self.leave_to_others(number, now);
            let key = Arc::clone(&self.table.get(number).key);
            let next = if self.outboxes.has_to_wait(&key.id, number) {
                self.table.get(number).held.first_end()
            } else {
                turns.extend(self.ask(number, now));
                self.table.get(number).next_look(now)
            };
            self.table.looked_at(number, next);
        }
        for budget in self.outboxes.due(now) {
            let number = self.next_turn();
            if let Some(sent) = self.outboxes.ask(&budget, number, now) {
                turns.push(self.made(budget, sent, Asker::Outbox, now));
            }
        }
        let next_at = self.table.next_look().min(self.outboxes.next_look()).min(next_ticket).passed();
        Due { turns, next_at }
    }

    /// The turn that a budget makes now for tokens, if any. What goes back goes with it, and what replays owe.
    fn ask(&mut self, slot: u32, now: Moment) -> Option<DueTurn> {
        let number = self.next_turn();
        let asking = self.table.change(slot);
        let mut sent = asking.ask(number, now)?;
        let budget = asking.key.id.clone();
        self.outboxes.change(&budget, |outbox| {
            outbox.asks(Asker::Slot(slot));
            if sent.number == number {
                outbox.load(&mut sent);
            }
        });
        let due = self.made(budget, sent, Asker::Slot(slot), now);
        self.table.change(slot).call = Some(due.call);
        Some(due)
    }

    /// Notes that a turn is in flight.
    fn made(&mut self, budget: BudgetId, mut sent: SentTurn, asker: Asker, now: Moment) -> DueTurn {
        let (turn, number) = (sent.made(now), sent.number);
        // Where it is repeated, the call before has its answer.
        let call = CallNumber(number.number);
        self.calls.insert(call, TurnInFlight { budget: budget.clone(), sent, asker });
        DueTurn { call, budget, number, turn }
    }

    fn next_turn(&mut self) -> TurnNumber {
        self.last_call += 1;
        TurnNumber { run: self.run, number: self.last_call }
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
        let Some(TurnInFlight { budget, mut sent, asker }) = self.calls.remove(&call) else { return };
        let (now, asked_at) = (Moment::of(passed), Moment::of(sent_at));
        let is_repeated = sent.first_at.is_some();
        let first_at = *sent.first_at.get_or_insert(asked_at);
        let Ok(answer) = answer else { return self.refused((&budget, asker), sent, now) };
        self.heard(&budget);
        let TakeTurn { span, lease_ms, .. } = sent.turn;
        let ends = first_at.plus(milliseconds(lease_ms));
        let is_on_lease = now < ends;
        if let Asker::Slot(number) = asker
            && is_on_lease
            && !self.is_closed
        {
            self.end_leases(number, now);
            let heard = TurnAnswer { answer: &answer, asked_at, has_back: self.outboxes.has_back(&budget, span) };
            self.table.change(number).answered(&sent, &heard, now);
            return;
        }
        if answer.granted > 0 {
            let TakeAnswer { granted: tokens, bucket, count_id, .. } = answer;
            let given = GiveBack { span, bucket, count_id, tokens, is_on_lease };
            self.outboxes.change(&budget, |outbox| outbox.give_back(given, ends, now));
        }
        if let Asker::Slot(number) = asker {
            self.table.change(number).came_late(is_repeated, now);
        }
    }

    /// The ledger has taken a later turn of this instance, of which this process knows nothing: it was restored from a snapshot. The turn comes
    /// to nothing, and later ones are of this run, or of the next one where this one is not later than theirs. Whether what it gives back was
    /// taken is not known, so that counts as spent.
    pub fn overtaken(&mut self, call: CallNumber, run: i64) {
        let Some(TurnInFlight { budget, sent, asker }) = self.calls.remove(&call) else { return };
        self.run = run.max(self.run + 1);
        self.heard(&budget);
        self.owe(sent.into_owed());
        if let Asker::Slot(number) = asker {
            self.table.change(number).overtaken();
        }
    }

    /// The ledger has answered: those that wait for it may make their turns.
    fn heard(&mut self, budget: &BudgetId) {
        for waiting in self.outboxes.change(budget, Outbox::answered) {
            if self.table.is_of(waiting, budget) {
                self.table.change(waiting).heard();
            }
        }
    }

    /// A turn has no answer: it is repeated. Those that wait for it are not answered either.
    fn refused(&mut self, (budget, asker): (&BudgetId, Asker), sent: SentTurn, now: Moment) {
        match asker {
            Asker::Slot(number) => self.table.change(number).refused(Some(sent), now),
            Asker::Outbox => self.outboxes.change(budget, |outbox| outbox.refused(sent, now)),
        }
        for waiting in self.outboxes.change(budget, |outbox| outbox.waiting().to_vec()) {
            if self.table.is_of(waiting, budget) {
                self.table.change(waiting).refused(None, now);
            }
        }
    }
}
