//! Points in time, as weir counts them.

use std::{borrow::Cow, fmt::Write as _, str::FromStr, time::Duration};

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time: whole milliseconds since 1970-01-01T00:00:00Z. Shown as RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// The latest time: 9999-12-30T22:00:00Z, jiff's own bound. Later ones of that year are taken as this.
    pub const MAX: Self = Self(253_402_207_200_000);
    /// The earliest time accepted: the year 0000.
    pub const MIN: Self = Self(-62_167_219_200_000);

    /// A time from milliseconds since 1970, or `None` outside the years 0000 to 9999.
    #[inline]
    pub fn from_millis(millis: i64) -> Option<Self> {
        (Self::MIN.0..=END_OF_9999_MS).contains(&millis).then(|| Self(millis.min(Self::MAX.0)))
    }

    /// A time from an RFC 3339 string such as `2026-11-20T09:00:00.5+08:00`; what is finer than a
    /// millisecond is cut off, a leap second is the second before it. `None` where it is not one.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let digits = rfc3339_fraction(text)?.len();
        // jiff reads nine digits of a fraction at most; RFC 3339 allows any number.
        let read = if digits > 9 {
            let (whole, rest) = text.split_at(FRACTION_AT + 9);
            Timestamp::from_str(&[whole, rest.trim_start_matches(|digit: char| digit.is_ascii_digit())].concat())
        } else {
            Timestamp::from_str(text)
        };
        match read {
            Ok(timestamp) => Self::from_millis(timestamp.as_millisecond()),
            // The last hours of the year 9999, a common "never", are beyond jiff.
            Err(_) if text.starts_with("9999-12-3") && is_civil(text) => Some(Self::MAX),
            Err(_) => None,
        }
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This time moved by `millis`, kept between [`Time::MIN`] and [`Time::MAX`].
    #[must_use]
    pub fn plus(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis).clamp(Self::MIN.0, Self::MAX.0))
    }

    /// As it is shown: RFC 3339 in UTC with milliseconds, in ASCII. jiff's own printer takes some ten times as long.
    pub fn rfc3339(self) -> [u8; SHOWN.len()] {
        let civil = Offset::UTC.to_datetime(self.timestamp());
        let mut shown = *SHOWN;
        let mut put = |at: usize, number: i16| {
            let number = number.unsigned_abs();
            shown[at] = digit(number / 10);
            shown[at + 1] = digit(number);
        };
        put(0, civil.year() / 100);
        put(2, civil.year());
        put(5, civil.month().into());
        put(8, civil.day().into());
        put(11, civil.hour().into());
        put(14, civil.minute().into());
        put(17, civil.second().into());
        put(20, civil.millisecond() / 10);
        shown[22] = digit(civil.millisecond().unsigned_abs());
        shown
    }

    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX)
    }
}

/// A minute: whole minutes since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minute(pub i64);

impl From<Time> for Minute {
    #[inline]
    fn from(time: Time) -> Self {
        Self(time.millis().div_euclid(60_000))
    }
}

/// What a time is shown like.
const SHOWN: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// The last digit of a number.
const fn digit(number: u16) -> u8 {
    b'0' + (number % 10) as u8
}

/// 9999-12-31T23:59:59.999Z in milliseconds since 1970: the end of what RFC 3339 can write.
const END_OF_9999_MS: i64 = 253_402_300_799_999;
/// Where the fraction's digits begin in an RFC 3339 string that has some.
const FRACTION_AT: usize = "2026-11-20T09:00:00.".len();

/// The digits of an RFC 3339 string's fraction (none where it has no fraction), or `None` where the string has not the
/// shape that RFC 3339 asks for: jiff reads more forms than that.
fn rfc3339_fraction(text: &str) -> Option<&str> {
    let (seconds, rest) = text.split_at_checked(FRACTION_AT - 1)?;
    if !has_shape(seconds, "0000-00-00T00:00:00") {
        return None;
    }
    let (fraction, zone) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => {
            let end = rest.find(|digit: char| !digit.is_ascii_digit()).filter(|&end| end > 0)?;
            rest.split_at(end)
        }
    };
    (matches!(zone, "Z" | "z") || is_offset(zone)).then_some(fraction)
}

/// Whether a text is an offset from UTC: RFC 3339 has them up to 23:59.
fn is_offset(text: &str) -> bool {
    let shaped = has_shape(text, "+00:00") || has_shape(text, "-00:00");
    shaped && text.get(1..3).is_some_and(|hours| hours <= "23") && text.get(4..).is_some_and(|minutes| minutes <= "59")
}

