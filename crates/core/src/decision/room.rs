//! Whether an output record fits where it goes: upper bounds on its size, known before it is decided.
//!
//! A broker compares the whole batch that a record came in, compressed, with its topic's `max.message.bytes`; the producer's
//! client compares the record, uncompressed, with its own `message.max.bytes`. The bounds here are those of a batch with one
//! record that does not compress at all, so what fits by them is never refused.

use super::{decision_header, envelope};
pub use crate::intent::dead_letter::Oversize;

/// What a record takes beside key, value and headers, at most: the head of its batch (61 bytes), lengths, and the numbers that
/// tell it from the record before.
pub const RECORD_BYTES: usize = 128;
/// What a header takes beside name and value, at most.
pub const HEADER_BYTES: usize = 10;

pub const fn header_bytes(name: &[u8], value: Option<&[u8]>) -> usize {
    let value = match value {
        Some(value) => value.len(),
        None => 0,
    };
    name.len() + value + HEADER_BYTES
}

/// The most that a decision adds to the record of its intent, beside its names of at most `names_bytes` bytes (topic, segment, cap, budgets and
/// versions): the envelope around the value, or a header behind the intent's own. Both have to fit, because which of the two it is, is not
/// known before the caps are asked, which record what they allow.
pub const fn added_bytes(names_bytes: usize) -> usize {
    let envelope = envelope::overhead_bytes(names_bytes);
    let header = decision_header::max_bytes(names_bytes) + HEADER_BYTES;
    RECORD_BYTES + if envelope > header { envelope } else { header }
}
