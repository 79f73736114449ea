//! What interrupts the loop, and what ends it.

use weir_core::ports::{CommitError, SourceError};

use crate::budgets::Closed;

#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// It cannot do its work; the message says what and what to do.
    #[error("{0}")]
    Fatal(String),
}

pub(crate) enum Interruption {
    Stop,
    /// The group changed while it waited.
    Group,
    /// A commit failed, or reading did: back to the committed offsets.
    Rewind(String),
    Fatal(String),
}

impl From<SourceError> for Interruption {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Temporary(message) => Self::Rewind(message),
            SourceError::Fatal(message) => Self::Fatal(message),
        }
    }
}

impl From<CommitError> for Interruption {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Failed(message) | CommitError::TooSlow(message) => Self::Rewind(message),
            CommitError::Fenced(message) | CommitError::Fatal(message) => Self::Fatal(message),
        }
    }
}

impl From<Closed> for Interruption {
    fn from(closed: Closed) -> Self {
        Self::Fatal(closed.to_string())
    }
}
