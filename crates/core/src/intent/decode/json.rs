//! What is wrong with a text that is not JSON that weir reads: not too deep, every string in Unicode, the grammar kept to.
//!
//! Slow and exact: only what a scan has refused comes here.

use memchr::{memchr, memchr_iter, memchr2, memchr2_iter};
use serde::de::IgnoredAny;

use super::super::dead_letter::{
    DeadLetter,
    DeadLetterReason::{NotJson, TooDeep, WrongType},
};
use super::scan::utf16_escape;
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

/// What is wrong with a text that a scan refused.
pub(super) fn refusal(text: &str) -> DeadLetter {
    let wrong = precheck(text).and_then(|()| validate(text)).and_then(|()| object(JsonKind::of(text), "the value"));
    wrong.err().unwrap_or_else(|| DeadLetter::new(NotJson, "the value is not JSON"))
}

/// Refuses what should be an object and is not.
pub(super) fn object(kind: JsonKind, what: &str) -> Result<(), DeadLetter> {
    if kind == JsonKind::Object {
        return Ok(());
    }
    Err(DeadLetter::new(WrongType, format!("{what} is {}, an intent is an object", kind.as_str())))
}

/// Refuses what a parser would let pass: too many levels, and escapes of half a surrogate pair.
pub(super) fn precheck(text: &str) -> Result<(), DeadLetter> {
    if let Some(at) = first_level_too_many(text) {
        // Up to there it may have been something else than JSON; with the bracket it has to be the start of some.
        let start = &text[..=at];
        surrogates(start)?;
        return Err(match serde_json::from_str::<IgnoredAny>(start) {
            Err(error) if !error.is_eof() => not_json(text, &error),
            Ok(_) | Err(_) => {
                DeadLetter::new(TooDeep, format!("level {} begins at byte {} of {}", MAX_DEPTH + 1, at + 1, text.len()))
            }
        });
    }
    surrogates(text)
}

pub(super) fn validate(text: &str) -> Result<(), DeadLetter> {
    serde_json::from_str::<IgnoredAny>(text).map(|_| ()).map_err(|error| not_json(text, &error))
}

fn not_json(text: &str, error: &serde_json::Error) -> DeadLetter {
    let message = error.to_string();
    let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(problem, _)| problem);
    let ends = memchr_iter(b'\n', text.as_bytes());
    let line_start = match error.line() {
        0 | 1 => 0,
        line => ends.skip(line - 2).map(|end| end + 1).next().unwrap_or_default(),
    };
    let at = line_start + error.column();
    DeadLetter::new(NotJson, format!("the value is not JSON: {problem}, at byte {at} of {}", text.len()))
}

/// The place of the bracket that opens the first level that is too many, were the text JSON.
fn first_level_too_many(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // Not more opening brackets, in strings or out of them, than levels allowed: the rule.
    memchr2_iter(b'{', b'[', bytes).nth(MAX_DEPTH)?;
    let (mut at, mut level) = (0, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' if level == MAX_DEPTH => return Some(at),
            b'{' | b'[' => level += 1,
            b'}' | b']' => level = level.saturating_sub(1),
            b'"' => at = end_of_string(bytes, at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The place of the quote that ends the string whose text begins at `at`, or the text's end.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += step;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// Refuses escapes of half a surrogate pair. In JSON backslashes are in strings only, and anything else fails later.
fn surrogates(text: &str) -> Result<(), DeadLetter> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        let escape = at + step;
        at = match (utf16_escape(bytes, escape), utf16_escape(bytes, escape + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => escape + 12,
            (Some(0xD800..=0xDFFF), _) => {
                let message = format!("half a surrogate pair is escaped at byte {} of {}", escape + 1, bytes.len());
                return Err(DeadLetter::new(NotJson, format!("the value is not JSON: {message}")));
            }
            (Some(_), _) => escape + 6,
            (None, _) => escape + 2,
        };
    }
    Ok(())
}
