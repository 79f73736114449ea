//! The signal of the oldest waiting intent: it waits for longer than the drain rate predicts.
//!
//! That it waits is normal, and so is a high age: a blast waits for as long as it takes, and at its end few intents wait, all of them
//! old. So its age is compared with what has left ahead of it. In 3 x ahead of its wait, the drain rate predicts drain rate x time;
//! what stood undelivered when the time began comes first. It is a signal that less than half of the rest has left: the drain rate
//! is not what delivery takes now. (A consumer that weir gives nothing to has an estimate that nothing has confirmed.)
//!
//! It cannot keep a route slow. Its prediction is by the drain rate that signals have left, so a slower route is predicted less; it
//! is judged again in each 3 x ahead, by the offsets of these alone; and while delivery is stopped or the lag is not known, or
//! nothing waits, nothing is judged and the signal ends.

use std::time::Duration;

use super::TIMES;
use crate::limit::route::pace::Lag;

/// The time that is judged at once, in times of [`WaitingQueue::ahead`]: a route settles in it.
const AHEADS: u32 = 3;

/// A route's queue while delivery goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitingQueue {
    /// How long the oldest intent waits; `None`: none waits.
    pub oldest: Option<Duration>,
    /// The intents that have left the topic of waiting intents, in offsets.
    pub left: u64,
    /// The offsets of the route's approved topics.
    pub lag: Lag,
    /// The drain rate, by what signals leave of it.
    pub drain_per_s: f64,
    pub ahead: Duration,
}

/// The signal of one route.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitsLonger {
    judged: Option<JudgedTime>,
    holds: bool,
}

/// The time that is judged, up to the last turn.
#[derive(Debug, Clone)]
struct JudgedTime {
    lasts: Duration,
    /// The offsets when it began.
    left: u64,
    lag: Lag,
    /// The intents that leave in it, as the drain rate predicts.
    due: f64,
}

impl WaitsLonger {
    /// Whether the signal holds, so long after the last turn. `queue` is `None` while delivery is stopped, or something is not known.
    #[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
    pub(super) fn turn(&mut self, passed: Duration, queue: Option<&WaitingQueue>) -> bool {
        let Some((queue, oldest)) = queue.and_then(|queue| Some((queue, queue.oldest?))) else {
            *self = Self::default();
            return false;
        };
        let begins = JudgedTime { lasts: Duration::ZERO, left: queue.left, lag: queue.lag, due: 0.0 };
        // Offsets that went back are counted from another beginning: the route was changed.
        self.judged.take_if(|judged| queue.lag.end < judged.lag.end);
        let Some(judged) = &mut self.judged else {
            self.judged = Some(begins);
            return self.holds;
        };
        judged.due += queue.drain_per_s * passed.as_secs_f64();
        judged.lasts += passed;
        if judged.lasts < AHEADS * queue.ahead {
            return self.holds;
        }
        // Counts intents that were approved without waiting, and intents that were suppressed after waiting.
        let approved = queue.lag.end.saturating_sub(judged.lag.end);
        let left = queue.left.saturating_sub(judged.left).max(approved);
        let predicted = judged.due - judged.lag.undelivered() as f64;
        self.holds = oldest >= judged.lasts && predicted > TIMES * left as f64;
        self.judged = Some(begins);
        self.holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Duration = Duration::from_secs(30);

    /// Turns of every half second, with so many that leave per second, and the oldest intent so old in seconds.
    struct World {
        signal: WaitsLonger,
        queue: WaitingQueue,
    }

    impl World {
        fn new() -> Self {
            let lag = Lag::new(3_000, 0);
            let queue = WaitingQueue { oldest: None, left: 0, lag, drain_per_s: 100.0, ahead: AHEAD };
            Self { signal: WaitsLonger::default(), queue }
        }

        /// In how many seconds of these it held.
        fn run(&mut self, seconds: u64, left_per_s: u64, oldest_s: impl Fn(u64) -> Option<u64>) -> u64 {
            let mut held = 0;
            for second in 0..seconds {
                for _ in 0..2 {
                    self.queue.left += left_per_s / 2;
                    self.queue.oldest = oldest_s(second).map(Duration::from_secs);
                    held += u64::from(self.signal.turn(Duration::from_millis(500), Some(&self.queue)));
                }
            }
            held / 2
        }
    }

    #[test]
    fn an_old_intent_of_a_queue_that_leaves_at_the_drain_rate_is_none() {
        let mut world = World::new();
        assert_eq!(world.run(600, 100, |second| Some(second + 5_000)), 0);
        assert_eq!(world.run(600, 60, Some), 0, "more than half, and as old as the time");
        assert_eq!(world.run(600, 0, |_| Some(5)), 0, "none of them waits for long");
        assert_eq!(world.run(600, 0, |_| None), 0, "none waits");
    }

    #[test]
    fn it_holds_where_less_than_half_leaves_and_ends_with_the_next_time_that_is_judged() {
        let mut world = World::new();
        assert_eq!(world.run(89, 0, |_| Some(500)), 0, "not judged yet");
        assert!(world.run(91, 0, |_| Some(500)) > 85);
        assert!(world.run(91, 100, |_| Some(500)) > 85, "until it is judged again");
        assert_eq!(world.run(600, 100, |_| Some(5_000)), 0, "however old the oldest is");
        world.queue.lag.end += 9_000;
        assert_eq!(world.run(180, 0, |_| Some(500)), 0, "what was approved without waiting has left, too");
    }

    #[test]
    fn what_stood_undelivered_comes_first() {
        let mut world = World::new();
        world.queue.lag.end = 9_100;
        assert_eq!(world.run(180, 0, |_| Some(500)), 0, "90 s of delivery stood in the topic");
        world.queue.lag.committed = 6_000;
        world.run(91, 0, |_| Some(500));
        assert!(world.run(91, 0, |_| Some(500)) > 85);
    }

    #[test]
    fn offsets_that_go_back_begin_a_new_time() {
        let mut world = World::new();
        world.queue.lag = Lag::new(90_000, 87_000);
        assert_eq!(world.run(60, 0, |_| Some(500)), 0, "not judged yet");
        world.queue.lag = Lag::new(3_000, 0);
        assert_eq!(world.run(60, 0, |_| Some(500)), 0, "what was approved in all of it is not known");
        assert!(world.run(60, 0, |_| Some(500)) > 25, "it is judged by the new offsets alone");
    }

    #[test]
    fn a_route_that_the_signal_has_made_slower_is_predicted_less() {
        let mut world = World::new();
        world.run(91, 0, |_| Some(500));
        assert!(world.signal.holds);
        world.queue.drain_per_s = 70.0;
        world.run(180, 40, |_| Some(500));
        assert!(!world.signal.holds, "40 are more than half of 70");
    }

    #[test]
    fn nothing_is_judged_while_delivery_is_stopped_or_nothing_is_known() {
        let mut world = World::new();
        world.run(91, 0, |_| Some(500));
        assert!(world.signal.holds);
        assert!(!world.signal.turn(Duration::from_secs(1), None), "it ends");
        assert_eq!(world.run(89, 0, |_| Some(500)), 0, "and a new time begins");
    }
}
