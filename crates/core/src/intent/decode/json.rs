//! What is wrong with a text that a scan has refused. Slow and exact.

use serde::de::IgnoredAny;

use super::super::dead_letter::{
    DeadLetter,
    DeadLetterReason::{NotJson, TooDeep, WrongType},
};
use super::scan::ScanProblem;
use crate::intent::MAX_DEPTH;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonKind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl JsonKind {
    /// The type of the value that a text begins with, if it begins with one at all.
    pub(super) fn of(text: &str) -> Self {
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'n') => Self::Null,
            Some(_) | None => Self::Number,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Null => "null",
        }
    }
}

/// What is wrong with a text that a scan refused: what the scan has found, or else a parser.
pub(super) fn refusal(text: &str, found: Option<ScanProblem>) -> DeadLetter {
    let bytes = text.len();
    match found {
        Some(ScanProblem::TooDeep(at)) => {
            DeadLetter::new(TooDeep, format!("level {} begins at byte {} of {bytes}", MAX_DEPTH + 1, at + 1))
        }
        Some(ScanProblem::HalfPair(at)) => {
            let message = format!("half a surrogate pair is escaped at byte {} of {bytes}", at + 1);
            DeadLetter::new(NotJson, format!("the value is not JSON: {message}"))
        }
        None => {
            let wrong = validate(text).and_then(|()| object(JsonKind::of(text), "the value"));
            wrong.err().unwrap_or_else(|| DeadLetter::new(NotJson, "the value is not JSON"))
        }
    }
}

/// Refuses what should be an object and is not.
pub(super) fn object(kind: JsonKind, what: &str) -> Result<(), DeadLetter> {
    if kind == JsonKind::Object {
        return Ok(());
    }
    Err(DeadLetter::new(WrongType, format!("{what} is {}, an intent is an object", kind.as_str())))
}

pub(super) fn validate(text: &str) -> Result<(), DeadLetter> {
    serde_json::from_str::<IgnoredAny>(text).map(|_| ()).map_err(|error| not_json(text, &error))
}

fn not_json(text: &str, error: &serde_json::Error) -> DeadLetter {
    let message = error.to_string();
    let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(problem, _)| problem);
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + error.column();
    DeadLetter::new(NotJson, format!("the value is not JSON: {problem}, at byte {at} of {}", text.len()))
}
