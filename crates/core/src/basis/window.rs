//! The window a cap looks back over, at the time of one decision.

mod calendar;

use super::time::Time;
pub use calendar::Period;
pub(crate) use calendar::{DAY_MS, first_instant, local, next_start};

/// A window as a script or the reference sees it: numbers only. Zones and calendars are already resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// (t - length, t], in milliseconds.
    Sliding {
        /// The window's length in milliseconds, above 0.
        length_ms: i64,
    },
    /// [start, t], the calendar period that the time of decision lies in.
    Calendar {
        /// Start of the period that the batch's clock lies in.
        start: Time,
        /// Start of the next one, used when a user's time is ahead of the clock (by at most 5 minutes).
        next: Time,
        /// Start of the one after that.
        after: Time,
    },
}

impl Window {
    /// The first time that still counts at `now`: entries at or after it are in the window.
    pub fn first(&self, now: Time) -> Time {
        match *self {
            Self::Sliding { length_ms } => now.plus(1 - length_ms),
            Self::Calendar { start, next, .. } => {
                if now < next {
                    start
                } else {
                    next
                }
            }
        }
    }

    /// The first moment at which an entry made at `entry` has left the window.
    ///
    /// For a calendar window an entry that lies beyond `after` (a clock was wrong by more than a whole
    /// period) gives its own time: a lower bound, by which caps are compared; `policy` then names the exact
    /// start of the period that follows it.
    pub fn freed(&self, entry: Time) -> Time {
        match *self {
            Self::Sliding { length_ms } => entry.plus(length_ms),
            Self::Calendar { next, after, .. } => {
                if entry < next {
                    next
                } else if entry < after {
                    after
                } else {
                    entry
                }
            }
        }
    }
}
