//! Where an intent came from.

use std::sync::Arc;

use base64::{
    display::Base64Display,
    prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _},
};
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
    pub fn of_text(text: &str) -> Option<Self> {
        let bytes: [u8; 16] = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        Some(Self(u128::from_be_bytes(bytes))).filter(|id| *id != Self::UNKNOWN)
    }
}

/// As Kafka's own tools print it: base64 for URLs, without padding. Empty for the unknown id.
impl std::fmt::Display for TopicId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::UNKNOWN {
            return Ok(());
        }
        write!(f, "{}", Base64Display::new(&self.0.to_be_bytes(), &BASE64_URL_SAFE_NO_PAD))
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
