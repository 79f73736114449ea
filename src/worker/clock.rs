//! The one place that reads the system's clock for decisions.

use super::ports::Clock;
use crate::domain::time::Time;

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn now(&self) -> Time {
        jiff::Timestamp::now().into()
    }
}
