//! The batch that is being committed.

use std::{sync::Once, time::Duration};

use weir_core::{
    ports::{Clock, CommitError, CommitTimes, Sink, Source, Store},
    record::{Job, Progress},
    routes::Taken,
    tally::Tally,
};

use super::{Interruption, Lane, LaneState, Task, unavailable_shards::CommitOutcome};
use crate::{ends, group_loop::GroupLoop as _, observer::Event, trace::OpenTrace};

/// Whether intents with times before 1971 were told of: once, not by each lane.
static EARLY_TIMES: Once = Once::new();

/// The batch that is being committed.
#[derive(Default)]
pub(super) struct InFlight {
    pub(super) progress: Vec<Progress>,
    /// How many records it has.
    pub(super) records: usize,
    pub(super) tally: Tally,
    pub(super) trace: Option<OpenTrace>,
    /// Spent once it is committed; they go back where it is not.
    pub(super) permits: Vec<Taken>,
}

impl InFlight {
    /// Its commit has ended.
    fn end_trace(&mut self, error: Option<&CommitError>, now: Duration) {
        if let Some(trace) = self.trace.take() {
            let size = (self.records, self.progress.len());
            trace.end(&self.tally, size, error.map(ToString::to_string).as_deref(), now);
        }
    }
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Notes that the batch in flight is committed.
    pub(super) fn note_committed(&mut self, state: &mut LaneState, times: &CommitTimes) {
        let mut in_flight = std::mem::take(&mut state.in_flight);
        in_flight.end_trace(None, self.clock.passed());
        self.metrics.committed(&in_flight.tally, times);
        if in_flight.tally.early_times > 0 {
            EARLY_TIMES.call_once(|| {
                tracing::warn!(
                    "intents have a created_at, expires_at or not_before before 1971: they are expired, or not \
                     deferred. Numbers are milliseconds since 1970, not seconds; leave a time out, or write null, \
                     where there is none. weir_early_times_total counts such intents"
                );
            });
        }
        let committed_in = times.produce + times.flush + times.commit;
        state.batch_timer.took(state.decided_in + committed_in);
        state.limit.committed(in_flight.records, committed_in);
        state.ends_due = self.clock.passed() + ends::COMMIT_AFTER;
        let committed = state.committed.committed(in_flight.progress.drain(..));
        if self.task == Task::Intents
            && let Some((stamps, decided_at)) = committed
        {
            self.metrics.records_committed(&stamps, decided_at, self.clock.now());
        }
        state.unavailable.after_commit(CommitOutcome::Committed, &*self.metrics);
        in_flight.permits.drain(..).for_each(Taken::spend);
        if let Some(routes) = &self.decider.routes {
            let failed = &in_flight.tally.failed;
            failed.iter().for_each(|(route, count)| routes.state(route).fail(*count));
        }
        self.note_lag(state);
    }

    /// Notes that it is not committed, or perhaps it is.
    pub(super) fn note_failed(&mut self, state: &mut LaneState, error: Option<&CommitError>) {
        let mut in_flight = std::mem::take(&mut state.in_flight);
        state.unavailable.after_commit(CommitOutcome::Failed, &*self.metrics);
        let Some(error) = error else { return };
        in_flight.end_trace(Some(error), self.clock.passed());
        if matches!(error, CommitError::TooSlow(_)) && in_flight.records > 0 {
            let records = state.limit.too_slow(in_flight.records);
            self.metrics.happened(Event::BatchHalved);
            tracing::warn!(records, "the brokers are too slow for the batch: at most so many records from now on");
        }
    }

    /// Commits the ends of partitions behind which nothing but offsets without a record is left to read: they look like records that
    /// are not done. To be called when nothing that was read is not committed. Not at once: the next batch has them, if it comes soon.
    pub(super) async fn commit_ends(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        if self.clock.passed() < state.ends_due {
            return Ok(());
        }
        let progress = state.committed.not_committed(self.source.ends_read());
        if progress.is_empty() {
            return Ok(());
        }
        if self.serve_group().await?.is_some() {
            return Err(Interruption::Group);
        }
        let (records, membership) = (self.source.batch(), self.source.membership()?);
        state.in_flight = InFlight { progress: progress.clone(), ..InFlight::default() };
        state.decided_in = Duration::ZERO;
        self.sink.submit(Job { records, outputs: Vec::new(), progress, membership });
        Ok(())
    }

    pub(super) fn note_lag(&self, state: &mut LaneState) {
        if self.task == Task::Intents {
            state.committed.report(&self.source, &*self.metrics, self.clock.now());
        }
    }

    pub(super) fn note_idle(&self, state: &mut LaneState) {
        if self.task == Task::Intents {
            let is_all_committed = state.in_flight.records == 0;
            let ends = if is_all_committed { self.source.ends_read() } else { Vec::new() };
            state.committed.report_idle(&self.source, ends, &*self.metrics, self.clock.now());
        }
    }
}
