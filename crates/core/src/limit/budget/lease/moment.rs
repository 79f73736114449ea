//! A reading of the monotonic clock, and since when a ledger counts by it.

use std::time::Duration;

/// Nanoseconds that have passed on the monotonic clock: half the size of an optional `Duration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Moment(u64);

impl Moment {
    /// Before everything.
    pub(super) const START: Self = Self(0);
    /// After everything.
    pub(super) const NEVER: Self = Self(u64::MAX);

    pub(super) fn of(passed: Duration) -> Self {
        Self(nanos(passed))
    }

    pub(super) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Earlier by this much; [`Self::NEVER`] stays.
    pub(super) fn minus(self, by: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(self.0.saturating_sub(nanos(by))) }
    }

    /// Whole milliseconds, rounded up.
    pub(super) fn millis(self) -> i64 {
        whole(self.0.div_ceil(NANOS_PER_MS))
    }

    /// What has passed then; `None` for [`Self::NEVER`].
    pub(super) fn passed(self) -> Option<Duration> {
        (self != Self::NEVER).then(|| Duration::from_nanos(self.0))
    }
}

const NANOS_PER_MS: u64 = 1_000_000;

/// Since when a ledger counts, in milliseconds on the monotonic clock: below 0 where that was before the clock began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedSince(i64);

impl CountedSince {
    /// The ledger has not answered yet.
    pub(super) const UNKNOWN: Self = Self(i64::MIN);

    /// A ledger has answered a call that was made then, and had counted for so long. It answered later, so this is too early rather
    /// than too late: what was admitted with the tokens of the answer is admitted after it.
    pub(super) fn of(asked_at: Moment, counted_for_ms: i64) -> Self {
        Self(whole(asked_at.0 / NANOS_PER_MS).saturating_sub(counted_for_ms))
    }

    /// For how long it has counted at this moment, in milliseconds, rounded up; `None` where that is not known.
    pub(super) fn until(self, then: Moment) -> Option<i64> {
        (self != Self::UNKNOWN).then(|| then.millis().saturating_sub(self.0))
    }
}

fn whole(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds of the ledger; negative ones are none.
pub(super) fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
