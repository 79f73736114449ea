//! Keeps something fresh that is read from outside: asks for it again and again, swaps it in when it has changed,
//! and keeps the last good one when it is refused.

use std::{
    fmt::Display,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;
use weir_core::basis::current::Current;

/// By how much of the interval the waits differ, at most: many workers that start together should not ask together.
const JITTER: f64 = 0.1;
/// The shortest wait between two reads, so that a setting of zero is no busy loop.
const MIN_WAIT: Duration = Duration::from_millis(10);

pub trait RefreshSource: Send {
    type Value: Send + Sync;
    /// Why it was refused: what, where, what to do.
    type Error: Display + Send;

    /// What it is called in logs: `segments`, `policy`.
    const NAME: &'static str;

    fn version(value: &Self::Value) -> &str;

    /// Whether an error may be gone in a moment, with nobody changing anything: a start waits for that a while.
    fn is_temporary(error: &Self::Error) -> bool;

    /// Reads it; `None` if it is the same as at the last successful read. Safe to drop half way.
    fn load(&mut self) -> impl Future<Output = Result<Option<Arc<Self::Value>>, Self::Error>> + Send;
}

/// What is known of the last good value and of the failures since.
#[derive(Debug, Clone)]
pub struct Freshness {
    pub loaded_at: Instant,
    /// When the source last gave a value, or said that there is no newer one.
    pub confirmed_at: Instant,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub since: Instant,
    pub error: String,
}

/// A value that is replaced as a whole while others read it.
#[derive(Debug)]
pub struct Refreshed<T> {
    value: Arc<Current<T>>,
    freshness: ArcSwap<Freshness>,
    failure: ArcSwapOption<Failure>,
    failures: AtomicU64,
}

impl<T> Refreshed<T> {
    pub fn new(value: Arc<T>) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            value: Current::new(value),
            freshness: ArcSwap::from_pointee(Freshness { loaded_at: now, confirmed_at: now }),
            failure: ArcSwapOption::empty(),
            failures: AtomicU64::new(0),
        })
    }

    /// The current value; hold it for a batch, so that all of the batch is judged by the same one.
    pub fn current(&self) -> Arc<T> {
        self.value.get()
    }

    /// The value for those who only use it.
    pub fn value(&self) -> Arc<Current<T>> {
        Arc::clone(&self.value)
    }

    pub fn freshness(&self) -> Freshness {
        self.freshness.load().as_ref().clone()
    }

    /// Why the last read failed; `None` after one that did not.
    pub fn last_error(&self) -> Option<String> {
        self.failure().map(|failure| failure.error.clone())
    }

    /// Why the last read failed, and since when all do; `None` after one that did not.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        self.failure.load_full()
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn take(&self, value: Arc<T>) {
        let now = Instant::now();
        self.value.replace(value);
        self.freshness.store(Arc::new(Freshness { loaded_at: now, confirmed_at: now }));
        self.failure.store(None);
    }

    fn confirm(&self) {
        let loaded_at = self.freshness.load().loaded_at;
        self.freshness.store(Arc::new(Freshness { loaded_at, confirmed_at: Instant::now() }));
        self.failure.store(None);
    }

    /// Whether this error is another one than the last.
    fn refuse(&self, error: String) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let before = self.failure.load();
        let news = before.as_ref().is_none_or(|before| before.error != error);
        let since = before.as_ref().map_or_else(Instant::now, |before| before.since);
        self.failure.store(Some(Arc::new(Failure { since, error })));
        news
    }
}

/// Reads the source about every `every` until `stop`; give it to a task of its own.
pub async fn keep_fresh<S: RefreshSource>(
    mut source: S,
    refreshed: Arc<Refreshed<S::Value>>,
    every: Duration,
    stop: CancellationToken,
) {
    loop {
        let wait = every.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0)).max(MIN_WAIT);
        let stopped = stop.run_until_cancelled(async {
            tokio::time::sleep(wait).await;
            refresh(&mut source, &refreshed).await;
        });
        if stopped.await.is_none() {
            return;
        }
    }
}

/// Reads the source once and takes up what it gives.
pub async fn refresh<S: RefreshSource>(source: &mut S, refreshed: &Refreshed<S::Value>) {
    match source.load().await {
        Ok(Some(value)) => {
            let (from, to) = (refreshed.current(), Arc::clone(&value));
            refreshed.take(value);
            tracing::info!(what = S::NAME, from = S::version(&from), to = S::version(&to), "taken up a new version");
        }
        Ok(None) => {
            if refreshed.last_error().is_some() {
                tracing::info!(what = S::NAME, "readable again, and unchanged");
            }
            refreshed.confirm();
        }
        Err(error) => {
            let error = error.to_string();
            if refreshed.refuse(error.clone()) {
                let version = refreshed.current();
                tracing::error!(
                    what = S::NAME,
                    version = S::version(&version),
                    error,
                    "refused; the last good one stays"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
