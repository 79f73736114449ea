//! Nothing is decided while the clock is wrong.

use weir_core::{
    basis::time::Time,
    batch::record::Records,
    ports::{Clock, Sink, Source, Store},
};

use super::{Interruption, Lane, LaneState};
use crate::backoff::SERVE_EVERY;

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// The time to decide these records at. While most other clocks contradict this machine's, waits as for an unavailable
    /// Redis: serves the group, reads nothing, hears the shutdown signal.
    pub(super) async fn time_to_decide(&mut self, state: &LaneState, records: &S::Batch) -> Result<Time, Interruption> {
        let mut waited = false;
        loop {
            match self.clock.time_to_decide(records.appends()) {
                Ok(now) => {
                    if waited {
                        tracing::info!("the clock is right again: this lane continues");
                        state.unavailable.show(&self.status);
                    }
                    return Ok(now);
                }
                Err(wrong) => self.status.set_trouble(Some(wrong.to_string())),
            }
            waited = true;
            self.wait_a_little(state, SERVE_EVERY).await?;
        }
    }
}
