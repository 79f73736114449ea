//! The turns of a member at one limit, one after the other, each with its number, so that one that is repeated gets what it had.

use std::{cmp::Ordering, future::poll_fn, pin::pin, task::Poll, time::Duration};

use crate::{
    basis::{clocks::Clock, store_error::StoreError},
    limit::SharedLimit,
};

const OVERTAKEN: &str = "a later turn was taken under the name of this instance: it was restored from a snapshot, its clock was set back, or \
                         another process has its name";

/// Why a turn has no answer that comes behind a later one.
pub fn overtaken() -> StoreError {
    StoreError::Temporary(OVERTAKEN.to_owned())
}

/// Whether a turn has no answer because it comes behind a later one: it comes to nothing, however often it is repeated.
pub fn is_overtaken(error: &StoreError) -> bool {
    matches!(error, StoreError::Temporary(why) if why == OVERTAKEN)
}

/// Why a call has no answer that was given so long.
pub fn no_answer_within(limit: Duration) -> StoreError {
    StoreError::Temporary(format!("no answer within {} ms", limit.as_millis()))
}

/// The answer of a call that may take so long. After that time the call is dropped half way, and nobody knows whether it was carried out.
///
/// # Errors
/// That of the call, or [that it has no answer](no_answer_within).
pub async fn answer_within<T>(
    clock: &impl Clock,
    within: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let (mut call, mut over) = (pin!(call), pin!(clock.sleep(within)));
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Pending => over.as_mut().poll(context).map(|()| Err(no_answer_within(within))),
        answer @ Poll::Ready(_) => answer,
    })
    .await
}

/// The number of a turn of one member of a limit. A turn that is repeated has its number, and gets what it was granted; one that comes behind
/// a later one comes to nothing. A member makes one turn after the other: the last one is all that has to be known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TurnNumber {
    /// Which run of the member's process, above 0. Each run has another one, and a later run a higher one.
    pub run: i64,
    /// Which turn of the run, ascending. 0: it is none, and only looks.
    pub number: u64,
}

/// How a turn comes after the last one of its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOrder {
    New,
    /// It is that one, repeated.
    Same,
    /// Another one of its run came after it.
    Behind,
    /// It is of a process that has ended, or whose clock was set back.
    RunBefore,
}

impl TurnNumber {
    /// That of the next turn. The first one is of the run of `before`, and follows it.
    pub(crate) fn next(self, before: impl FnOnce() -> Self) -> Self {
        let Self { run, number } = if self.run == 0 { before() } else { self };
        Self { run, number: number + 1 }
    }

    pub(crate) fn after(self, last: Self) -> TurnOrder {
        match (self.run.cmp(&last.run), self.number.cmp(&last.number)) {
            (Ordering::Less, _) => TurnOrder::RunBefore,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Greater) => TurnOrder::New,
            (Ordering::Equal, Ordering::Equal) => TurnOrder::Same,
            (Ordering::Equal, Ordering::Less) => TurnOrder::Behind,
        }
    }
}

/// The turns of a member at one limit. One that has no answer is made again with its number, until it is given up.
///
/// One that is overtaken ([`is_overtaken`]) is treated alike: another process has taken a later turn under this name, or
/// this one was restored from a snapshot. What it holds may be the other's, so it is given up at once; and it gets nothing until the other is
/// no member any more, 10 s after its last turn, at routes 3 s. It does not go on as a later run, as it does at budgets: its turn would
/// replace what is recorded of the other, so both would hold the same units, and overtake each other again and again. A process that is
/// overtaken at a route for longer than that ends. Budgets know a turn for an hour, which is too long to wait; and tokens are counted when
/// they are granted, whoever holds them, so there each has its own.
pub struct Turns<L: SharedLimit> {
    last: TurnNumber,
    unanswered: Option<Unanswered<L>>,
}

pub struct Unanswered<L: SharedLimit> {
    pub turn: L::Turn,
    /// When it began, by the monotonic clock.
    pub began_at: Duration,
    /// How often it was made.
    made: u64,
}

pub struct Answered<L: SharedLimit> {
    pub turn: L::Turn,
    pub reply: L::Reply,
    /// When it began, by the monotonic clock: what it was granted may be another member's so long after that.
    pub began_at: Duration,
    /// It was made before, without an answer.
    pub is_repeated: bool,
}

impl<L: SharedLimit> Default for Turns<L> {
    fn default() -> Self {
        Self { last: TurnNumber::default(), unanswered: None }
    }
}

impl<L: SharedLimit> Turns<L> {
    pub const fn unanswered(&self) -> Option<&Unanswered<L>> {
        self.unanswered.as_ref()
    }

    /// Gives the turn up that has no answer. What it was granted is held until the next one.
    pub fn give_up(&mut self) -> Option<L::Turn> {
        self.unanswered.take().map(|unanswered| unanswered.turn)
    }

    /// Begins a turn and drops the last one. The first turn follows the number `before`.
    pub fn begin(&mut self, turn: L::Turn, began_at: Duration, before: impl FnOnce() -> TurnNumber) {
        self.last = self.last.next(before);
        self.unanswered = Some(Unanswered { turn, began_at, made: 0 });
    }

    /// The turn that has no answer, to be made now; `None` where there is none.
    pub fn make(&mut self) -> Option<(TurnNumber, &L::Turn)> {
        let unanswered = self.unanswered.as_mut()?;
        unanswered.made += 1;
        Some((self.last, &unanswered.turn))
    }

    /// The turn that has no answer has one.
    pub fn answered(&mut self, reply: L::Reply) -> Option<Answered<L>> {
        let Unanswered { turn, began_at, made } = self.unanswered.take()?;
        Some(Answered { turn, reply, began_at, is_repeated: made > 1 })
    }
}
