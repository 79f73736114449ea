//! That a value does not fit its schema.

use weir_core::{
    intent::dead_letter::{DeadLetter, DeadLetterReason::NotDecodable},
    ports::SchemaId,
};

/// What is wrong with a value, and at which of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// From 0, behind the frame.
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

impl Misfit {
    /// The dead letter of a value of this schema whose content has so many bytes.
    pub(crate) fn letter(self, id: SchemaId, bytes: usize) -> DeadLetter {
        let Self { at, what } = self;
        DeadLetter::new(
            NotDecodable,
            format!("the value does not fit schema {id}: {what}, at byte {at} of {bytes} behind the frame"),
        )
    }
}
