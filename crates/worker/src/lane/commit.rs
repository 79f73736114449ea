//! The batch that is being committed.

use std::time::Duration;

use weir_core::{
    ports::{Clock, CommitError, Settled, Sink, Source, Store},
    routes::Taken,
};

use super::{Interruption, Lane, LaneState, Task};
use crate::{
    backoff::{SERVE_EVERY, backoff},
    observer::Event,
};

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Waits until nothing is in flight, serving the group meanwhile.
    pub(super) async fn await_commit(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        while !self.poll_commit(state, SERVE_EVERY).await? {
            self.serve_group().await?;
            if self.out_of_time(state) {
                return Err(Interruption::Stop);
            }
        }
        Ok(())
    }

    /// Waits for the batch in flight; `true` when none is any more.
    pub(super) async fn poll_commit(&mut self, state: &mut LaneState, wait: Duration) -> Result<bool, Interruption> {
        match self.sink.wait(wait).await {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(times) => {
                self.end_trace(state, None);
                self.metrics.committed(&state.in_flight_tally, &times);
                let committed_in = times.produce + times.flush + times.commit;
                state.batch_timer.took(state.decided_in + committed_in);
                state.limit.committed(committed_in);
                let committed = state.committed.committed(state.in_flight.drain(..));
                if self.task == Task::Intents
                    && let Some((stamps, decided_at)) = committed
                {
                    self.metrics.records_committed(&stamps, decided_at, self.clock.now());
                }
                state.deferred.committed(&*self.metrics);
                state.in_flight_permits.drain(..).for_each(Taken::spend);
                if let Some(routes) = &self.decider.routes {
                    let failed = &state.in_flight_tally.failed;
                    failed.iter().for_each(|(route, count)| routes.state(route).fail(*count));
                }
                state.pauses = Box::new(backoff());
                self.note_lag(state);
                Ok(true)
            }
            Settled::Failed(error) => {
                self.end_trace(state, Some(&error));
                state.in_flight.clear();
                state.deferred.failed();
                state.in_flight_permits.clear();
                self.metrics.happened(Event::CommitFailed);
                if matches!(error, CommitError::TooSlow(_)) {
                    let records = state.limit.too_slow(state.in_flight_records);
                    self.metrics.happened(Event::BatchHalved);
                    tracing::warn!(
                        records,
                        "the brokers are too slow for the batch: at most so many records from now on"
                    );
                }
                Err(error.into())
            }
        }
    }

    pub(super) fn note_lag(&self, state: &mut LaneState) {
        if self.task == Task::Intents {
            state.committed.report(&self.source, &*self.metrics, self.clock.now());
        }
    }

    pub(super) fn note_idle(&self, state: &mut LaneState) {
        if self.task == Task::Intents {
            state.committed.report_idle(&self.source, &*self.metrics, self.clock.now());
        }
    }

    /// The commit of the batch in flight has ended.
    fn end_trace(&self, state: &mut LaneState, error: Option<&CommitError>) {
        if let Some(trace) = state.in_flight_trace.take() {
            let size = (state.in_flight_records, state.in_flight.len());
            let error = error.map(ToString::to_string);
            trace.end(&state.in_flight_tally, size, error.as_deref(), self.clock.passed());
        }
    }
}
