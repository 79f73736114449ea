//! The turns of this process at the limits that instances share: the number that they begin behind, how a turn is asked for, and the task that
//! takes turns and keeps what the process holds.

mod asked_turns;
mod keyed;

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::{
    limit::share::{HoldsPart, KeyOf, Silence, TurnNumber, Turns, answer_within, is_overtaken},
    ports::{Clock, Share, StoreError},
};

pub(crate) use asked_turns::AskedTurn;
pub use asked_turns::AskedTurns;
pub use keyed::{KeyedKeeper, RulesInForce};

/// How long the last turn may take when the process ends.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// What the first turn of a run follows. The run is when that turn is made. Not before, because a clock that is behind when the process starts is
/// corrected before anything is decided: a run that looks older than the one before gives nothing back to budgets, and has no turn at the other
/// limits while that one counts as a member: at routes, whose turns do not wait for the clock, for 3 s. The number is by chance, because two
/// processes with one name may begin in the same moment: each would take the other's grant for its own, as that of a turn that is repeated.
pub(crate) fn before_first(clock: &impl Clock) -> TurnNumber {
    TurnNumber { run: clock.now().millis().max(1), number: fastrand::u32(..).into() }
}

/// The task that takes a process's turns at one limit, and keeps what the process holds of it.
pub struct PoolKeeper<H: HoldsPart, S, C> {
    pub(crate) part: H,
    key: KeyOf<H>,
    share: S,
    pub(crate) clock: C,
    turns: Turns<H::Limit>,
    silence: Option<Silence>,
    asked: AskedTurns,
}

impl<H, S, C> PoolKeeper<H, S, C>
where
    H: HoldsPart,
    S: Share<H::Limit>,
    C: Clock + Clone,
{
    /// Of the limit with this key; `asked` is where it is asked for turns.
    pub(crate) fn of(part: H, (key, share): (KeyOf<H>, S), clock: C, asked: AskedTurns) -> Self {
        Self { part, key, share, clock, turns: Turns::default(), silence: None, asked }
    }

    /// Takes a turn so often, and at once where it is asked for one, until `stop`, and a last one then: for when nobody uses the limit any
    /// more.
    pub async fn run(mut self, stop: CancellationToken) {
        let (clock, asked) = (self.clock.clone(), self.asked.clone());
        loop {
            let (began_at, known) = (clock.passed(), asked.count());
            let Some(again) = stop.run_until_cancelled(self.round()).await else { break };
            let next_at = began_at + if again { Duration::ZERO } else { H::EVERY };
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
        let left = answer_within(&clock, CLOSE_WITHIN, self.leave()).await;
        asked.end();
        if let Err(why) = left {
            tracing::warn!(name = self.part.name(), "{}: {why}", H::SAYS[2]);
        }
    }

    async fn leave(&mut self) -> Result<(), StoreError> {
        if self.part.leave() {
            while self.take_turn().await? {}
        }
        Ok(())
    }

    /// Takes a turn, and reports how it went; gives whether to take another one at once.
    pub(crate) async fn round(&mut self) -> bool {
        let (began_at, known) = (self.clock.passed(), self.asked.count());
        let again = match self.take_turn().await {
            Ok(again) => {
                if !again {
                    self.asked.taken(known);
                }
                if self.silence.take().is_some() {
                    tracing::info!(name = self.part.name(), "{}", H::SAYS[1]);
                }
                again
            }
            Err(error) => {
                // However often it is made again, it comes to nothing: a wait for it would only hold up the group.
                if is_overtaken(&error) {
                    self.asked.taken(known);
                }
                let why = error.to_string();
                if self.silence.is_none() {
                    tracing::warn!(name = self.part.name(), "{}: {why}", H::SAYS[0]);
                }
                let since = self.silence.as_ref().map_or(began_at, |silence| silence.since);
                self.silence = Some(Silence { since, why });
                self.part.not_answered(&mut self.turns, &error, since, self.clock.passed());
                false
            }
        };
        self.part.show(self.clock.passed(), self.silence.as_ref());
        again
    }

    /// Takes a turn; gives whether to take another one at once. Safe to drop half way: it has no answer then.
    pub(crate) async fn take_turn(&mut self) -> Result<bool, StoreError> {
        let Self { part, key, share, clock, turns, silence, .. } = self;
        let Some(now) = part.look(clock, silence.as_ref())? else {
            turns.give_up();
            return Ok(false);
        };
        if turns.unanswered().is_none_or(|last| !part.stands(last, now)) {
            let given_up = turns.give_up();
            if let Some(turn) = part.next_turn(given_up, now) {
                turns.begin(turn, now, || before_first(clock));
            }
        }
        let within = part.answer_within(now);
        let Some((number, turn)) = turns.make() else { return Ok(false) };
        let reply = answer_within(clock, within, share.turn(key, number, turn)).await?;
        let answered = turns.answered(reply);
        Ok(answered.is_some_and(|answered| part.answered(answered, clock.passed())))
    }
}
