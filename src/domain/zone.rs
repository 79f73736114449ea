//! Time zones, by their IANA names, from the database that is built in.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of this IANA name (`Asia/Singapore`), in any case; `None` where there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TimeZoneDatabase::bundled().get(name).ok().map(Self)
    }

    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Its IANA name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The same zone for jiff.
    #[must_use]
    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}

impl std::hash::Hash for Zone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
