//! How long intents have waited for a route, by what Kafka says was written before some moment. No record is read.

use std::time::Duration;

use weir_core::{
    basis::time::millis,
    limit::route::{MAX_WAIT_MS, Waiting, routes::RouteState},
    ports::Clock,
};

use super::RouteOffsets;

/// How long one look may ask about the past: the lag is not to become old meanwhile.
const ASKS_FOR: Duration = Duration::from_millis(500);
/// An age is asked for in steps of this part of it, and this time: so much of it may be missing.
const STEP_PART: i64 = 6;
const STEP_MS: i64 = 1_000;
/// No higher age is asked for: none of what waits may be in Kafka any more.
const LONGEST_MS: i64 = 14 * 86_400_000;
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// How long what waits for one route has waited.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// When the oldest intent that waits came, at the latest, in milliseconds of the monotonic clock; `None`: none waits.
    pub(super) oldest_ms: Option<i64>,
    /// When those that have waited for too long are counted again.
    counts_at: Duration,
}

impl Ages {
    /// Looks at what waits: how old the oldest is, and how many have waited for too long, where that is due.
    pub(super) async fn look<C: Clock>(
        &mut self,
        offsets: &mut dyn RouteOffsets,
        (state, clock): (&RouteState, &C),
        waiting: &[Waiting],
    ) {
        if waiting.iter().all(|waiting| waiting.count() == 0) {
            self.oldest_ms = None;
            return state.set_overdue(0);
        }
        self.find_oldest(offsets, clock, waiting).await;
        let passed = clock.passed();
        if passed >= self.counts_at {
            self.counts_at = passed + COUNT_EVERY;
            if let Ok(since) = offsets.waiting_since(clock.now().plus(-MAX_WAIT_MS)).await {
                state.set_overdue(before(waiting, &since));
            }
        }
    }

    /// Asks for the age of the last look, then for higher ones where it holds, and else for lower ones. What has no answer in time is
    /// asked with the next look.
    async fn find_oldest<C: Clock>(&mut self, offsets: &mut dyn RouteOffsets, clock: &C, waiting: &[Waiting]) {
        let (now, began_at) = (clock.now(), clock.passed());
        let (mut age_ms, mut found) = (self.oldest_ms.map_or(0, |oldest_ms| signed_ms(began_at) - oldest_ms), None);
        while age_ms <= LONGEST_MS && clock.passed() < began_at + ASKS_FOR {
            let holds = if age_ms == 0 {
                true
            } else {
                let Ok(since) = offsets.waiting_since(now.plus(-age_ms)).await else { break };
                before(waiting, &since) > 0
            };
            if holds {
                found = Some(age_ms);
                age_ms += age_ms / (STEP_PART - 1) + STEP_MS;
            } else if found.is_none() {
                age_ms = (age_ms - age_ms / STEP_PART - STEP_MS).max(0);
            } else {
                break;
            }
        }
        self.oldest_ms = Some(signed_ms(began_at) - found.unwrap_or(age_ms));
    }
}

/// How many of those that wait are before the first offset of each partition that is not counted; `None`: there is none.
fn before(waiting: &[Waiting], firsts: &[Option<u64>]) -> u64 {
    let ends = waiting.iter().zip(firsts).map(|(waiting, first)| (waiting, first.unwrap_or(waiting.end)));
    ends.map(|(waiting, first)| Waiting { end: first.min(waiting.end), ..*waiting }.count()).sum()
}

/// A moment of the monotonic clock, to be compared with moments before its beginning.
pub(super) fn signed_ms(passed: Duration) -> i64 {
    i64::try_from(millis(passed)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use weir_core::{basis::time::Time, limit::route::routes::Routes};

    use super::*;
    use crate::routes::{AskingBack, Looking};

    /// A clock, and a broker that takes 300 ms for an answer: since 100 s, a record came every 10 s.
    #[derive(Debug, Clone, Default)]
    struct Slow(Arc<AtomicU64>);

    impl Clock for Slow {
        fn now(&self) -> Time {
            Time::default().plus(signed_ms(self.passed()))
        }

        fn passed(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        async fn sleep(&self, _: Duration) {}
    }

    impl RouteOffsets for Slow {
        fn look(&mut self) -> Looking<'_> {
            unreachable!("the test looks")
        }

        fn waiting_since(&mut self, time: Time) -> AskingBack {
            self.0.fetch_add(300, Ordering::Relaxed);
            let came = (time.millis() - Time::default().millis() - 100_000).max(0) / 10_000;
            let firsts: Result<_, String> = Ok(vec![Some(5 + came.unsigned_abs())]);
            Box::pin(std::future::ready(firsts))
        }
    }

    #[tokio::test]
    async fn an_age_is_found_look_by_look_and_at_most_a_sixth_of_it_is_missing() {
        let clock = Slow(Arc::new(AtomicU64::new(700_000)));
        let (state, mut offsets, mut ages) = (Routes::new().state("email"), clock.clone(), Ages::default());
        // The first of them came at 110 s, and then at 660 s.
        for (from, came_ms) in [(5, 110_000), (60, 660_000)] {
            for _ in 0..40 {
                let began_at = clock.passed();
                ages.look(&mut offsets, (&state, &clock), &[Waiting { from, end: 65 }]).await;
                assert!(clock.passed() <= began_at + Duration::from_millis(900), "two questions, or three");
            }
            let at_ms = signed_ms(clock.passed());
            let (age_ms, found_ms) = (at_ms - came_ms, at_ms - ages.oldest_ms.unwrap());
            let least_ms = age_ms - age_ms / STEP_PART - 2 * STEP_MS;
            assert!((least_ms..=age_ms).contains(&found_ms), "{found_ms} of {age_ms}");
        }
        ages.look(&mut offsets, (&state, &clock), &[Waiting { from: 65, end: 65 }]).await;
        assert_eq!(ages.oldest_ms, None, "none waits");
    }

    #[test]
    fn those_before_the_first_that_has_not_waited_for_so_long_are_counted() {
        let waiting = [Waiting { from: 5, end: 9 }, Waiting::default()];
        let found = [None, Some(3), Some(5), Some(7), Some(9), Some(12)].map(|first| before(&waiting, &[first, None]));
        assert_eq!(found, [4, 0, 0, 2, 4, 4]);
    }
}
