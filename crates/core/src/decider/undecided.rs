//! What a record is decoded to.

use crate::{dead_letter::DeadLetter, intent::Intent};

/// A decoded record, or why nothing is decided of it.
pub type Decoded<'a> = Result<Intent<'a>, Undecided<'a>>;

/// A record that needs no decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided<'a> {
    /// It is invalid.
    Invalid(DeadLetter),
    /// Its intent was approved before, and its delivery is tried again.
    Retry(Box<Intent<'a>>),
}

impl From<DeadLetter> for Undecided<'_> {
    fn from(letter: DeadLetter) -> Self {
        Self::Invalid(letter)
    }
}
