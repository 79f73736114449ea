//! The embedded permits: shared within this process. For `weir demo` and tests.

use std::{fmt, sync::Arc};

use super::{LEASE, PermitBook, Registry};
use crate::{
    embedded::{Locked, Now},
    limit::share::overtaken,
    ports::{PermitGrant, PermitTurn, Permits, StoreError},
    time::Time,
};

/// A [`PermitBook`] with a clock, shared by all instances. No service registers here.
#[derive(Clone)]
pub struct EmbeddedPermits {
    book: Locked<PermitBook>,
    instance: Arc<str>,
    now: Now,
}

impl EmbeddedPermits {
    /// An empty book, asked by this instance at the times of this clock.
    #[must_use]
    pub fn new(instance: &str, now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { book: Locked::default(), instance: instance.into(), now: Arc::new(now) }
    }

    /// The same book, asked by another instance.
    #[must_use]
    pub fn for_instance(&self, instance: &str) -> Self {
        Self { instance: instance.into(), ..self.clone() }
    }
}

impl fmt::Debug for EmbeddedPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedPermits").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Permits for EmbeddedPermits {
    async fn turn(&mut self, turn: &PermitTurn<'_>) -> Result<PermitGrant, StoreError> {
        let mut book = self.book.lock();
        let grant = book.turn(&self.instance, turn, &mut Registry::default(), ((self.now)(), LEASE));
        grant.ok_or_else(overtaken)
    }
}
