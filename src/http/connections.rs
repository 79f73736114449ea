//! Open connections: never more than a bound, and room for the next one as long as any is idle.
#![expect(clippy::disallowed_types, reason = "connections share the table of who is idle; nothing waits in the lock")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

pub(super) struct Connections {
    limit: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Idle>,
    metrics: Arc<Metrics>,
}

/// Connections without a request, the one that has been idle the longest first.
#[derive(Default)]
struct Idle {
    last: u64,
    ends: BTreeMap<u64, CancellationToken>,
}

/// One open connection. Dropping it makes room for another.
pub(super) struct Connection {
    of: Arc<Connections>,
    /// Its place among the idle ones, or one that it had.
    place: AtomicU64,
    /// Cancelled when it has to go.
    pub(super) end: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Arc::new(Self { limit, permits: Arc::new(Semaphore::new(limit)), idle: Mutex::default(), metrics })
    }

    /// Room for one more, by closing the longest idle one where there is none; waits where all are busy.
    pub(super) async fn admit(self: &Arc<Self>) -> Connection {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.evict();
                Arc::clone(&self.permits).acquire_owned().await.expect("nobody closes the semaphore")
            }
        };
        self.metrics.http_connections.inc();
        let connection = Connection {
            of: Arc::clone(self),
            place: AtomicU64::new(0),
            end: CancellationToken::new(),
            _permit: permit,
        };
        connection.rest();
        connection
    }

    /// Done when no connection is open.
    pub(super) async fn all_closed(&self) {
        // `limit` was clamped to what fits.
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
    }

    fn evict(&self) {
        if let Some((_, end)) = self.lock().ends.pop_first() {
            self.metrics.http_evictions.inc();
            end.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// It has a request to work on.
    pub(super) fn work(&self) {
        self.of.lock().ends.remove(&self.place.load(Ordering::Relaxed));
    }

    /// It has none any more.
    pub(super) fn rest(&self) {
        let mut idle = self.of.lock();
        idle.last += 1;
        let place = idle.last;
        idle.ends.insert(place, self.end.clone());
        self.place.store(place, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.work();
        self.of.metrics.http_connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_idle_connection_makes_room_and_a_busy_one_never() {
        let connections = Connections::new(3, Arc::new(Metrics::default()));
        let (first, second, third) = (connections.admit().await, connections.admit().await, connections.admit().await);
        first.work();
        second.work();
        second.rest();
        let mut next = Box::pin(connections.admit());
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
        let ended = [&first, &second, &third].map(|connection| connection.end.is_cancelled());
        assert_eq!(ended, [false, false, true]);
        drop(third);
        let fourth = next.await;
        assert_eq!(connections.metrics.http_connections.get(), 3);
        drop((first, second, fourth));
        connections.all_closed().await;
        assert!(connections.lock().ends.is_empty());
        assert_eq!(connections.metrics.http_evictions.get(), 1);
    }
}
