//! What a record is decoded to.

use crate::intent::{Intent, dead_letter::DeadLetter};

/// A decoded record, or why nothing is decided of it.
pub type Decoded<'a> = Result<Intent<'a>, Undecided<'a>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided<'a> {
    Invalid(DeadLetter),
    /// Its intent was approved before, and its delivery is tried again.
    Retry(Box<Intent<'a>>),
}

impl From<DeadLetter> for Undecided<'_> {
    fn from(letter: DeadLetter) -> Self {
        Self::Invalid(letter)
    }
}
