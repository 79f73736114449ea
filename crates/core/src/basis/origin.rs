//! Where an intent came from.

use std::{fmt::Write as _, sync::Arc};

use serde::Serialize;

/// The record that an intent came in. After a deferral it is still the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct Origin<'a> {
    /// Topic of the record.
    pub topic: &'a str,
    /// Partition of the record.
    pub partition: i32,
    /// Offset of the record.
    pub offset: i64,
}

/// The id that Kafka gave a topic when it was created: a topic that was deleted and recreated under its name has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub u128);

impl TopicId {
    /// The broker reports none (Kafka before 2.8): then a topic is known by its name alone.
    pub const UNKNOWN: Self = Self(0);

    /// No topic: the intent came over HTTP. Kafka gives no topic this id.
    pub const NO_TOPIC: Self = Self(u128::MAX);

    /// Reads [`TopicId`]'s text; `None` for any other, and for the unknown id.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let (text, last) = text.split_at_checked(TEXT_DIGITS - 1)?;
        let digit = |byte: u8| u128::try_from(BASE64_URL.iter().position(|digit| *digit == byte)?).ok();
        let id = text.bytes().try_fold(0, |id, byte| Some(id << 6 | digit(byte)?))?;
        // The last digit holds 2 bits of the id, and 4 that are 0.
        let [last] = *last.as_bytes() else { return None };
        let last = digit(last).filter(|last| last & 15 == 0)?;
        Some(Self(id << 2 | last >> 4)).filter(|id| *id != Self::UNKNOWN)
    }
}

const TEXT_DIGITS: usize = 22;
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// As Kafka's own tools print it: base64 for URLs, without padding. Empty for the unknown id.
impl std::fmt::Display for TopicId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::UNKNOWN {
            return Ok(());
        }
        let digit = |bits: u128| char::from(BASE64_URL[usize::try_from(bits & 63).unwrap_or_default()]);
        for place in 0..TEXT_DIGITS - 1 {
            f.write_char(digit(self.0 >> (122 - 6 * place)))?;
        }
        f.write_char(digit(self.0 << 4))
    }
}

/// A topic: its name, and its id, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub name: Arc<str>,
    /// Tells it from others of that name.
    pub id: TopicId,
}

impl<T: Into<Arc<str>>> From<T> for Topic {
    fn from(name: T) -> Self {
        Self { name: name.into(), id: TopicId::UNKNOWN }
    }
}

#[cfg(test)]
mod tests {
    use super::TopicId;

    #[test]
    fn a_topic_id_is_written_as_kafka_writes_it_and_read_again() {
        // Kafka's own: `Uuid.METADATA_TOPIC_ID` is 0, 1.
        for (id, text) in [
            (1, "AAAAAAAAAAAAAAAAAAAAAQ"),
            (u128::MAX, "_____________________w"),
            (0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210, "ASNFZ4mrze_-3LqYdlQyEA"),
            (1 << 127, "gAAAAAAAAAAAAAAAAAAAAA"),
        ] {
            assert_eq!(TopicId(id).to_string(), text);
            assert_eq!(TopicId::of_text(text), Some(TopicId(id)), "{text}");
        }
        assert_eq!(TopicId::UNKNOWN.to_string(), "");
        let others =
            ["", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB", "{\"weir\":1}", "_____________________w=", "ä"];
        assert!(others.iter().all(|text| TopicId::of_text(text).is_none()));
    }
}
