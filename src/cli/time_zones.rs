//! Takes the system's time zones into use.

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use weir_core::basis::zone;

use crate::time_zones::{self, TimeZones};

static SYSTEM: LazyLock<(TimeZones, Vec<TimeZone>)> =
    LazyLock::new(|| time_zones::read(std::env::var_os("TZDIR").as_deref()));
static IS_PREFERRED: LazyLock<bool> = LazyLock::new(|| zone::prefer(|| SYSTEM.1.clone()));

/// Prefers the system's time zones where the system has a database. The first zone that is asked for reads them.
pub fn prefer() {
    LazyLock::force(&IS_PREFERRED);
}

pub fn in_use() -> TimeZones {
    let (found, _) = &*SYSTEM;
    // A test in this process may have asked for a zone before, and has what is built in.
    let system = found.system.clone().filter(|_| *IS_PREFERRED);
    TimeZones { system, ..found.clone() }
}
