//! Numbers as people write them: `270M`, `5GiB`, `75%`, `8d`.

use std::str::FromStr;

use serde::Deserialize;

/// How a number stands in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Written {
    /// `"270M"`
    Text(String),
    /// `270_000_000`
    Whole(u64),
    /// `0.75`
    Fraction(f64),
}

/// A number that is none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct BadQuantity {
    text: String,
    wanted: &'static str,
}

/// A number and its suffix; the number is a plain decimal one: no sign, exponent, `inf` or `nan`.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|sign: char| !(sign.is_ascii_digit() || sign == '.' || sign == '_')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number = digits.replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some((number, suffix.trim()))
}

const COUNTS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("B", 1e9)];
const BYTES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("k", 1e3),
    ("kB", 1e3),
    ("KB", 1e3),
    ("KiB", 1024.0),
    ("M", 1e6),
    ("MB", 1e6),
    ("MiB", 1_048_576.0),
    ("G", 1e9),
    ("GB", 1e9),
    ("GiB", 1_073_741_824.0),
    ("T", 1e12),
    ("TB", 1e12),
    ("TiB", 1_099_511_627_776.0),
];
const SHARES: &[(&str, f64)] = &[("", 1.0), ("%", 0.01)];

fn scaled(text: &str, suffixes: &[(&str, f64)]) -> Option<f64> {
    let (number, suffix) = split(text)?;
    suffixes.iter().find(|(known, _)| *known == suffix).map(|(_, factor)| number * factor)
}

fn seconds(text: &str) -> Option<f64> {
    humantime::parse_duration(text.trim()).ok().map(|duration| duration.as_secs_f64())
}

/// Makes a type of a meaning: from a text, and from what stands in a file.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $wanted:literal, $parse:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
        #[serde(try_from = "Written")]
        pub struct $name(pub f64);

        impl FromStr for $name {
            type Err = BadQuantity;

            fn from_str(text: &str) -> Result<Self, BadQuantity> {
                let parse: fn(&str) -> Option<f64> = $parse;
                parse(text).map(Self).ok_or_else(|| BadQuantity { text: text.to_owned(), wanted: $wanted })
            }
        }

        impl TryFrom<Written> for $name {
            type Error = BadQuantity;

            fn try_from(written: Written) -> Result<Self, BadQuantity> {
                match written {
                    Written::Text(text) => text.parse(),
                    Written::Whole(number) => number.to_string().parse(),
                    Written::Fraction(number) => number.to_string().parse(),
                }
            }
        }
    };
}

quantity! {
    /// Things: `270M`, `10k`, `2.5`.
    Count, "a number such as 270M, 10k or 2.5", |text| scaled(text, COUNTS)
}
quantity! {
    /// Whole things: `12`, `10k`.
    Whole, "a whole number such as 12 or 10k", |text| scaled(text, COUNTS).filter(|number| number.fract() == 0.0)
}
quantity! {
    /// Bytes: `16GiB`, `500 MB`, `300`.
    Bytes, "a size such as 16GiB, 500MB or 300", |text| scaled(text, BYTES)
}
quantity! {
    /// A share: `75%`, `0.75`.
    Share, "a share such as 75% or 0.75", |text| scaled(text, SHARES)
}
quantity! {
    /// Seconds, from a length of time: `8d`, `50ms`.
    Span, "a length of time such as 8d, 10s or 50ms", seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let counts = [("270M", 270e6), ("10k", 1e4), ("2.5", 2.5), ("1_000", 1e3), ("0", 0.0), (" 3 G ", 3e9)];
        for (text, number) in counts {
            assert_eq!(text.parse(), Ok(Count(number)), "{text}");
        }
        let sizes = [("5GiB", 5_368_709_120.0), ("16 GB", 16e9), ("300", 300.0), ("1.5KiB", 1536.0)];
        for (text, number) in sizes {
            assert_eq!(text.parse(), Ok(Bytes(number)), "{text}");
        }
        assert_eq!("75%".parse(), Ok(Share(0.75)));
        assert_eq!("0.5".parse(), Ok(Share(0.5)));
        assert_eq!("8d".parse(), Ok(Span(691_200.0)));
    }

    #[test]
    fn what_is_no_number_is_said_to_be_none() {
        for text in ["", "M", "-1", "1e9", "inf", "NaN", "1,000", "10 apples", "5GiB", "1.2.3", "٣"] {
            let error = text.parse::<Count>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("270M"), "{error}");
        }
        assert!("1.5".parse::<Whole>().is_err());
        assert!("5".parse::<Span>().is_err());
        assert!(Share::try_from(Written::Fraction(f64::NAN)).is_err());
    }
}
