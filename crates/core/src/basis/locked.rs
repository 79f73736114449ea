//! What the clones of a server in memory share.
#![expect(
    clippy::disallowed_types,
    reason = "a server in memory is shared as the real one is, and one request after another; nothing waits in the lock"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::basis::time::Time;

/// The time now, as a server in memory reads it.
pub(crate) type Now = Arc<dyn Fn() -> Time + Send + Sync>;

/// A value that all clones share: of the embedded store and limits, and of nothing else.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Arc<Mutex<T>>);

impl<T> Locked<T> {
    /// The value, for one at a time; also after somebody has panicked with it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Locked<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
