//! How many intents have waited for a route for too long: their lane reads them without permits, and suppresses them.

use std::time::Duration;

use weir_core::{
    limit::route::{MAX_WAIT_MS, arrivals::Waiting, routes::RouteState},
    ports::Clock,
};

use super::RouteOffsets;

const COUNT_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Overdue {
    due: Duration,
}

impl Overdue {
    /// Counts them among those that wait by the last look, where that is due. Kafka is asked by the time of the clock: how old they are
    /// is only estimated.
    pub(super) async fn count<C: Clock>(
        &mut self,
        offsets: &mut dyn RouteOffsets,
        (state, clock): (&RouteState, &C),
        waiting: &[Waiting],
    ) {
        let passed = clock.passed();
        if passed < self.due {
            return;
        }
        self.due = passed + COUNT_EVERY;
        if waiting.iter().all(|waiting| waiting.count() == 0) {
            state.set_overdue(0);
        } else if let Ok(later) = offsets.waiting_since(clock.now().plus(-MAX_WAIT_MS)).await {
            state.set_overdue(waiting.iter().zip(later).map(|(waiting, later)| before(*waiting, later)).sum());
        }
    }
}

/// How many wait before this offset; `None`: all of them.
fn before(waiting: Waiting, later: Option<u64>) -> u64 {
    Waiting { end: later.map_or(waiting.end, |later| later.min(waiting.end)), ..waiting }.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_before_the_first_that_has_not_waited_for_so_long_are_overdue() {
        let waiting = Waiting { from: 5, end: 9 };
        let found = [None, Some(3), Some(5), Some(7), Some(9), Some(12)].map(|later| before(waiting, later));
        assert_eq!(found, [4, 0, 0, 2, 4, 4]);
    }
}
