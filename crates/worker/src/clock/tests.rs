//! The clock of tests.

use std::sync::RwLock;

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
