//! Time zones, by their IANA names: from the database that is built in, and from the system's where the start has named a reader of it.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::OnceLock,
};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A zone of the database: its name in the database's own spelling, and its rules.
#[derive(Debug)]
struct Known {
    name: String,
    time_zone: TimeZone,
}

/// All zones, ascending by name in lower case. Read once (some 600 zones, a few milliseconds), so that the zone of an intent
/// costs a binary search and neither a lock nor an allocation.
static KNOWN: OnceLock<Vec<Known>> = OnceLock::new();

/// Reads the system's database.
static SYSTEM: OnceLock<fn() -> Vec<TimeZone>> = OnceLock::new();

/// Prefers the zones of the system's database to the built-in ones, which remain for names that it lacks. The first [`Zone`] reads
/// them, so a command that needs none does not wait for them. Call it once, before that: a zone never changes under a policy. `false`: zones
/// were asked for, or another reader was named before; they stay as they are.
pub fn prefer(system: fn() -> Vec<TimeZone>) -> bool {
    KNOWN.get().is_none() && SYSTEM.set(system).is_ok()
}

fn known() -> &'static [Known] {
    KNOWN.get_or_init(|| all(SYSTEM.get().map(|read| read()).unwrap_or_default()))
}

/// These zones, and those that are built in under all other names.
fn all(system: Vec<TimeZone>) -> Vec<Known> {
    let known = |time_zone: TimeZone| Some(Known { name: time_zone.iana_name()?.to_owned(), time_zone });
    let database = TimeZoneDatabase::bundled();
    let built_in = database.available().filter_map(|name| database.get(name.as_str()).ok());
    let mut all: Vec<Known> = system.into_iter().chain(built_in).filter_map(known).collect();
    // A stable sort: of one name the system's comes first, and stays.
    all.sort_by(|one, other| ignoring_case(&one.name, &other.name));
    all.dedup_by(|one, first| ignoring_case(&one.name, &first.name) == Ordering::Equal);
    all
}

/// Orders names as their ASCII lower case.
fn ignoring_case(one: &str, other: &str) -> Ordering {
    one.bytes().map(|byte| byte.to_ascii_lowercase()).cmp(other.bytes().map(|byte| byte.to_ascii_lowercase()))
}

/// A time zone. Two are equal when their names are; cheap to clone.
#[derive(Clone)]
pub struct Zone(&'static Known);

impl Zone {
    /// The zone of this IANA name (`Asia/Singapore`), in any case; `None` where there is none.
    pub fn named(name: &str) -> Option<Self> {
        let known = known();
        let place = known.binary_search_by(|zone| ignoring_case(&zone.name, name)).ok()?;
        Some(Self(&known[place]))
    }

    pub fn utc() -> Self {
        Self::named("UTC").expect("the IANA database has UTC")
    }

    pub fn name(&self) -> &'static str {
        &self.0.name
    }

    pub fn time_zone(&self) -> &'static TimeZone {
        &self.0.time_zone
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_of_the_database_is_found_by_its_name_in_any_case() {
        let names: Vec<String> = TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect();
        assert!(names.len() > 500, "only {} zones are built in", names.len());
        for name in names {
            for spelling in [name.clone(), name.to_lowercase(), name.to_uppercase()] {
                assert_eq!(Zone::named(&spelling).map(|zone| zone.name()), Some(name.as_str()), "{spelling}");
            }
        }
    }

    #[test]
    fn what_is_no_zone_is_none() {
        for name in ["", " ", "Mars/Olympus", "Asia/Singapore ", "+08:00", "Etc/Unknown", "local", "\u{0}", "GMT+8x"] {
            assert_eq!(Zone::named(name), None, "{name:?}");
        }
    }

    #[test]
    fn utc_is_the_zone_named_utc() {
        assert_eq!(Zone::utc(), Zone::named("utc").unwrap());
        assert_eq!(Zone::utc().name(), "UTC");
        assert_eq!(Zone::utc().time_zone().to_offset(jiff::Timestamp::UNIX_EPOCH).seconds(), 0);
    }
}
