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

/// What the decisions of one batch have in common: their outputs fit where both the approved and the suppressed topic take
/// them, because which of the two it is, is not known before the caps are asked, which record what they allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionRoom {
    /// The largest output that both topics take.
    limit_bytes: u64,
    /// The most that a decision adds to its intent: the envelope around it, or a header behind its own.
    added_bytes: usize,
}

impl DecisionRoom {
    /// The room for decisions that name no more than `names_bytes` bytes of topic, segment, cap, budgets and versions, where the output
    /// topics take records of so many bytes.
    pub const fn new(limit_bytes: u64, names_bytes: usize) -> Self {
        let envelope = envelope::overhead_bytes(names_bytes);
        let header = decision_header::max_bytes(names_bytes) + HEADER_BYTES;
        Self { limit_bytes, added_bytes: RECORD_BYTES + if envelope > header { envelope } else { header } }
    }

    /// Whether both outputs of an intent fit: `value_bytes` are those of its value (the larger of its sizes as it
    /// came and in an envelope), `bytes_beside` those of its key and headers.
    pub fn fits(&self, value_bytes: usize, bytes_beside: usize) -> Result<(), Oversize> {
        Oversize::check(value_bytes + bytes_beside + self.added_bytes, self.limit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_fits_up_to_the_byte_with_whatever_a_decision_adds() {
        let room = DecisionRoom::new(1_048_588, 100);
        let added = envelope::overhead_bytes(100).max(decision_header::max_bytes(100) + HEADER_BYTES);
        let most = 1_048_588 - RECORD_BYTES - added;
        assert_eq!(room.fits(most - 10, 10), Ok(()));
        let over = Oversize { bytes: 1_048_589, limit_bytes: 1_048_588 };
        assert_eq!(room.fits(most - 10, 11), Err(over));
    }
}
