//! Arguments that several commands have: one name means one thing.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::Args;
use weir_core::{
    basis::{document::value::length, time::Time},
    ports::Clock as _,
};
use weir_worker::clock::SystemClock;

/// `--config`
#[derive(Debug, Clone, Args)]
pub struct ConfigFile {
    /// Configuration file
    #[arg(long = "config", id = "config", value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    pub path: PathBuf,
}

/// A point in time: RFC 3339, or how long ago. `--since` and `--until` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeArg {
    At(Time),
    Ago(Duration),
}

impl FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = Time::from_rfc3339(text) {
            return Ok(Self::At(time));
        }
        let ago = length(text).ok();
        ago.map(Self::Ago).ok_or_else(|| "give an RFC 3339 time (2026-11-20T08:00:00Z) or how long ago (7d)".to_owned())
    }
}

impl TimeArg {
    pub fn time(self) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => SystemClock.now().plus(-i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago() {
        let time = Time::from_rfc3339("2026-11-20T08:00:00Z").unwrap();
        assert_eq!("2026-11-20T08:00:00Z".parse(), Ok(TimeArg::At(time)));
        assert_eq!("7d".parse(), Ok(TimeArg::Ago(Duration::from_secs(7 * 86_400))));
        for wrong in ["", "soon", "-7d", "2026-11-20"] {
            assert!(wrong.parse::<TimeArg>().is_err(), "{wrong}");
        }
    }
}
