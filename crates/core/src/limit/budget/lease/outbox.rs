//! What the ledger has yet to be told of a budget besides what is asked for, and whose turn has no answer.
//!
//! A holder's turns at a budget are made one after the other, whatever periods and limits of it are known here: the ledger knows the
//! last one alone. What comes back, and what replays owe, goes with the next turn; where there is none soon, and for what replays owe in
//! another period or under another limit, there is one of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{moment::Moment, owed::Owed};
use crate::limit::{
    budget::{
        BudgetId, SpanNow,
        ledger::{GiveBack, TakeTurn},
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

/// How long nothing is asked after so many turns that the ledger did not answer, and one more.
pub(super) fn pause(refusals: u8) -> Duration {
    LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(u32::from(refusals)))
}

#[derive(Debug, Clone)]
struct TokensBack {
    given: GiveBack,
    /// When their lease ends.
    ends: Moment,
}

impl TokensBack {
    /// As a turn has them that is made now: since they were put here, their lease may have ended.
    fn at(&self, now: Moment) -> GiveBack {
        GiveBack { is_on_lease: self.given.is_on_lease && now < self.ends, ..self.given }
    }
}

#[derive(Debug, Clone)]
pub(super) struct SentTurn {
    pub(super) number: TurnNumber,
    pub(super) turn: TakeTurn,
    back: Vec<TokensBack>,
    owed: Vec<Owed>,
    /// When it was made first; `None`: it is not repeated.
    pub(super) first_at: Option<Moment>,
}

impl SentTurn {
    pub(super) fn new(number: TurnNumber, turn: TakeTurn) -> Self {
        Self { number, turn, back: Vec::new(), owed: Vec::new(), first_at: None }
    }

    /// What it has to have counted.
    pub(super) fn into_owed(self) -> Vec<Owed> {
        self.owed
    }

    /// The turn as it is made now.
    pub(super) fn made(&mut self, now: Moment) -> TakeTurn {
        if self.first_at.is_some_and(|first_at| first_at.plus(REPEATED_WITHIN) <= now) {
            self.back.clear();
        }
        self.turn.back = self.back.iter().map(|back| back.at(now)).collect();
        self.turn.owed = self.owed.iter().map(|owed| owed.at(now)).collect();
        self.turn.clone()
    }
}

/// Who has made a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The budget with this number, for tokens.
    Slot(u32),
    /// Its outbox: nobody is there who could spend what it is granted.
    Outbox,
}

/// Of one budget, whatever its periods and limits.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    /// Whose turn has no answer.
    asker: Option<Asker>,
    /// Others who want to make one.
    queue: Vec<u32>,
    /// Its own turn, to be made again.
    unanswered: Option<SentTurn>,
    refusals: u8,
    /// No turn of its own before.
    pause_until: Moment,
    /// What goes back: what was granted in the same bucket of the same count, and is on lease or not, at once.
    back: Vec<TokensBack>,
    /// Until when that may wait for the turn of another.
    back_by: Moment,
    owed: Vec<Owed>,
}

impl Outbox {
    /// Tokens go back, by then at the latest. `ends`: when their lease does.
    pub(super) fn give_back(&mut self, given: GiveBack, ends: Moment, by: Moment) {
        self.back_by = if self.back.is_empty() { by } else { self.back_by.min(by) };
        let of = |given: &GiveBack| (given.span, given.bucket, given.count_id, given.is_on_lease);
        match self.back.iter_mut().find(|other| of(&other.given) == of(&given)) {
            Some(same) => (same.given.tokens, same.ends) = (same.given.tokens + given.tokens, same.ends.min(ends)),
            None => self.back.push(TokensBack { given, ends }),
        }
    }

    /// What goes back waits for the turn of another until then, at most.
    pub(super) fn hurry(&mut self, by: Moment) {
        self.back_by = self.back_by.min(by);
    }

    /// What goes with a new turn: what comes back, and what replays owe in its period under its limit.
    pub(super) fn load(&mut self, sent: &mut SentTurn) {
        sent.back = self.back.drain(..self.back.len().min(MOST_BACK)).collect();
        let of_turn = (sent.turn.span, sent.turn.limit);
        let all = std::mem::take(&mut self.owed);
        (sent.owed, self.owed) = all.into_iter().partition(|owed| (owed.used.span, owed.used.limit) == of_turn);
    }

    /// Replays owe so much. Beyond what is kept apart it passes for admitted earlier: that counts too much rather than too little.
    fn owe(&mut self, owed: Owed) {
        let is_kept_apart = self.owed.len() < MOST_OWED;
        match self.owed.iter_mut().find(|other| !is_kept_apart && other.is_of_same(&owed)) {
            Some(other) => other.merge(&owed),
            None => self.owed.push(owed),
        }
    }

    fn is_asked_by_other(&self, slot: u32) -> bool {
        self.asker.is_some_and(|asker| asker != Asker::Slot(slot))
    }

    /// Those who want to make a turn, once there is an answer.
    pub(super) fn waiting(&self) -> &[u32] {
        &self.queue
    }

    pub(super) fn asks(&mut self, asker: Asker) {
        self.asker = Some(asker);
    }

