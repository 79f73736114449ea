//! Signals of overload of a route beside its lag: deliveries that fail more often than usual, a service that takes longer than
//! usual, and an oldest waiting intent that waits for longer than the drain rate predicts. Each leaves 0.7 of the drain rate while it
//! holds.
//!
//! Usual is the mean of the last minutes, so what lasts becomes usual: the lag goes on saying what delivery takes.

mod waits;

use std::time::Duration;

pub use self::waits::WaitingQueue;
use self::waits::WaitsLonger;

/// What a signal leaves of the drain rate, in thousandths.
const LEAVES: u64 = 700;
/// Over how long the share of failed deliveries is taken.
const WINDOW: Duration = Duration::from_secs(30);
/// Deliveries of a window that say something.
const ENOUGH: u64 = 20;
/// A window's part of the usual share.
const WINDOW_PART: f64 = 0.1;
/// The usual time is the mean of about so long.
const USUAL_S: f64 = 600.0;
/// How much more than usual is a signal.
const TIMES: f64 = 2.0;
/// A share of failed deliveries that is no signal, whatever is usual.
const FEW: f64 = 0.05;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Deliveries {
    /// Intents that were approved, since the process began.
    pub approved: u64,
    /// Deliveries that came back to be tried again, or were given up, since the process began.
    pub failed: u64,
    /// The mean time that the route's service takes, in milliseconds, where it is known.
    pub processing_ms: Option<u64>,
    /// Its queue; `None` while delivery is stopped, or something is not known.
    pub queue: Option<WaitingQueue>,
}

#[derive(Debug, Clone, Default)]
pub struct DeliverySignals {
    /// When the window began, and the counts then.
    window: Option<(Duration, Deliveries)>,
    usual_share: Option<f64>,
    fails_more: bool,
    /// When the last turn was.
    seen_at: Option<Duration>,
    usual_ms: Option<f64>,
    waits_longer: WaitsLonger,
}

impl DeliverySignals {
    /// What the signals leave of the drain rate, in thousandths: all where none holds. `now` is the monotonic clock.
    pub fn turn(&mut self, now: Duration, deliveries: &Deliveries) -> u64 {
        let passed = self.seen_at.replace(now).map_or(Duration::ZERO, |before| now.saturating_sub(before));
        self.share(now, deliveries);
        let takes_longer = self.takes_longer(passed, deliveries.processing_ms);
        let waits_longer = self.waits_longer.turn(passed, deliveries.queue.as_ref());
        let signals = [self.fails_more, takes_longer, waits_longer].into_iter();
        signals.filter(|holds| *holds).fold(1_000, |left, _| left * LEAVES / 1_000)
    }

    /// Looks at the share of failed deliveries once a window.
    #[expect(clippy::cast_precision_loss, reason = "counts of half a minute")]
    fn share(&mut self, now: Duration, deliveries: &Deliveries) {
        let (began, before) = *self.window.get_or_insert((now, *deliveries));
        if now.saturating_sub(began) < WINDOW {
            return;
        }
        self.window = Some((now, *deliveries));
        let approved = deliveries.approved.saturating_sub(before.approved);
        let failed = deliveries.failed.saturating_sub(before.failed);
        if approved.max(failed) < ENOUGH {
            self.fails_more = false;
            return;
        }
        let share = failed as f64 / approved.max(failed) as f64;
        // The first share is the usual one: nothing has grown yet.
        let usual = self.usual_share.get_or_insert(share);
        self.fails_more = share > TIMES * *usual + FEW;
        *usual += (share - *usual) * WINDOW_PART;
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds of one request")]
    fn takes_longer(&mut self, passed: Duration, processing_ms: Option<u64>) -> bool {
        let Some(ms) = processing_ms.map(|ms| ms as f64) else { return false };
        let usual = self.usual_ms.get_or_insert(ms);
        let holds = ms > TIMES * *usual;
        *usual += (ms - *usual) * (passed.as_secs_f64() / USUAL_S).min(1.0);
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of every half second, with so many approved and failed each.
    #[derive(Default)]
    struct World {
        signals: DeliverySignals,
        seen: Deliveries,
        half_seconds: u64,
    }

    impl World {
        /// The least that was left.
        fn run(&mut self, seconds: u64, (approved, failed): (u64, u64), processing_ms: Option<u64>) -> u64 {
            let mut least = 1_000;
            for _ in 0..2 * seconds {
                self.half_seconds += 1;
                self.seen.approved += approved;
                self.seen.failed += failed;
                self.seen.processing_ms = processing_ms;
                least = least.min(self.signals.turn(Duration::from_millis(500 * self.half_seconds), &self.seen));
            }
            least
        }
    }

    #[test]
    fn a_growing_share_of_failed_deliveries_is_a_signal_until_it_ends_or_is_usual() {
        let mut world = World::default();
        assert_eq!(world.run(300, (100, 40), None), 1_000, "it was so from the beginning");
        let mut world = World::default();
        assert_eq!(world.run(300, (100, 4), None), 1_000, "few");
        assert_eq!(world.run(31, (100, 30), None), LEAVES);
        assert_eq!(world.run(31, (100, 4), None), LEAVES, "until the window ends");
        assert_eq!(world.run(300, (100, 4), None), 1_000);
        world.run(900, (100, 30), None);
        assert_eq!(world.run(300, (100, 30), None), 1_000, "it is usual by now");
        assert_eq!(world.run(31, (0, 100), None), LEAVES, "nothing is approved, and all fails");
        world.run(61, (0, 0), None);
        assert_eq!(world.run(60, (0, 0), None), 1_000, "nothing says nothing");
    }

    #[test]
    fn a_service_that_takes_more_than_twice_as_long_is_a_signal() {
        let mut world = World::default();
        assert_eq!(world.run(60, (100, 0), Some(100)), 1_000);
        assert_eq!(world.run(10, (0, 0), Some(190)), 1_000);
        assert_eq!(world.run(10, (0, 0), Some(260)), LEAVES);
        assert_eq!(world.run(60, (0, 0), None), 1_000, "not known");
        assert_eq!(world.run(31, (100, 50), Some(300)), 490, "both");
        world.run(1_200, (100, 0), Some(300));
        assert_eq!(world.run(60, (100, 0), Some(300)), 1_000, "it is usual by now");
    }
}
