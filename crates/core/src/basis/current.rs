//! A value that is in force: segments, a policy.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// A value that is replaced as a whole while others read it.
#[derive(Debug)]
pub struct Current<T>(ArcSwap<T>);

impl<T> Current<T> {
    pub fn new(value: Arc<T>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(value)))
    }

    /// The current value; hold it for a batch, so that all of the batch is judged by the same one.
    pub fn get(&self) -> Arc<T> {
        self.0.load_full()
    }

    pub fn replace(&self, value: Arc<T>) {
        self.0.store(value);
    }
}
