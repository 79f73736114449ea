//! What a process holds of limits, and by what it takes its turns there: the parts that tasks keep.

use std::{pin::Pin, time::Duration};

use super::{Answered, Turns, Unanswered, is_overtaken};
use crate::{
    basis::{clocks::Clock, store_error::StoreError},
    limit::SharedLimit,
};

/// How long a turn may take: then it has no answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Since when a limit does not answer, by the monotonic clock, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// When the first turn began that was not answered.
    pub since: Duration,
    /// Why the last one was not.
    pub why: String,
}

/// What a process holds of a limit, and by what it takes its turns there.
pub trait HoldsPart {
    type Limit: SharedLimit;
    /// From one turn to the next that nobody has asked for.
    const EVERY: Duration = Duration::from_millis(500);
    /// How long what a turn is granted is this process's, from when the turn began.
    const LASTS: Duration = Duration::from_secs(3);
    /// What is logged: no turn has an answer since now, one has again, and the last one had none.
    const SAYS: [&'static str; 3];

    /// Finds out what a turn goes by that begins now; gives when that is. `None`: there is nothing to take one for.
    ///
    /// # Errors
    /// None can begin now.
    fn look(&mut self, clock: &impl Clock, _silence: Option<&Silence>) -> Result<Option<Duration>, StoreError> {
        Ok(Some(clock.passed()))
    }

    /// Whether the turn that has no answer is made again: what it was granted is this process's still, and it says what is so.
    fn stands(&self, last: &Unanswered<Self::Limit>, now: Duration) -> bool {
        now < last.began_at + Self::LASTS
    }

    /// The turn that begins; `given_up`: the one before, which has no answer.
    fn next_turn(&mut self, given_up: Option<TurnOf<Self>>, now: Duration) -> Option<TurnOf<Self>>;

    /// How long the turn may take that is made now.
    fn answer_within(&self, _now: Duration) -> Duration {
        ANSWER_WITHIN
    }

    /// Takes up an answer; gives whether to take another turn at once.
    fn answered(&mut self, answered: Answered<Self::Limit>, now: Duration) -> bool;

    /// A turn had no answer, or was overtaken; there has been none since then. What is held may be the other's where it was overtaken: a part
    /// that holds units gives them up, which the default does not.
    fn not_answered(&mut self, turns: &mut Turns<Self::Limit>, error: &StoreError, _since: Duration, _now: Duration) {
        if is_overtaken(error) {
            turns.give_up();
        }
    }

    fn show(&self, now: Duration, silence: Option<&Silence>);

    /// Its name among others of its kind, which is logged with that.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Nobody uses it any more. Gives whether the limit is told, by a last turn.
    fn leave(&mut self) -> bool {
        false
    }
}

pub type TurnOf<H> = <<H as HoldsPart>::Limit as SharedLimit>::Turn;
pub type KeyOf<H> = <<H as HoldsPart>::Limit as SharedLimit>::Key;

/// A task of a limit: a part of the process, like what keeps it.
pub type LimitTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a process holds of a limit that has several keys: a part of each.
pub trait HoldsParts {
    type Part: HoldsPart;
    /// By what a part is held: where that changes, another one takes its place.
    type Rule: Clone + PartialEq;
    /// What a part has learnt for the one that takes its place.
    type Learnt: Clone;

    /// Which limit a rule is of.
    fn key(rule: &Self::Rule) -> KeyOf<Self::Part>;

    /// What is held of a limit by its rule, that is new or had another rule before. It may run tasks of its own, which end with
    /// it.
    ///
    /// # Errors
    /// Why nothing can be held now; it is asked for again.
    fn begin(
        &self,
        rule: &Self::Rule,
        before: Option<(Self::Rule, Self::Learnt)>,
        run: &dyn Fn(LimitTask),
    ) -> Result<(Self::Part, Self::Learnt), String>;
}
