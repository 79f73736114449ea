//! What numbers count, and how people read them.

use std::fmt::Write as _;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Intents a second.
    PerSecond,
    /// CPU cores.
    Cores,
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// What programs know it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_s",
            Self::PerSecond => "per_s",
            Self::Cores => "cores",
            Self::Micros => "us",
            Self::Seconds => "s",
        }
    }

    /// A number of it, for people.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => short(value),
            Self::Bytes => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
            Self::BytesPerSecond => scaled(value, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
            Self::PerSecond => format!("{}/s", short(value)),
            Self::Cores => format!("{} cores", short(value)),
            Self::Micros => format!("{} us", short(value)),
            Self::Seconds => seconds(value),
        }
    }
}

/// Three figures where it is small, whole and in groups of three where it is not.
fn short(value: f64) -> String {
    if value == value.round() || value >= 100.0 {
        return grouped(value);
    }
    let decimals = if value >= 10.0 { 1 } else { 2 };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with commas: `270,000,000`.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn scaled(value: f64, step: f64, names: &[&str]) -> String {
    let (mut value, mut at) = (value, 0);
    while value >= step && at + 1 < names.len() {
        value /= step;
        at += 1;
    }
    format!("{} {}", short(value), names[at])
}

fn seconds(value: f64) -> String {
    if value < 1.0 {
        return format!("{} ms", short(value * 1000.0));
    }
    if value < 120.0 {
        return format!("{} s", short(value));
    }
    let (mut text, mut left) = (String::new(), value.round());
    for (name, length) in [("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)] {
        let count = (left / length).floor();
        left -= count * length;
        // Two parts are enough: 3 d 4 h.
        if count > 0.0 && text.matches(' ').count() < 3 {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{space}{} {name}", grouped(count));
        }
    }
    text
}
