//! The one place that reads the system's clock for decisions, and that compares it with other machines' clocks.

#[cfg(test)]
pub(crate) mod tests;

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::Instant;
use weir_core::{
    basis::{
        clocks::{Append, ClockAnswers, OtherClocks, OwnClock, WrongClock},
        time::{Time, millis},
    },
    ports::Clock,
};

/// The moment from which [`SystemClock::passed`] counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How often the log repeats that a clock is wrong.
const REPEAT_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn now(&self) -> Time {
        jiff::Timestamp::now().into()
    }

    fn passed(&self) -> Duration {
        START.elapsed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(wait)
    }
}

/// A clock that decides only while most other clocks do not contradict it. All clones share what is known of the others.
#[derive(Debug, Clone)]
pub struct ComparedClock<C> {
    clock: C,
    /// `None`: there are no others.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    others: ArcSwap<OtherClocks>,
    /// When the log said last that this clock is wrong, or another one, in milliseconds of [`Clock::passed`], at least 1; 0: never.
    wrong_logged_ms: AtomicU64,
    other_logged_ms: AtomicU64,
}

impl<C: Clock> ComparedClock<C> {
    /// A clock that decides nothing before [`ComparedClock::note`] has brought another one.
    pub fn new(clock: C) -> Self {
        Self { clock, shared: Some(Arc::default()) }
    }

    /// A clock that is taken to be right: everything is on one machine.
    pub fn alone(clock: C) -> Self {
        Self { clock, shared: None }
    }

    pub fn note(&self, answers: ClockAnswers) {
        let Some(Shared { others, .. }) = self.shared.as_deref() else { return };
        others.store(Arc::new(others.load().after(answers)));
    }

    /// How far this clock is ahead of each other one, in milliseconds, by machine.
    pub fn skews_ms(&self) -> Vec<(String, i64)> {
        let Some(Shared { others, .. }) = self.shared.as_deref() else { return Vec::new() };
        let (others, own) = (others.load(), self.own());
        others.skews_ms(own).map(|(machine, skew_ms)| (machine.to_owned(), skew_ms)).collect()
    }

    /// Whether it may be decided by, records aside. Logs nothing.
    pub fn check(&self) -> Result<(), WrongClock> {
        let Some(Shared { others, .. }) = self.shared.as_deref() else { return Ok(()) };
        others.load().judge(self.own(), &[]).map(|_| ())
    }

    fn own(&self) -> OwnClock {
        OwnClock { wall: self.clock.now(), passed: self.clock.passed() }
    }

    /// Whether it is time to log something again, at once the first time.
    fn is_due(logged_ms: &AtomicU64, passed: Duration) -> bool {
        let now = millis(passed).max(1);
        let due = |logged: u64| (logged == 0 || now.saturating_sub(logged) >= millis(REPEAT_EVERY)).then_some(now);
        logged_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

impl<C: Clock> Clock for ComparedClock<C> {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn passed(&self) -> Duration {
        self.clock.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        self.clock.sleep(wait)
    }

    fn time_to_decide(&self, appends: &[Append]) -> Result<Time, WrongClock> {
        let own = self.own();
        let Some(Shared { others, wrong_logged_ms, other_logged_ms }) = self.shared.as_deref() else {
            return Ok(own.wall);
        };
        let others = others.load();
        match others.judge(own, appends) {
            Ok(contradicting) => {
                if contradicting > 0 && Self::is_due(other_logged_ms, own.passed) {
                    let others = others.contradicting(own, appends);
                    tracing::warn!(
                        "clocks differ from this machine's, which most others agree with: {others}. Correct them"
                    );
                }
                Ok(own.wall)
            }
            Err(wrong) => {
                if Self::is_due(wrong_logged_ms, own.passed) {
                    tracing::error!("{wrong}");
                }
                Err(wrong)
            }
        }
    }
}
