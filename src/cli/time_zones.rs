//! Takes the system's time zones into use, once at the start.

use std::sync::OnceLock;

use weir_core::zone;

use crate::time_zones::{self, TimeZones};

static IN_USE: OnceLock<TimeZones> = OnceLock::new();

/// Takes the system's time zones into use where it has a database, and gives which one is in use. What another call has taken
/// into use before stays.
pub fn in_use() -> &'static TimeZones {
    IN_USE.get_or_init(|| {
        let (found, zones) = time_zones::read(std::env::var_os("TZDIR").as_deref());
        match zone::prefer(zones) {
            Ok(()) => found,
            // A test in this process was first, with what is built in.
            Err(zone::TooLate) => TimeZones { system: None, ..found },
        }
    })
}
