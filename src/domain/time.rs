//! Points in time, as weir counts them.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A point in time: whole milliseconds since 1970-01-01T00:00:00Z. Shown as RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// The latest time that RFC 3339 (four-digit years) can write: 9999-12-30T22:00:00Z, jiff's own bound.
    pub const MAX: Self = Self(253_402_207_200_000);
    /// The earliest time accepted: the year 0000.
    pub const MIN: Self = Self(-62_167_219_200_000);

    /// A time from milliseconds since 1970, or `None` outside [`Time::MIN`] and [`Time::MAX`].
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0).contains(&millis).then_some(Self(millis))
    }

    /// A time from an RFC 3339 string such as `2026-11-20T09:00:00.5+08:00`; what is finer than a
    /// millisecond is cut off. `None` where it is not one.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let timestamp: Timestamp = text.parse().ok()?;
        Self::from_millis(timestamp.as_millisecond())
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This time moved by `millis`, kept between [`Time::MIN`] and [`Time::MAX`].
    #[must_use]
    pub fn plus(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis).clamp(Self::MIN.0, Self::MAX.0))
    }

    /// The same point in time for jiff.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX)
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.as_millisecond().clamp(Self::MIN.0, Self::MAX.0))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}", self.timestamp())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