/// Whether a text has digits where the shape has zeros, and elsewhere the same (`t` or a space do for `T`).
fn has_shape(text: &str, shape: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        sign => byte == sign,
    };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

/// Whether the part of an RFC 3339 string in front of fraction and zone is a day and a time of day.
fn is_civil(text: &str) -> bool {
    text.get(..FRACTION_AT - 1).is_some_and(|civil| DateTime::from_str(civil).is_ok())
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.as_millisecond().clamp(Self::MIN.0, Self::MAX.0))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rfc3339().into_iter().try_for_each(|byte| f.write_char(byte.into()))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::from_rfc3339(&text).ok_or_else(|| de::Error::custom("a time that is not RFC 3339"))
    }
}

/// A duration, or a moment of the monotonic clock, in milliseconds; the most there are where it is longer.
pub fn millis(passed: Duration) -> u64 {
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rfc_3339_time_is_read() {
        let nine_in_the_morning = 1_795_165_200_000;
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00z", 0),
            ("1970-01-01 00:00:00Z", 0),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2026-11-20T09:00:00Z", nine_in_the_morning),
            ("2026-11-20T17:00:00+08:00", nine_in_the_morning),
            ("2026-11-20T09:00:00-00:00", nine_in_the_morning),
            ("2026-11-19T09:01:00-23:59", nine_in_the_morning),
            ("2026-11-20T09:00:00.5Z", nine_in_the_morning + 500),
            ("2026-11-20T09:00:00.0019999999999999999Z", nine_in_the_morning + 1),
            ("2026-11-20T09:00:00.123456789012+00:00", nine_in_the_morning + 123),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("0000-01-01T00:00:00Z", Time::MIN.0),
            ("9999-12-30T21:59:59.999Z", Time::MAX.0 - 1),
            ("9999-12-31T23:59:59Z", Time::MAX.0),
            ("9999-12-31T23:59:59.999999999999-23:59", Time::MAX.0),
        ];
        for (text, millis) in cases {
            assert_eq!(Time::from_rfc3339(text).map(Time::millis), Some(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_rfc_3339_time_is_none() {
        let cases = "|now|2026-11-20|2026-11-20T09:00:00|2026-11-20T09:00Z|2026-11-20T09Z|20261120T090000Z|1795165200|\
            2026-11-20T09:00:00.Z|2026-11-20T09:00:00,5Z|2026-11-20T09:00:00+0800|2026-11-20T09:00:00+08|\
            2026-11-20T09:00:00+08:00[Asia/Singapore]|2026-11-20T09:00:00 Z|2026-11-20T09:00:00Z | 2026-11-20T09:00:00Z|\
            2026-13-01T00:00:00Z|2026-02-29T00:00:00Z|2026-11-31T00:00:00Z|9999-12-32T00:00:00Z|\
            2026-11-20T24:00:00Z|2026-11-20T09:60:00Z|2026-11-20T09:00:61Z|\
            2026-11-20T09:00:00+24:00|9999-12-31T00:00:00+23:60|0000-01-01T00:00:00+01:00|\
            10000-01-01T00:00:00Z|+010000-01-01T00:00:00Z|-000001-01-01T00:00:00Z|\
            2026-11-20T09:00:00\u{2212}08:00|２０26-11-20T09:00:00Z";
        for text in cases.split('|') {
            assert_eq!(Time::from_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_shown_as_jiff_shows_it() {
        let steps = (0..4000).map(|step| Time::MIN.0 + step * 78_892_165_123);
        let days = (0..3000).map(|day| 1_700_000_000_000 + day * 86_399_999);
        for millis in steps.chain(days).chain([Time::MIN.0, -1, 0, 999, Time::MAX.0]) {
            let time = Time::from_millis(millis).unwrap();
            assert_eq!(time.to_string(), format!("{:.3}", time.timestamp()), "{millis}");
            assert_eq!(Time::from_rfc3339(&time.to_string()), Some(time));
        }
    }

    #[test]
    fn milliseconds_outside_the_years_0_to_9999_are_none() {
        for (millis, read) in [
            (Time::MIN.0, Some(Time::MIN)),
            (Time::MIN.0 - 1, None),
            (END_OF_9999_MS, Some(Time::MAX)),
            (END_OF_9999_MS + 1, None),
            (i64::MAX, None),
            (i64::MIN, None),
        ] {
            assert_eq!(Time::from_millis(millis), read, "{millis}");
        }
    }
}
