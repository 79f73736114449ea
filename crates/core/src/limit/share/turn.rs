//! The number of a turn, so that one that is repeated gets what it had.

use std::cmp::Ordering;

use crate::basis::store_error::StoreError;

const OVERTAKEN: &str = "a later turn was taken under the name of this instance: it was restored from a snapshot, its clock was set back, or \
                         another process has its name";

/// Why a turn has no answer that comes behind a later one.
#[must_use]
pub fn overtaken() -> StoreError {
    StoreError::Temporary(OVERTAKEN.to_owned())
}

/// Whether a turn has no answer because it comes behind a later one: it comes to nothing, however often it is repeated.
#[must_use]
pub fn is_overtaken(error: &StoreError) -> bool {
    matches!(error, StoreError::Temporary(why) if why == OVERTAKEN)
}

/// The number of a turn of one member of a limit. A turn that is repeated has its number, and gets what it was granted; one that comes behind
/// a later one comes to nothing. A member makes one turn after the other: the last one is all that has to be known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TurnNumber {
    /// Which run of the member's process, above 0. Each run has another one, and a later run a higher one.
    pub run: i64,
    /// Which turn of the run, ascending from 1. 0: it is none, and only looks.
    pub number: u64,
}

/// How a turn comes after the last one of its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOrder {
    New,
    /// It is that one, repeated.
    Same,
    /// Another one of its run came after it.
    Behind,
    /// It is of a process that has ended, or whose clock was set back.
    RunBefore,
}

impl TurnNumber {
    pub(crate) fn after(self, last: Self) -> TurnOrder {
        match (self.run.cmp(&last.run), self.number.cmp(&last.number)) {
            (Ordering::Less, _) => TurnOrder::RunBefore,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Greater) => TurnOrder::New,
            (Ordering::Equal, Ordering::Equal) => TurnOrder::Same,
            (Ordering::Equal, Ordering::Less) => TurnOrder::Behind,
        }
    }
}
