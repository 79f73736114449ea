//! The batch that is being committed.

use std::time::Duration;

use weir_core::ports::{Clock, CommitError, Settled, Sink, Source, Store};

use super::{Interruption, Lane, Turn};
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
    pub(super) async fn land(&mut self, turn: &mut Turn) -> Result<(), Interruption> {
        while !self.collect(turn, SERVE_EVERY).await? {
            self.serve_group().await?;
            if self.out_of_time(turn) {
                return Err(Interruption::Stop);
            }
        }
        Ok(())
    }

    /// Waits for the batch in flight; `true` when none is any more.
    pub(super) async fn collect(&mut self, turn: &mut Turn, wait: Duration) -> Result<bool, Interruption> {
        match self.sink.wait(wait).await {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(times) => {
                self.metrics.committed(&turn.in_flight_tally, &times);
                let committed_in = times.produce + times.flush + times.commit;
                turn.pace.took(turn.decided_in + committed_in);
                turn.limit.committed(committed_in);
                for done in turn.in_flight.drain(..) {
                    turn.committed.insert(done.partition, done.next_offset);
                }
                turn.owed.committed(&*self.metrics);
                turn.pauses = Box::new(backoff());
                self.note_lag(turn);
                Ok(true)
            }
            Settled::Failed(error) => {
                turn.in_flight.clear();
                turn.owed.failed();
                self.metrics.happened(Event::CommitFailed);
                if matches!(error, CommitError::TooSlow(_)) {
                    let records = turn.limit.too_slow(turn.in_flight_records);
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

    pub(super) fn note_lag(&self, turn: &Turn) {
        for (partition, records) in self.source.lag(&turn.committed) {
            self.metrics.set_lag(partition, records);
            self.metrics.set_parked(partition, turn.parking.offsets(partition));
        }
    }
}
