//! Numbers as people write and read them: `270M`, `16GiB`, `75%`, `8d`.

use std::time::Duration;

use humantime::format_duration;
use indicatif::{BinaryBytes, DecimalBytes, HumanCount};
use serde::Serialize;
use weir_core::basis::document::value::length;

use super::MIB;

const COUNTS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
const BYTES: &[(&str, f64)] =
    &[("", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 1024.0), ("MiB", MIB), ("GiB", 1024.0 * MIB)];

/// A plain decimal number and one of these suffixes: no sign, exponent, `inf` or `nan`.
fn scaled(text: &str, suffixes: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|sign: char| !(sign.is_ascii_digit() || sign == '.' || sign == '_')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: f64 = digits.replace('_', "").parse().ok()?;
    suffixes.iter().find(|(known, _)| *known == suffix.trim()).map(|(_, factor)| number * factor)
}

fn within(found: Option<f64>, wanted: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = found.ok_or_else(|| format!("give {wanted}"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("give {wanted}, from {least} to {most}")) }
}

pub(super) fn count(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| within(scaled(text, COUNTS), "a number such as 270M, 10k or 2.5", least, most)
}

pub(super) fn bytes(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| within(scaled(text, BYTES), "a size such as 16GiB, 500MB or 300", least, most)
}

/// Parses a share above 0.
pub(super) fn share(text: &str) -> Result<f64, String> {
    within(scaled(text, &[("", 1.0), ("%", 0.01)]), "a share such as 75% or 0.75", 0.001, 1.0)
}

pub(super) fn seconds(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    let seconds = |text: &str| length(text.trim()).ok().map(|length| length.as_secs_f64());
    move |text| within(seconds(text), "a length of time such as 8d, 10s or 50ms", least, most)
}

/// The unit of a result, by the name that programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Count,
    Bytes,
    #[serde(rename = "bytes_per_s")]
    BytesPerSecond,
    #[serde(rename = "per_s")]
    PerSecond,
    Cores,
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "s")]
    Seconds,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Quantity {
    pub(super) value: f64,
    pub(super) unit: Unit,
}

impl Unit {
    pub(super) const fn of(self, value: f64) -> Quantity {
        Quantity { value, unit: self }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Count => short(value),
            Self::Bytes => BinaryBytes(value as u64).to_string(),
            Self::BytesPerSecond => format!("{}/s", DecimalBytes(value as u64)),
            Self::PerSecond => format!("{}/s", short(value)),
            Self::Cores => format!("{} cores", short(value)),
            Self::Micros => format!("{} us", short(value)),
            Self::Seconds if value < 60.0 => format_duration(Duration::from_millis((value * 1e3) as u64)).to_string(),
            Self::Seconds => format_duration(Duration::from_secs(value as u64)).to_string(),
        }
    }
}

/// Two decimals where the value is small, groups of three digits where it is not.
fn short(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 {
        return HumanCount(value.round() as u64).to_string();
    }
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
