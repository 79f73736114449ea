//! The turns of this process at the limits that instances share: their numbers, the one that has no answer, and the task that takes them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::{
    limit::{SharedLimit, share::TurnNumber},
    ports::{Clock, Share, StoreError},
};

/// How long the last turn may take when the process ends.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Which run of the process this is: when it made its first turn. The part of a millisecond is by chance, for clocks that begin alike. A
/// run that looks older than the one before takes and gives nothing, so the clock is not read when the process starts, where it may be
/// behind: turns at budgets and at the log of activity wait until it is right. Those at the permits of routes do not.
pub(crate) fn run_of(clock: &impl Clock) -> i64 {
    const PARTS: u32 = 1_024;
    let part = clock.passed().subsec_nanos() % PARTS;
    clock.now().millis().max(0).saturating_mul(PARTS.into()).saturating_add(part.into()).max(1)
}

/// The turns at one limit, one after the other. One that has no answer is made again with its number, until it is given up.
pub(crate) struct Turns<L: SharedLimit> {
    /// `None` until the first one is made.
    run: Option<i64>,
    /// Of the last one.
    number: u64,
    unanswered: Option<Unanswered<L>>,
}

/// A turn that has no answer yet.
pub(crate) struct Unanswered<L: SharedLimit> {
    pub(crate) turn: L::Turn,
    /// When it began, by the monotonic clock.
    pub(crate) began_at: Duration,
    number: u64,
    was_made: bool,
}

/// A turn that was answered.
pub(crate) struct Answered<L: SharedLimit> {
    pub(crate) turn: L::Turn,
    pub(crate) reply: L::Reply,
    /// When it began, by the monotonic clock: what it was granted may be another member's so long after that.
    pub(crate) began_at: Duration,
    /// It was made before, without an answer.
    pub(crate) is_repeated: bool,
}

impl<L: SharedLimit> Turns<L> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self { run: None, number: 0, unanswered: None }
    }

    /// The turn that has no answer.
    pub(crate) fn unanswered(&self) -> Option<&Unanswered<L>> {
        self.unanswered.as_ref()
    }

    /// Gives the turn up that has no answer. What it was granted is held until the next one.
    pub(crate) fn give_up(&mut self) -> Option<L::Turn> {
        self.unanswered.take().map(|unanswered| unanswered.turn)
    }

    /// Begins a turn in place of the last one.
    pub(crate) fn begin(&mut self, turn: L::Turn, began_at: Duration) {
        self.number += 1;
        self.unanswered = Some(Unanswered { turn, began_at, number: self.number, was_made: false });
    }

    /// Makes the turn that has no answer; `None` where there is none. Safe to drop half way: it has no answer then.
    ///
    /// # Errors
    /// It has none within so long, either.
    pub(crate) async fn make(
        &mut self,
        share: &mut impl Share<L>,
        key: &L::Key,
        clock: &impl Clock,
        within: Duration,
    ) -> Result<Option<Answered<L>>, StoreError> {
        let Some(unanswered) = &mut self.unanswered else { return Ok(None) };
        let is_repeated = std::mem::replace(&mut unanswered.was_made, true);
        let run = *self.run.get_or_insert_with(|| run_of(clock));
        let number = TurnNumber { run, number: unanswered.number };
        let reply = tokio::select! {
            biased;
            reply = share.turn(key, number, &unanswered.turn) => reply?,
            () = clock.sleep(within) => return Err(StoreError::Temporary(no_answer_within(within))),
        };
        let answered = self.unanswered.take();
        Ok(answered.map(|Unanswered { turn, began_at, .. }| Answered { turn, reply, began_at, is_repeated }))
    }
}

/// Since when a limit does not answer, by the monotonic clock, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// When the first turn began that was not answered.
    pub since: Duration,
    /// Why the last one was not.
    pub why: String,
}

/// What such a task tells people.
pub(crate) enum TurnEvent<'e> {
    /// The limit does not answer: why.
    Silent(&'e str),
    /// It answers again.
    Answers,
    /// The last turn has no answer: why.
    NotLeft(&'e str),
}

/// A task that takes a process's turns at a limit.
pub(crate) trait TakesTurns {
    type Clock: Clock + Clone;
    /// From one turn to the next.
    const EVERY: Duration;

    fn clock(&self) -> &Self::Clock;

    fn silence(&mut self) -> &mut Option<Silence>;

    /// Takes a turn; gives whether to take another one at once.
    async fn take_turn(&mut self) -> Result<bool, StoreError>;

    /// A turn has no answer.
    fn not_answered(&mut self);

    /// Shows how it stands after a turn.
    fn show(&self);

    fn log(&self, event: TurnEvent<'_>);

    /// Takes the last turn.
    async fn leave(&mut self) -> Result<(), StoreError>;
}

/// Takes a turn so often until `stop`, and a last one then.
pub(crate) async fn keep<T: TakesTurns>(mut task: T, stop: CancellationToken) {
    let clock = task.clock().clone();
    loop {
        let began_at = clock.passed();
        let Some(again) = stop.run_until_cancelled(round(&mut task)).await else { break };
        let next_at = if again { began_at } else { began_at + T::EVERY };
        let wait = next_at.saturating_sub(clock.passed());
        if stop.run_until_cancelled(clock.sleep(wait)).await.is_none() {
            break;
        }
    }
    let left = tokio::select! {
        biased;
        left = task.leave() => left.map_err(|error| error.to_string()),
        () = clock.sleep(CLOSE_WITHIN) => Err(no_answer_within(CLOSE_WITHIN)),
    };
    if let Err(why) = left {
        task.log(TurnEvent::NotLeft(&why));
    }
}

/// Takes a turn, and reports how it went; gives whether to take another one at once.
pub(crate) async fn round<T: TakesTurns>(task: &mut T) -> bool {
    let began_at = task.clock().passed();
    let again = match task.take_turn().await {
        Ok(again) => {
            if task.silence().take().is_some() {
                task.log(TurnEvent::Answers);
            }
            again
        }
        Err(error) => {
            let why = error.to_string();
            if task.silence().is_none() {
                task.log(TurnEvent::Silent(&why));
            }
            let first = || Silence { since: began_at, why: String::new() };
            task.silence().get_or_insert_with(first).why = why;
            task.not_answered();
            false
        }
    };
    task.show();
    again
}

fn no_answer_within(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}
