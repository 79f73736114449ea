//! What a lane goes on with while it waits for the store.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::ports::{Clock, Source};

use super::Interruption;
use crate::{backoff::SERVE_EVERY, group_loop::Committed, observer::Observer, status::LaneStatus};

/// What goes on while the store is waited for. Nothing is read meanwhile: the client fetches until its bounded queue is
/// full, and Kafka keeps the rest.
pub(super) struct Serving<'l, S, C> {
    pub(super) source: &'l mut S,
    pub(super) clock: &'l C,
    pub(super) stop: &'l CancellationToken,
    pub(super) metrics: &'l dyn Observer,
    pub(super) status: &'l LaneStatus,
    /// Of the intents, how far each partition is committed.
    pub(super) done: Option<&'l Committed>,
    pub(super) until: Until,
}

/// How long the store is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// Until the lane is told to stop or its group changes; the group is served.
    Interrupted,
    /// Until this time of [`Clock::passed`], when the lane ends.
    End(Duration),
}

impl<S: Source, C: Clock> Serving<'_, S, C> {
    pub(super) async fn serve(&mut self) -> Result<(), Interruption> {
        let now = self.clock.passed();
        self.status.progressed(now);
        match self.until {
            Until::End(end) if now >= end => return Err(Interruption::Stop),
            Until::End(_) => return Ok(()),
            Until::Interrupted if self.stop.is_cancelled() => return Err(Interruption::Stop),
            Until::Interrupted => {}
        }
        if let Some(done) = self.done {
            done.report_waiting(self.source, self.metrics);
        }
        match self.source.poll(&mut self.source.batch(), 0, Duration::ZERO).await? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    }

    /// Serves the group until this is done; an interruption drops it half way.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interruption> {
        let mut work = std::pin::pin!(work);
        loop {
            let serve_in = match self.until {
                Until::Interrupted => SERVE_EVERY,
                Until::End(end) => SERVE_EVERY.min(end.saturating_sub(self.clock.passed())),
            };
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.clock.sleep(serve_in) => {}
            }
            self.serve().await?;
        }
    }
}
