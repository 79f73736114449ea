//! The batch that is being committed.

use std::time::Duration;

use weir_core::ports::{Clock, CommitError, Settled, Sink, Source, Store};

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
                self.metrics.committed(&state.in_flight_tally, &times);
                let committed_in = times.produce + times.flush + times.commit;
                state.batch_timer.took(state.decided_in + committed_in);
                state.limit.committed(committed_in);
                for done in state.in_flight.drain(..) {
                    state.committed.insert(done.partition, done.next_offset);
                }
                state.deferred.committed(&*self.metrics);
                state.pauses = Box::new(backoff());
                self.note_lag(state);
                Ok(true)
            }
            Settled::Failed(error) => {
                state.in_flight.clear();
                state.deferred.failed();
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

    pub(super) fn note_lag(&self, state: &LaneState) {
        if self.task != Task::Intents {
            return;
        }
        for (partition, records) in self.source.lag(&state.committed) {
            self.metrics.set_lag(partition, records);
        }
    }
}