    /// The turn has its answer. Those who want to make one.
    pub(super) fn answered(&mut self) -> Vec<u32> {
        (self.asker, self.refusals) = (None, 0);
        std::mem::take(&mut self.queue)
    }

    /// Its turn has no answer; it is made again.
    pub(super) fn refused(&mut self, sent: SentTurn, now: Moment) {
        self.asker = Some(Asker::Outbox);
        self.unanswered = Some(sent);
        self.pause_until = now.plus(pause(self.refusals));
        self.refusals = (self.refusals + 1).min(6);
    }

    /// The turn of its own that is to be made now; a new one has this number.
    fn ask(&mut self, number: TurnNumber, now: Moment) -> Option<SentTurn> {
        if self.wake_at() > now {
            return None;
        }
        if let Some(sent) = self.unanswered.take() {
            return Some(sent);
        }
        let (span, limit) = match (self.owed.first(), self.back.first()) {
            (Some(owed), _) => (owed.used.span, owed.used.limit),
            (None, Some(first)) => (first.given.span, 0),
            (None, None) => return None,
        };
        self.asker = Some(Asker::Outbox);
        let (need, want, unit, least, lease_ms) = (0, 0, 1, 1, 1);
        let (back, owed) = (Vec::new(), Vec::new());
        let turn = TakeTurn { span, limit, need, want, unit, least, lease_ms, back, owed };
        let mut sent = SentTurn::new(number, turn);
        self.load(&mut sent);
        Some(sent)
    }

    /// When it makes a turn of its own, if nothing happens before.
    fn wake_at(&self) -> Moment {
        match self.asker {
            Some(Asker::Outbox) if self.unanswered.is_some() => self.pause_until,
            Some(Asker::Outbox | Asker::Slot(_)) => Moment::NEVER,
            None if !self.owed.is_empty() || self.back.len() >= MOST_BACK => Moment::START,
            None if !self.back.is_empty() => self.back_by,
            None => Moment::NEVER,
        }
    }

    fn is_empty(&self) -> bool {
        self.asker.is_none() && self.queue.is_empty() && self.back.is_empty() && self.owed.is_empty()
    }
}

/// Those of all budgets that have something.
#[derive(Debug, Clone, Default)]
pub(super) struct Outboxes {
    all: BTreeMap<BudgetId, Outbox>,
    by_wake: BTreeSet<(Moment, BudgetId)>,
}

impl Outboxes {
    /// Does something with a budget's.
    pub(super) fn change<T>(&mut self, budget: &BudgetId, what: impl FnOnce(&mut Outbox) -> T) -> T {
        let outbox = self.all.entry(budget.clone()).or_default();
        let before = outbox.wake_at();
        let done = what(outbox);
        let (after, is_empty) = (outbox.wake_at(), outbox.is_empty());
        if is_empty {
            self.all.remove(budget);
        }
        if before != after {
            self.by_wake.remove(&(before, budget.clone()));
            if after != Moment::NEVER {
                self.by_wake.insert((after, budget.clone()));
            }
        }
        done
    }

    /// Whether this one may make no turn, because another one has no answer. It is among those who wait for that, then.
    pub(super) fn has_to_wait(&mut self, budget: &BudgetId, slot: u32) -> bool {
        let Some(outbox) = self.all.get_mut(budget).filter(|outbox| outbox.is_asked_by_other(slot)) else {
            return false;
        };
        if !outbox.queue.contains(&slot) {
            outbox.queue.push(slot);
        }
        true
    }

    pub(super) fn owe(&mut self, owed: Owed) {
        let budget = owed.used.id.clone();
        self.change(&budget, |outbox| outbox.owe(owed));
    }

    /// The budgets whose outbox makes a turn now.
    pub(super) fn due(&self, now: Moment) -> Vec<BudgetId> {
        self.by_wake.iter().take_while(|(at, _)| *at <= now).map(|(_, budget)| budget.clone()).collect()
    }

    /// The turn that it makes then; a new one has this number.
    pub(super) fn ask(&mut self, budget: &BudgetId, number: TurnNumber, now: Moment) -> Option<SentTurn> {
        self.change(budget, |outbox| outbox.ask(number, now))
    }

    /// Nothing waits any more.
    pub(super) fn hurry(&mut self) {
        let budgets: Vec<BudgetId> = self.all.keys().cloned().collect();
        for budget in budgets {
            self.change(&budget, |outbox| (outbox.back_by, outbox.pause_until) = (Moment::START, Moment::START));
        }
    }

    /// When the first makes a turn.
    pub(super) fn next_look(&self) -> Moment {
        self.by_wake.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Whether tokens of this window of a budget have yet to go back.
    pub(super) fn has_back(&self, budget: &BudgetId, span: SpanNow) -> bool {
        self.all.get(budget).is_some_and(|outbox| outbox.back.iter().any(|back| back.given.span == span))
    }

    pub(super) fn unreturned(&self) -> u64 {
        self.all.values().flat_map(|outbox| &outbox.back).map(|back| back.given.tokens).sum()
    }

    /// Whether nothing is left to be told, and every turn has its answer.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
