//! What is not an intent, and why.

use std::borrow::Cow;

use crate::{
    basis::{header::HeaderName, origin::Origin, words},
    intent::MAX_INTENT_BYTES,
};

words! {
    /// Why a record is not an intent; with the word in the header `weir-reason` and in metrics.
    pub enum DeadLetterReason {
        /// The value is null or has no bytes.
        Empty = "empty",
        /// The value is larger than [`MAX_INTENT_BYTES`], or an output topic cannot take what would be written for it.
        TooLarge = "too_large",
        /// The value, or a header that is read, is not UTF-8.
        NotUtf8 = "not_utf8",
        /// Objects and arrays are nested deeper than [`crate::intent::MAX_DEPTH`].
        TooDeep = "too_deep",
        NotJson = "not_json",
        /// The value or a field is not of the type that it has to be, or a field is given twice.
        WrongType = "wrong_type",
        MissingField = "missing_field",
        /// A time is not RFC 3339, or out of range.
        BadTime = "bad_time",
        /// The value has not the frame of a Schema Registry, or does not fit its schema.
        NotDecodable = "not_decodable",
        /// The value names a schema that does not exist, or that cannot be used.
        UnknownSchema = "unknown_schema",
    }
}

/// A record that is not an intent: it goes to the dead letters, and nothing stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeadLetter {
    pub reason: DeadLetterReason,
    /// What is wrong and where, for people. Names fields, types and places, never a part of the value.
    pub message: String,
    pub carries: Carries,
}

/// Whether a dead letter carries the value that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// It does, where the dead-letter topic takes it.
    Value,
    /// Its value is null.
    NoValue,
}

/// An output record that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversize {
    /// What it may take.
    pub bytes: u64,
    /// What its topics take.
    pub limit_bytes: u64,
}

impl Oversize {
    /// Whether a record that may take so many bytes fits where no more than `limit_bytes` do.
    pub fn check(bytes: usize, limit_bytes: u64) -> Result<(), Self> {
        let bytes = bytes as u64;
        if bytes <= limit_bytes { Ok(()) } else { Err(Self { bytes, limit_bytes }) }
    }
}

impl DeadLetter {
    /// Connect's `Stage` for a value that could not be read, so that its tools sort our dead letters with theirs.
    pub const STAGE: &'static str = "VALUE_CONVERTER";

    /// A dead letter with this reason, and a message that has no part of the value.
    pub fn new(reason: DeadLetterReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), carries: Carries::Value }
    }

    /// An intent of so many bytes for which no output could be written.
    pub fn not_writable(value_bytes: usize, Oversize { bytes, limit_bytes }: Oversize) -> Self {
        Self::too_large(format!(
            "the value has {value_bytes} bytes: with key, headers and the decision a record of up to {bytes} bytes, \
             and the topics that it may go to take {limit_bytes}"
        ))
    }

    /// This dead letter with a value of so many bytes that the dead-letter topic does not take.
    #[must_use]
    pub fn without_value(&self, value_bytes: usize, limit_bytes: u64) -> Self {
        // Already about the size.
        let first = if self.reason == DeadLetterReason::TooLarge {
            self.message.clone()
        } else {
            format!("the value has {value_bytes} bytes, and is {}: {}", self.reason.as_str(), self.message)
        };
        Self::too_large(format!("{first}; the dead-letter topic takes records of {limit_bytes} bytes"))
    }

    /// A record on a topic of deferred intents that weir has not written.
    pub fn foreign() -> Self {
        Self::new(
            DeadLetterReason::WrongType,
            "it is on a topic of weir's deferred intents, without the headers that weir writes there: publish it to the intents \
             topic",
        )
    }

    /// A record in a batch that inflates to more than so many bytes, or cannot be decompressed.
    pub fn not_inflated(limit_bytes: u64) -> Self {
        Self::too_large(format!(
            "the record's batch inflates to more than {limit_bytes} bytes, or cannot be decompressed: its value was not \
             read (an intent has at most {MAX_INTENT_BYTES} bytes)"
        ))
    }

    fn too_large(message: String) -> Self {
        Self { reason: DeadLetterReason::TooLarge, message, carries: Carries::NoValue }
    }

    /// The headers to add, behind the record's own.
    pub fn headers<'s>(&'s self, origin: &Origin<'s>) -> [(HeaderName, Cow<'s, str>); 6] {
        [
            (HeaderName::Reason, self.reason.as_str().into()),
            (HeaderName::ErrorTopic, origin.topic.into()),
            (HeaderName::ErrorPartition, origin.partition.to_string().into()),
            (HeaderName::ErrorOffset, origin.offset.to_string().into()),
            (HeaderName::ErrorStage, Self::STAGE.into()),
            (HeaderName::ErrorMessage, self.message.as_str().into()),
        ]
    }
}
