//! A holder's last turns at a budget, so that one that is repeated gets the answer that it had.

use super::TurnNumber;

/// How many turns of a holder are known. Few of its calls of one budget are under way at the same time.
const KEPT: usize = 4;
/// How long they are known after the last one, in milliseconds.
const KEPT_MS: i64 = 3_600_000;

/// The last turns of one run of a holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Turns {
    run: i64,
    /// When the last one was, in ms since 1970.
    last_at: i64,
    /// In the order in which they were made.
    done: Vec<Done>,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    number: u64,
    /// How many tokens were granted, or taken back.
    pub(super) tokens: u64,
    /// The bucket that they are in.
    pub(super) bucket: i64,
}

impl Turns {
    /// Whether they are still known.
    pub(super) fn are_kept(&self, now: i64) -> bool {
        self.last_at + KEPT_MS > now
    }

    /// What a turn came to; `None`: it is new. One that as many came after as are known is forgotten, and comes to nothing.
    pub(super) fn find(&self, TurnNumber { run, number }: TurnNumber, now: i64) -> Option<Done> {
        if self.run != run || !self.are_kept(now) {
            return None;
        }
        let known = self.done.iter().find(|done| done.number == number).copied();
        known.or_else(|| {
            let is_forgotten = self.done.len() == KEPT && self.done.iter().all(|done| number < done.number);
            is_forgotten.then_some(Done { number, tokens: 0, bucket: 0 })
        })
    }

    /// Notes what a new turn came to.
    pub(super) fn add(&mut self, TurnNumber { run, number }: TurnNumber, now: i64, (tokens, bucket): (u64, i64)) {
        if self.run != run || !self.are_kept(now) {
            self.done.clear();
        }
        if self.done.len() == KEPT {
            self.done.remove(0);
        }
        self.done.push(Done { number, tokens, bucket });
        (self.run, self.last_at) = (run, now);
    }
}
