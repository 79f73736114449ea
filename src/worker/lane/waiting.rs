//! Waiting for what is away, without losing the place in the group.

use std::{collections::BTreeMap, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};

use super::{Interruption, LONGEST_BACKOFF, Lane, SERVE_EVERY};
use crate::{
    domain::{admit::AdmitBatch, decide::Answer},
    worker::ports::{Clock, Sink, Source, Store, StoreError},
};

/// Pauses between attempts, without end: what waits is in Kafka, and is not lost.
pub(super) fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_delay(LONGEST_BACKOFF).with_jitter().without_max_times().build()
}

/// Asks the store until it has answered everything, serving the group meanwhile.
pub(super) async fn admit<S, K, D, C>(
    lane: &mut Lane<S, K, D, C>,
    asks: &AdmitBatch<'_>,
    answers: &mut [Option<Answer>],
    done: &BTreeMap<i32, i64>,
) -> Result<(), Interruption>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    let Lane { source, store, clock, stop, metrics, status, .. } = lane;
    let mut pauses = backoff();
    // Nothing is read meanwhile: the client fetches until its bounded queue is full, and Kafka keeps the rest.
    let mut serve = async || -> Result<(), Interruption> {
        status.turn(clock.passed());
        if stop.is_cancelled() {
            return Err(Interruption::Stop);
        }
        for (partition, records) in source.lag(done) {
            metrics.set_lag(partition, records);
        }
        match source.poll(&mut source.batch(), 0, Duration::ZERO).await? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    };
    let outcome = loop {
        let answer = {
            let mut asking = std::pin::pin!(store.admit(asks, answers));
            loop {
                tokio::select! {
                    biased;
                    answer = &mut asking => break Ok(answer),
                    () = clock.sleep(SERVE_EVERY) => {}
                }
                if let Err(interruption) = serve().await {
                    break Err(interruption);
                }
            }
        };
        match answer {
            Err(interruption) => break Err(interruption),
            Ok(Ok(())) => break Ok(()),
            Ok(Err(StoreError::Fatal(message))) => break Err(Interruption::Fatal(message)),
            Ok(Err(error @ (StoreError::Temporary(_) | StoreError::LostHistory { .. }))) => {
                tracing::warn!("the store did not answer everything: {error}; asking again");
                metrics.store_failures.inc();
                if let StoreError::LostHistory { shards, .. } = &error {
                    status.set_lost_shards(shards.len());
                }
                status.set_trouble(Some(error.to_string()));
                if let Err(interruption) = serve().await {
                    break Err(interruption);
                }
                // A stop ends the pause; `serve` then sees it.
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = clock.sleep(pauses.next().unwrap_or(LONGEST_BACKOFF)) => {}
                }
            }
        }
    };
    status.set_trouble(None);
    status.set_lost_shards(0);
    outcome
}
