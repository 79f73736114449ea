//! Waiting for what is away, without losing the place in the group.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::timeout;

use super::{ANSWERS_HOLD, Interruption, LONGEST_BACKOFF, Lane, SERVE_EVERY};
use crate::{
    domain::{admit::AdmitBatch, decide::Answer},
    worker::ports::{Clock, Sink, Source, Store, StoreError},
};

/// Pauses between attempts, without end: what waits is in Kafka, and is not lost.
pub(super) fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_delay(LONGEST_BACKOFF).with_jitter().without_max_times().build()
}

/// Asks the store until it has answered everything, serving the group meanwhile. Gives the moment since when the answers
/// hold.
///
/// Where a shard has lost its history, or the rest is long in coming, all is asked again: what was recorded before may be
/// gone by the time when all is answered. What is still there is answered as it was.
pub(super) fn admit<S, K, D, C>(
    lane: &mut Lane<S, K, D, C>,
    asks: &AdmitBatch<'_>,
    answers: &mut [Option<Answer>],
    done: &BTreeMap<i32, i64>,
) -> Result<Instant, Interruption>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    let Lane { source, store, clock, runtime, stop, metrics, status, .. } = lane;
    let (mut pauses, mut asked_at) = (backoff(), Instant::now());
    // Nothing is read meanwhile: the client fetches until its bounded queue is full, and Kafka keeps the rest.
    let mut serve = || -> Result<(), Interruption> {
        status.turn(clock.now());
        if stop.is_cancelled() {
            return Err(Interruption::Stop);
        }
        for (partition, records) in source.lag(done) {
            metrics.set_lag(partition, records);
        }
        match source.poll(&mut source.batch(), 0, Duration::ZERO)? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    };
    let outcome = runtime.block_on(async {
        loop {
            let answer = {
                let mut asking = std::pin::pin!(store.admit(asks, answers));
                loop {
                    match timeout(SERVE_EVERY, &mut asking).await {
                        Ok(answer) => break answer,
                        Err(_) => serve()?,
                    }
                }
            };
            match answer {
                Ok(()) => return Ok(asked_at),
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Err(error @ (StoreError::Temporary(_) | StoreError::LostHistory { .. })) => {
                    tracing::warn!("the store did not answer everything: {error}; asking again");
                    metrics.store_failures.inc();
                    if let StoreError::LostHistory { shards, .. } = &error {
                        status.set_lost_shards(shards.len());
                    }
                    status.set_trouble(Some(error.to_string()));
                    let lost = matches!(error, StoreError::LostHistory { .. });
                    if lost || asked_at.elapsed() > ANSWERS_HOLD / 2 {
                        answers.fill(None);
                        asked_at = Instant::now();
                    }
                    serve()?;
                    // A stop ends the pause; `serve` then sees it.
                    let _ = timeout(pauses.next().unwrap_or(LONGEST_BACKOFF), stop.cancelled()).await;
                }
            }
        }
    });
    status.set_trouble(None);
    status.set_lost_shards(0);
    outcome
}
