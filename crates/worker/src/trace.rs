//! Traces: what a lane reports of the batches that are sampled.

use std::{ops::ControlFlow, time::Duration};

use weir_core::batch::{record::Records, tally::Tally};

use crate::group_loop::Committed;

/// The header by which publishers hand on their trace (W3C Trace Context).
const TRACEPARENT: &[u8] = b"traceparent";

pub trait Tracer: Send + Sync {
    /// A batch is read, and about to be decided. `None`: it is not sampled, and nothing of it is looked at.
    fn begin(&self) -> Option<Box<dyn BatchTrace>>;
}

/// The trace of one batch. Dropped without an end: the lane gave the batch up.
pub trait BatchTrace: Send {
    /// A record has this `traceparent`. `Break`: no more are wanted.
    fn link(&mut self, traceparent: &[u8]) -> ControlFlow<()>;
    /// The batch is committed, or its commit has failed.
    fn end(self: Box<Self>, report: &BatchReport<'_>);
}

/// When something began and ended, since the batch's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub from: Duration,
    pub to: Duration,
}

#[derive(Debug)]
pub struct BatchReport<'t> {
    pub records: usize,
    pub partitions: usize,
    pub tally: &'t Tally,
    /// The requests to the store, waits included; `None`: there were none.
    pub store: Option<Interval>,
    pub commit: Interval,
    pub error: Option<&'t str>,
}

pub(crate) struct OpenTrace {
    trace: Box<dyn BatchTrace>,
    began: Duration,
    store: Option<Interval>,
    handed_over: Duration,
}

impl OpenTrace {
    /// Begins the trace of a batch, at a time of [`weir_core::ports::Clock::passed`], if it is sampled.
    pub(crate) fn begin(tracer: &dyn Tracer, batch: &impl Records, now: Duration) -> Option<Self> {
        let mut trace = tracer.begin()?;
        // Of all headers of all records, since the batch is sampled.
        let _ = (0..batch.len()).try_for_each(|index| {
            let parents = batch.get(index).header_pairs().filter(|(name, _)| *name == TRACEPARENT);
            parents.filter_map(|(_, value)| value).try_for_each(|value| trace.link(value))
        });
        Some(Self { trace, began: now, store: None, handed_over: now })
    }

    /// The batch is decided and handed over to be committed. The store was asked from when to when.
    pub(crate) fn handed_over(&mut self, asked: Option<Interval>, now: Duration) {
        self.store = asked.map(|asked| self.since_began(asked.from, asked.to));
        self.handed_over = now;
    }

    /// The commit of the batch in flight has ended.
    pub(crate) fn end(self, committed: &Committed, tally: &Tally, error: Option<&str>, now: Duration) {
        let commit = self.since_began(self.handed_over, now);
        let (records, partitions) = (committed.in_flight.records, committed.in_flight.progress.len());
        self.trace.end(&BatchReport { records, partitions, tally, store: self.store, commit, error });
    }

    fn since_began(&self, from: Duration, to: Duration) -> Interval {
        Interval { from: from.saturating_sub(self.began), to: to.saturating_sub(self.began) }
    }
}
