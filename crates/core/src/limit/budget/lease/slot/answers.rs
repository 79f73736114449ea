//! What a budget makes of the ledger's answers.

use std::time::Duration;

use super::{
    super::{
        claim::BudgetMode,
        held::{Grant, LeaseTerms},
        length::KEPT,
        moment::{CountedSince, Moment, milliseconds},
        outbox::{SentTurn, pause},
    },
    BudgetSlot, Shortage,
};
use crate::limit::budget::ledger::TakeAnswer;

/// A spent budget is asked for again after so long, even if it frees later: a rebuild may have counted it again meanwhile, and an
/// instance that stood still may have given tokens back.
const ASK_AGAIN: Duration = Duration::from_secs(60);

pub(in crate::limit::budget::lease) struct TurnAnswer<'a> {
    pub(in crate::limit::budget::lease) answer: &'a TakeAnswer,
    /// When it was asked, for the last time.
    pub(in crate::limit::budget::lease) asked_at: Moment,
    /// Tokens of the budget's window have yet to go back.
    pub(in crate::limit::budget::lease) has_back: bool,
}

impl BudgetSlot {
    /// Adds what the ledger has granted.
    pub(in crate::limit::budget::lease) fn answered(&mut self, sent: &SentTurn, heard: &TurnAnswer<'_>, now: Moment) {
        let (turn, &TurnAnswer { answer, asked_at, has_back }) = (&sent.turn, heard);
        self.call = None;
        self.heard();
        self.used = Some(answer.used);
        self.counted_since = CountedSince::of(asked_at, answer.counted_for_ms);
        let ends = sent.first_at.unwrap_or(asked_at).plus(milliseconds(turn.lease_ms));
        let terms = LeaseTerms { since: now, ends, bucket: answer.bucket, count_id: answer.count_id };
        self.held.add(Grant { terms, tokens: answer.granted, granted: answer.granted });
        if answer.granted < turn.want {
            self.batch = answer.granted.clamp(1, self.batch.max(1));
        }
        // A call that is repeated may have got too little when it was made first, and there is more by now. What has yet to go back is asked
        // for by the next one.
        let is_spent = answer.free_in_ms != Some(0) && !has_back;
        if is_spent && (answer.granted < turn.need || answer.granted == 0) {
            self.close(answer, now);
        } else {
            self.closed = None;
            if answer.granted == 0 {
                self.ahead_from = now.plus(self.lease.get().min(KEPT));
            }
        }
        for waiter in &mut self.waiting {
            waiter.is_asked = false;
        }
    }

    pub(in crate::limit::budget::lease) fn heard(&mut self) {
        (self.refused_since, self.refusals, self.pause_until) = (Moment::NEVER, 0, Moment::START);
    }

    fn close(&mut self, answer: &TakeAnswer, now: Moment) {
        let free_at = answer.free_in_ms.map_or(Moment::NEVER, |ms| now.plus(milliseconds(ms)));
        // By then some leases of now have ended, and what was left of them has been given back.
        let lease = self.lease.get().min(KEPT);
        let leases_over = now.plus(lease + lease / 4);
        let until = free_at.min(now.plus(ASK_AGAIN));
        let until = if answer.leased > 0 { until.min(leases_over) } else { until };
        self.closed = Some(Shortage { free_at, until });
        let mode = BudgetMode::Spent { used: answer.used, free_at };
        let mut left = self.held.usable(now);
        for waiter in &mut self.waiting {
            let got = waiter.need.min(left);
            left -= got;
            if waiter.is_asked && got < waiter.need {
                waiter.need = got;
                waiter.settled = Some((mode, now.plus(KEPT)));
            }
        }
    }

    /// Tokens of it go back: the ledger is asked again by the turn that carries them.
    pub(in crate::limit::budget::lease) fn reopen(&mut self) {
        self.closed = None;
    }

    /// Notes that the ledger answered when the lease had ended: it is asked again, for a longer one where the answer came at once.
    pub(in crate::limit::budget::lease) fn came_late(&mut self, is_repeated: bool, now: Moment) {
        if is_repeated {
            self.call_failed();
        } else if self.lease.may_be_longer() {
            self.lease.was_too_short();
            self.call_failed();
        } else {
            self.refused(None, now);
        }
    }

    /// Notes that the call comes to nothing, though the ledger answers: there is another one.
    pub(in crate::limit::budget::lease) fn overtaken(&mut self) {
        self.heard();
        self.call_failed();
    }

    /// No call is in flight any more, and nobody has got anything by it.
    fn call_failed(&mut self) {
        self.call = None;
        for waiter in &mut self.waiting {
            waiter.is_asked = false;
        }
    }

    /// Notes that the ledger did not answer; what it was asked is repeated.
    pub(in crate::limit::budget::lease) fn refused(&mut self, unanswered: Option<SentTurn>, now: Moment) {
        self.unanswered = unanswered.map(Box::new);
        self.refused_since = self.refused_since.min(now);
        self.pause_until = now.plus(pause(self.refusals));
        self.refusals = (self.refusals + 1).min(6);
        self.call_failed();
    }
}
