//! A holder's last turn at a budget, so that one that is repeated gets the answer that it had.
//!
//! A holder makes one turn after the other: the next one when the last one is answered. So the last one is all that has to be known.

use super::TurnNumber;

/// How long a turn is known after it was made last, in milliseconds: whoever has no answer repeats it far more often.
const KEPT_MS: i64 = 3_600_000;

/// A holder's last turn of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastTurn {
    turn: TurnNumber,
    /// When it was made last, in ms since 1970.
    at: i64,
    done: Done,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Done {
    /// How many tokens were granted, or taken back.
    pub(super) tokens: u64,
    /// The bucket that they were granted in.
    pub(super) bucket: i64,
}

impl LastTurn {
    pub(super) fn new(turn: TurnNumber, now: i64, done: Done) -> Self {
        Self { turn, at: now, done }
    }

    /// Whether it is still known.
    pub(super) fn is_kept(&self, now: i64) -> bool {
        self.at + KEPT_MS > now
    }

    /// Whether it is of a run after this one, whose process has ended.
    pub(super) fn is_of_later_run(&self, turn: TurnNumber) -> bool {
        self.turn.run > turn.run
    }

    /// What a turn of the same run came to; `None`: it is new. Of one that another came after, the answer is not known any more: nothing.
    pub(super) fn find(&self, TurnNumber { run, number }: TurnNumber) -> Option<Done> {
        if self.turn.run != run || self.turn.number < number {
            return None;
        }
        Some(if self.turn.number == number { self.done } else { Done::default() })
    }

    /// It is made again, so it is known for as long again.
    pub(super) fn again(&mut self, now: i64) {
        self.at = now;
    }
}
