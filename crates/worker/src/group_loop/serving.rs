//! What a group member goes on with while it waits for Redis, or for a registry of schemas.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::ports::{Clock, Source};

use super::{Committed, Interruption, LagOf};
use crate::{backoff::SERVE_EVERY, observer::Observer, status::LaneStatus};

/// What goes on. Nothing is read meanwhile: the client fetches until its bounded queue is full, and Kafka keeps the rest.
pub(crate) struct Serving<'l, S, C> {
    pub(crate) source: &'l mut S,
    pub(crate) clock: &'l C,
    pub(crate) stop: &'l CancellationToken,
    pub(crate) metrics: &'l dyn Observer,
    pub(crate) status: &'l LaneStatus,
    /// How far each partition is committed, where the lag is shown.
    pub(crate) done: Option<(LagOf, &'l Committed)>,
    pub(crate) until: Until,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// Until it is told to stop or its group changes; the group is served.
    Interrupted,
    /// Until this time of [`Clock::passed`], when it ends.
    End(Duration),
}

impl<S: Source, C: Clock> Serving<'_, S, C> {
    pub(crate) async fn serve(&mut self) -> Result<(), Interruption> {
        let now = self.clock.passed();
        self.status.progressed(now);
        match self.until {
            Until::End(end) if now >= end => return Err(Interruption::Stop),
            Until::End(_) => return Ok(()),
            Until::Interrupted if self.stop.is_cancelled() => return Err(Interruption::Stop),
            Until::Interrupted => {}
        }
        if let Some((of, done)) = self.done {
            done.report_waiting(of, self.source, self.metrics);
        }
        match self.source.poll(&mut self.source.batch(), 0, Duration::ZERO).await? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    }

    /// Serves the group until this is done; an interruption drops it half way.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interruption> {
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
