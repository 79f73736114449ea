//! How old what waits for a route is, by what each look has found.

use std::time::Duration;

use weir_core::{
    basis::time::millis,
    limit::route::arrivals::{Arrivals, Waiting, before_the_first_ms},
    ports::Clock,
};

use super::RouteOffsets;

/// How long one look may ask about the past: the lag is not to become old meanwhile.
const ASKS_FOR: Duration = Duration::from_millis(500);

/// The partitions of a route's topic of waiting intents.
#[derive(Debug, Default)]
pub(super) struct Ages {
    partitions: Vec<Arrivals>,
    /// What waited at the first look, until it is known since when.
    asked: Option<First>,
}

#[derive(Debug)]
struct First {
    at_ms: i64,
    waiting: Vec<Waiting>,
    answered: usize,
    is_known: bool,
}

impl Ages {
    /// Notes a look, of so long after the beginning of the monotonic clock.
    pub(super) fn look(&mut self, at: Duration, waiting: &[Waiting]) {
        let at_ms = signed_ms(at);
        // A topic that was recreated may have fewer.
        self.partitions.resize_with(waiting.len(), Arrivals::default);
        for (arrivals, waiting) in self.partitions.iter_mut().zip(waiting) {
            arrivals.note(at_ms, *waiting);
        }
        let is_known = waiting.iter().all(|waiting| waiting.count() == 0);
        self.asked.get_or_insert_with(|| First { at_ms, waiting: waiting.to_vec(), answered: 0, is_known });
    }

    /// When the oldest intent that waits came, in milliseconds of the monotonic clock; `None`: none waits.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        self.partitions.iter().filter_map(Arrivals::oldest_ms).min()
    }

    /// Finds out since when what waited at the first look does. What has no answer in time is asked again with the next look.
    pub(super) async fn ask_back<C: Clock>(&mut self, offsets: &mut dyn RouteOffsets, clock: &C) {
        let Some(first) = self.asked.as_mut().filter(|first| !first.is_known) else { return };
        let passed_ms = signed_ms(clock.passed());
        let now = clock.now();
        let until = clock.passed() + ASKS_FOR;
        for before_ms in before_the_first_ms().skip(first.answered) {
            if clock.passed() >= until {
                return;
            }
            let at_ms = first.at_ms - before_ms;
            let Ok(ends) = offsets.waiting_since(now.plus(at_ms - passed_ms)).await else { return };
            first.answered += 1;
            let mut waited = false;
            for ((arrivals, waiting), end) in self.partitions.iter_mut().zip(&first.waiting).zip(ends) {
                if waiting.count() > 0 && end.is_none_or(|end| end > waiting.from) {
                    arrivals.note_before(at_ms, end);
                    waited = true;
                }
            }
            if !waited {
                break;
            }
        }
        first.is_known = true;
    }
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

    use weir_core::basis::time::Time;

    use super::*;
    use crate::routes::{AskingBack, Looking};

    /// A clock, and a broker that takes 300 ms for an answer: since 100 s, a record came every 10 s.
    #[derive(Debug, Clone, Default)]
    struct Slow {
        passed_ms: Arc<AtomicU64>,
        asked: Arc<AtomicU64>,
    }

    impl Clock for Slow {
        fn now(&self) -> Time {
            Time::default().plus(signed_ms(self.passed()))
        }

        fn passed(&self) -> Duration {
            Duration::from_millis(self.passed_ms.load(Ordering::Relaxed))
        }

        async fn sleep(&self, _: Duration) {}
    }

    impl RouteOffsets for Slow {
        fn look(&mut self) -> Looking<'_> {
            unreachable!("the test looks")
        }

        fn waiting_since(&mut self, time: Time) -> AskingBack {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.passed_ms.fetch_add(300, Ordering::Relaxed);
            let came = (time.millis() - Time::default().millis() - 100_000).max(0) / 10_000;
            let ends: Result<_, String> = Ok(vec![Some(5 + came.unsigned_abs())]);
            Box::pin(std::future::ready(ends))
        }
    }

    #[test]
    fn a_partition_that_is_gone_has_no_oldest_intent() {
        let (mut ages, waits) = (Ages::default(), Waiting { from: 0, end: 9 });
        ages.look(Duration::from_secs(1), &[Waiting::default(), waits]);
        assert_eq!(ages.oldest_ms(), Some(1_000));
        ages.look(Duration::from_secs(2), &[Waiting::default()]);
        assert_eq!(ages.oldest_ms(), None, "the topic was recreated with fewer partitions");
    }

    #[tokio::test]
    async fn the_past_is_asked_for_half_a_second_with_each_look_until_it_is_known() {
        let clock = Slow::default();
        clock.passed_ms.store(700_000, Ordering::Relaxed);
        let mut offsets = clock.clone();
        let (mut ages, mut asked) = (Ages::default(), Vec::new());
        for _ in 0..9 {
            ages.look(clock.passed(), &[Waiting { from: 5, end: 65 }]);
            ages.ask_back(&mut offsets, &clock).await;
            asked.push(clock.asked.load(Ordering::Relaxed));
        }
        assert_eq!(asked, [2, 4, 6, 8, 10, 12, 13, 13, 13], "so long ago nothing waited");
        let age_ms = signed_ms(clock.passed()) - ages.oldest_ms().unwrap();
        assert!((400_000..=604_000).contains(&age_ms), "of 600 s, at most a third is missing: {age_ms}");
    }
}
