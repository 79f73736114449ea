//! The one place that reads the system's clock for decisions.

use std::{sync::LazyLock, time::Duration};

use tokio::time::Instant;

use super::ports::Clock;
use crate::domain::time::Time;

/// The moment from which [`SystemClock::passed`] counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The system's clock.
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
