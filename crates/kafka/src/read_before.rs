//! How far earlier readers of a partition can have come: what they read they may have admitted, although it was never
//! committed.
//!
//! A member that was replaced, or was frozen, goes on until it finds out. So for a while after an assignment every record
//! counts as read before; then the ends of the partitions are asked for once, and what comes behind them is new.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_core::{
    batch::record::ReadBefore,
    ports::{EARLIER_READERS_END, SourceError},
};

/// When they are asked for again where they are not to be had.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Since when a source reads where it reads, and how far earlier readers came.
#[derive(Debug)]
pub(super) struct Earlier {
    ends_due: Option<Instant>,
    read_before: ReadBefore,
}

impl Earlier {
    pub(super) fn new() -> Self {
        Self { ends_due: None, read_before: ReadBefore::none() }
    }

    /// Reading begins, or goes on elsewhere: what comes may have been read before.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { ends_due: Some(now + EARLIER_READERS_END), read_before: ReadBefore::All };
    }

    pub(super) fn read_before(&self) -> ReadBefore {
        self.read_before.clone()
    }

    /// Whether no earlier reader goes on any more, and it is not known yet how far they came.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.ends_due.is_some_and(|due| now >= due)
    }

    /// Where the partitions end, now that it is due, or why that is not known.
    pub(super) fn note(&mut self, ends: Result<BTreeMap<i32, i64>, SourceError>, now: Instant) {
        match ends {
            Ok(ends) => *self = Self { ends_due: None, read_before: ReadBefore::Below(Arc::new(ends)) },
            Err(error) => {
                tracing::debug!(%error, "the ends of the partitions are not known: all counts as read before");
                self.ends_due = Some(now + AGAIN_AFTER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(earlier: &Earlier, offset: i64) -> bool {
        earlier.read_before().has(0, offset)
    }

    #[test]
    fn all_counts_as_read_before_until_earlier_readers_have_ended_then_what_was_there_by_then() {
        let start = Instant::now();
        let mut earlier = Earlier::new();
        assert!(!earlier.is_due(start));
        earlier.begin(start);
        assert!(has(&earlier, 0) && has(&earlier, i64::MAX));
        let nearly = start + EARLIER_READERS_END - Duration::from_millis(1);
        assert!(!earlier.is_due(nearly) && earlier.is_due(start + EARLIER_READERS_END));

        let now = start + EARLIER_READERS_END;
        earlier.note(Err(SourceError::Temporary("no answer".to_owned())), now);
        assert!(has(&earlier, i64::MAX), "what is not known is no reason to take a record for new");
        assert!(!earlier.is_due(now) && earlier.is_due(now + AGAIN_AFTER));

        earlier.note(Ok([(0, 100)].into()), now + AGAIN_AFTER);
        assert!(has(&earlier, 99) && !has(&earlier, 100));
        assert!(!earlier.is_due(now + EARLIER_READERS_END * 100), "it is asked once");

        earlier.begin(now);
        assert!(has(&earlier, 100), "what is read again was read before");
    }
}
