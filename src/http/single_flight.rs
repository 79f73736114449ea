//! Equal lookups at the same time are one lookup.
#![expect(
    clippy::disallowed_types,
    reason = "requests share the table of what is under way; nothing waits in the lock"
)]

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::OnceCell;

/// What is being looked up, for as long as somebody waits for it. Bounded by the requests that are worked on.
type Flights<K, V> = HashMap<K, Weak<OnceCell<V>>>;

#[derive(Debug)]
pub(super) struct SingleFlight<K, V> {
    flights: Mutex<Flights<K, V>>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { flights: Mutex::default() }
    }
}

impl<K: Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// What `look_up` gives, or an equal lookup that began before and has not ended. Where the one who does it is
    /// dropped, another one of those waiting begins anew.
    pub(super) async fn get(&self, key: K, look_up: impl Future<Output = V>) -> V {
        let flight = self.under_way(key);
        flight.get_or_init(|| look_up).await.clone()
    }

    fn under_way(&self, key: K) -> Arc<OnceCell<V>> {
        let mut flights = self.lock();
        flights.retain(|_, flight| flight.upgrade().is_some_and(|flight| !flight.initialized()));
        let flight = flights.get(&key).and_then(Weak::upgrade).unwrap_or_default();
        flights.insert(key, Arc::downgrade(&flight));
        flight
    }

    /// From now on a lookup of this key begins anew: what it gives has changed.
    pub(super) fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Flights<K, V>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// A lookup that counts itself and ends when it is let.
    async fn count(looked_up: &AtomicU32, gate: &Semaphore) -> u32 {
        let number = looked_up.fetch_add(1, Ordering::SeqCst) + 1;
        gate.acquire().await.unwrap().forget();
        number
    }

    #[tokio::test]
    async fn a_lookup_whose_owner_goes_is_done_by_another_and_nothing_stays_behind() {
        let (flights, looked_up, gate) = (SingleFlight::default(), AtomicU32::new(0), Semaphore::new(0));
        let get = || Box::pin(flights.get("a", count(&looked_up, &gate)));
        let (mut first, mut second) = (get(), get());
        assert!(futures_pending(&mut first).await && futures_pending(&mut second).await);
        drop(first);
        gate.add_permits(1);
        assert_eq!(second.await, 2);
        let mut third = get();
        assert!(futures_pending(&mut third).await);
        drop(third);
        nothing_is_left(&flights);
    }

    #[tokio::test]
    async fn what_was_forgotten_is_looked_up_anew() {
        let (flights, looked_up, gate) = (SingleFlight::default(), AtomicU32::new(0), Semaphore::new(0));
        let get = || Box::pin(flights.get("a", count(&looked_up, &gate)));
        let mut before = get();
        assert!(futures_pending(&mut before).await);
        flights.forget(&"a");
        gate.add_permits(2);
        assert_eq!((get().await, before.await), (2, 1));
        nothing_is_left(&flights);
    }

    #[track_caller]
    fn nothing_is_left(flights: &SingleFlight<&'static str, u32>) {
        assert!(flights.lock().values().all(|flight| flight.strong_count() == 0));
    }

    /// Polls once; whether it is not done.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
    }
}
