//! src/worker/refresh.rs without the refreshing.

use std::sync::Arc;

/// A value that stays.
#[derive(Debug)]
pub struct Refreshed<T>(Arc<T>);

impl<T> Refreshed<T> {
    /// The value.
    pub fn new(value: Arc<T>) -> Arc<Self> {
        Arc::new(Self(value))
    }

    /// The value.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}
