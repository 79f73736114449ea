//! Waiting for what is away, without losing the place in the group.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::timeout;

use super::{Interruption, LONGEST_BACKOFF, Lane, SERVE_EVERY};
use crate::{
    domain::{admit::AdmitBatch, decide::Answer},
    worker::ports::{Clock, Sink, Source, Store, StoreError},
};

/// After how long without an answer from the store the partitions are paused.
const PAUSE_AFTER: Duration = Duration::from_secs(1);

/// Pauses between attempts, without end: what waits is in Kafka, and is not lost.
pub(super) fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_delay(LONGEST_BACKOFF).with_jitter().without_max_times().build()
}

/// Asks the store until it has answered everything, serving the group meanwhile.
pub(super) fn admit<S, K, D, C>(
    lane: &mut Lane<S, K, D, C>,
    asks: &AdmitBatch<'_>,
    answers: &mut [Option<Answer>],
) -> Result<(), Interruption>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    let Lane { source, store, clock, runtime, stop, metrics, status, .. } = lane;
    let began = Instant::now();
    let mut paused = false;
    let mut pauses = backoff();
    let mut serve = |paused: &mut bool| -> Result<(), Interruption> {
        status.turn(clock.now());
        if stop.is_cancelled() {
            return Err(Interruption::Stop);
        }
        if !*paused && began.elapsed() >= PAUSE_AFTER {
            source.pause()?;
            *paused = true;
        }
        match source.poll(&mut source.batch(), 0, Duration::ZERO)? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    };
    let outcome = runtime.block_on(async {
        loop {
            let mut asking = std::pin::pin!(store.admit(asks, answers));
            let answer = loop {
                match timeout(SERVE_EVERY, &mut asking).await {
                    Ok(answer) => break answer,
                    Err(_) => serve(&mut paused)?,
                }
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Err(error @ (StoreError::Temporary(_) | StoreError::LostHistory { .. })) => {
                    tracing::warn!("the store did not answer everything: {error}; asking again");
                    metrics.store_failures.inc();
                    status.set_trouble(Some(error.to_string()));
                    serve(&mut paused)?;
                    // A stop ends the pause; `serve` then sees it.
                    let _ = timeout(pauses.next().unwrap_or(LONGEST_BACKOFF), stop.cancelled()).await;
                }
            }
        }
    });
    status.set_trouble(None);
    if paused {
        source.resume()?;
    }
    outcome
}
