//! What instances know of users goes with the partitions that move: whoever gives partitions up takes a turn before, by which others
//! learn what it knows, and whoever gets them takes one before the first batch. Without these, the new owner would know up to a turn later.
//!
//! A change stays pending until the source settles it, and the group waits for that as it does for the batch in flight. So a turn is
//! waited for here, where the group is served meanwhile, and not in a call of Kafka's client, where neither a stop nor a later change
//! would be heard.

use std::time::Duration;

use weir_core::ports::{Clock, Source};

use super::{Ends, GroupLoop, Interruption};
use crate::{
    backoff::SERVE_EVERY,
    share::{AskedTurn, AskedTurns},
};

/// How long a turn is waited for, at most: a log that does not answer must not hold up the group.
const TURN_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct AwaitedTurn {
    turn: AskedTurn,
    /// Until then at the latest, by [`Clock::passed`].
    until: Duration,
}

impl AwaitedTurn {
    fn ask(turns: &AskedTurns, passed: Duration) -> Self {
        Self { turn: turns.ask(), until: passed + TURN_WITHIN }
    }

    /// Done once it is taken or cannot be, or is waited for too long. Safe to drop half way, and to call again.
    pub(crate) async fn over(&self, clock: &impl Clock) {
        let left = self.until.saturating_sub(clock.passed());
        tokio::select! {
            biased;
            () = self.turn.taken() => {}
            () = clock.sleep(left) => {}
        }
    }
}

/// Asks for a turn, where the member has partitions and something depends on turns.
pub(super) fn ask<W: GroupLoop>(work: &mut W) -> Option<AwaitedTurn> {
    let Ends { source, clock, .. } = work.ends();
    let (has_partitions, passed) = (source.partitions() > 0, clock.passed());
    work.turns().filter(|_| has_partitions).map(|turns| AwaitedTurn::ask(turns, passed))
}

/// Waits for a turn before the partitions are given up. The change stays pending, and the group is served.
pub(super) async fn before_change<W: GroupLoop>(work: &mut W, turn: Option<AwaitedTurn>) -> Result<(), Interruption> {
    let Some(turn) = turn else { return Ok(()) };
    let Ends { source, clock, stop, status, .. } = work.ends();
    let mut over = std::pin::pin!(turn.over(clock));
    loop {
        status.progressed(clock.passed());
        tokio::select! {
            biased;
            () = &mut over => return Ok(()),
            () = stop.cancelled() => return Err(Interruption::Stop),
            () = clock.sleep(SERVE_EVERY) => {}
        }
        let _ = source.poll(&mut source.batch(), 0, Duration::ZERO).await?;
    }
}

/// Waits for a turn before the member leaves its group, no longer than it has until it must.
pub(super) async fn before_end<W: GroupLoop>(work: &mut W, turn: Option<AwaitedTurn>, ends_by: Option<Duration>) {
    let Some(mut turn) = turn else { return };
    turn.until = turn.until.min(ends_by.unwrap_or(turn.until));
    let clock = work.ends().clock;
    turn.over(clock).await;
}
