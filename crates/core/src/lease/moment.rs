//! A reading of the monotonic clock.

use std::time::Duration;

/// Nanoseconds that have passed on the monotonic clock: half the size of an optional `Duration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Moment(u64);

impl Moment {
    /// Before everything.
    pub(super) const START: Self = Self(0);
    /// After everything.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// The moment when this much has passed.
    pub(super) fn of(passed: Duration) -> Self {
        Self(nanos(passed))
    }

    /// Later by this much.
    pub(super) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Earlier by this much; [`Self::NEVER`] stays.
    pub(super) fn minus(self, by: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(self.0.saturating_sub(nanos(by))) }
    }

    /// What has passed then; `None` for [`Self::NEVER`].
    pub(super) fn passed(self) -> Option<Duration> {
        (self != Self::NEVER).then(|| Duration::from_nanos(self.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds of the ledger; negative ones are none.
pub(super) fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
