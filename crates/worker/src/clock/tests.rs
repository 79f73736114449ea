//! The clock of tests.

use std::sync::{RwLock, atomic::AtomicI64};

use super::*;

/// What it shows, all the while.
pub(crate) fn noon() -> Time {
    Time::from_rfc3339("2026-11-21T12:00:00Z").unwrap()
}

/// A clock that waits move on: they take no time. All clones share it.
#[derive(Clone, Default)]
pub(crate) struct VirtualClock(Arc<RwLock<Duration>>);

impl VirtualClock {
    pub(crate) fn advance(&self, by: Duration) {
        *self.0.write().unwrap() += by;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        noon()
    }

    fn passed(&self) -> Duration {
        *self.0.read().unwrap()
    }

    async fn sleep(&self, wait: Duration) {
        tokio::task::yield_now().await;
        self.advance(wait);
    }
}

/// So many milliseconds after noon. It passes as the system's clock does.
#[derive(Clone, Default)]
pub(crate) struct Noon(pub(crate) Arc<AtomicI64>);

impl Clock for Noon {
    fn now(&self) -> Time {
        noon().plus(self.0.load(Ordering::Relaxed))
    }

    fn passed(&self) -> Duration {
        SystemClock.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        SystemClock.sleep(wait)
    }
}
