//! The turns of this process at the limits that instances share: which run of it they are of, how one is made, those that are asked for, and
//! the task that takes them.

mod asked_turns;

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::{
    limit::{
        SharedLimit,
        share::{Answered, Turns},
    },
    ports::{Clock, Share, StoreError},
};

pub(crate) use asked_turns::AskedTurn;
pub use asked_turns::AskedTurns;

/// How long the last turn may take when the process ends.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Which run of the process this is: when it made its first turn. The part of a millisecond is by chance, for clocks that begin alike. Not
/// before, because a clock that is behind when the process starts is corrected before anything is decided: a run that looks older than the one
/// before gives nothing back to budgets, and has no turn at the other limits while that one counts as a member: at routes, whose turns do not
/// wait for the clock, for 3 s.
pub(crate) fn run_of(clock: &impl Clock) -> i64 {
    const PARTS: u32 = 1_024;
    let part = clock.passed().subsec_nanos() % PARTS;
    clock.now().millis().max(0).saturating_mul(PARTS.into()).saturating_add(part.into()).max(1)
}

/// Makes the turn that has no answer; `None` where there is none. Safe to drop half way: it has no answer then.
///
/// # Errors
/// It has none within so long, either.
pub(crate) async fn make_turn<L: SharedLimit>(
    turns: &mut Turns<L>,
    share: &mut impl Share<L>,
    key: &L::Key,
    clock: &impl Clock,
    within: Duration,
) -> Result<Option<Answered<L>>, StoreError> {
    let Some((number, turn)) = turns.make(|| run_of(clock)) else { return Ok(None) };
    let reply = tokio::select! {
        biased;
        reply = share.turn(key, number, turn) => reply?,
        () = clock.sleep(within) => return Err(StoreError::Temporary(no_answer_within(within))),
    };
    Ok(turns.answered(reply))
}

/// Since when a limit does not answer, by the monotonic clock, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// When the first turn began that was not answered.
    pub since: Duration,
    /// Why the last one was not.
    pub why: String,
}

pub(crate) enum TurnEvent<'e> {
    Silent(&'e str),
    Answers,
    /// The last turn has no answer: why.
    NotLeft(&'e str),
}

/// A task that takes a process's turns at a limit.
pub(crate) trait TakesTurns {
    type Clock: Clock + Clone;
    const EVERY: Duration;

    fn clock(&self) -> &Self::Clock;

    /// Where it is asked for turns; nobody asks, unless it says where.
    fn asked(&self) -> AskedTurns {
        AskedTurns::default()
    }

    fn silence(&mut self) -> &mut Option<Silence>;

    /// Takes a turn; gives whether to take another one at once.
    async fn take_turn(&mut self) -> Result<bool, StoreError>;

    /// It had no answer, or was overtaken.
    fn not_answered(&mut self, error: &StoreError);

    fn show(&self);

    fn log(&self, event: TurnEvent<'_>);

    /// Takes the last turn.
    async fn leave(&mut self) -> Result<(), StoreError>;
}

/// Takes a turn so often, and at once where it is asked for one, until `stop`, and a last one then.
pub(crate) async fn keep<T: TakesTurns>(mut task: T, stop: CancellationToken) {
    let (clock, asked) = (task.clock().clone(), task.asked());
    loop {
        let (began_at, known) = (clock.passed(), asked.count());
        let Some(again) = stop.run_until_cancelled(round(&mut task)).await else { break };
        let next_at = if again { began_at } else { began_at + T::EVERY };
        let wait = next_at.saturating_sub(clock.passed());
        // One that has failed is made again with the next turn, not at once.
        let pause = async {
            tokio::select! {
                biased;
                () = asked.more_than(known) => {}
                () = clock.sleep(wait) => {}
            }
        };
        if stop.run_until_cancelled(pause).await.is_none() {
            break;
        }
    }
    let left = tokio::select! {
        biased;
        left = task.leave() => left.map_err(|error| error.to_string()),
        () = clock.sleep(CLOSE_WITHIN) => Err(no_answer_within(CLOSE_WITHIN)),
    };
    asked.end();
    if let Err(why) = left {
        task.log(TurnEvent::NotLeft(&why));
    }
}

/// Takes a turn, and reports how it went; gives whether to take another one at once.
pub(crate) async fn round<T: TakesTurns>(task: &mut T) -> bool {
    let (began_at, asked) = (task.clock().passed(), task.asked());
    let known = asked.count();
    let again = match task.take_turn().await {
        Ok(again) => {
            if !again {
                asked.taken(known);
            }
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
            task.not_answered(&error);
            false
        }
    };
    task.show();
    again
}

fn no_answer_within(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}
