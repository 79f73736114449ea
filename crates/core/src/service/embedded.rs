//! Services in this process: for `weir demo` and tests.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Book, Holder, Registered, Registration, ServiceName, ServiceSeen, ShareReply, ShareTurn};
use crate::{
    embedded::{Locked, Now},
    limit::share::overtaken,
    ports::{Services, StoreError},
    time::Time,
};

/// A [`Book`] for each service with a clock, shared by all clones.
#[derive(Clone)]
pub struct EmbeddedServices {
    books: Locked<BTreeMap<ServiceName, Book>>,
    holder: Holder,
    now: Now,
}

impl EmbeddedServices {
    /// No services yet; this holder takes turns, at the times of this clock.
    #[must_use]
    pub fn new(holder: &str, now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { books: Locked::default(), holder: holder.into(), now: Arc::new(now) }
    }

    /// The same services, at which another holder takes turns.
    #[must_use]
    pub fn for_holder(&self, holder: &str) -> Self {
        Self { holder: holder.into(), ..self.clone() }
    }

    fn with<T>(&self, service: &ServiceName, what: impl FnOnce(&mut Book, Time) -> T) -> T {
        let mut books = self.books.lock();
        what(books.entry(service.clone()).or_default(), (self.now)())
    }
}

impl fmt::Debug for EmbeddedServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedServices").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Services for EmbeddedServices {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: &Registration,
    ) -> Result<Registered, StoreError> {
        Ok(self.with(service, |book, now| book.register(instance, registration, now)))
    }

    async fn deregister(&mut self, service: &ServiceName, instance: &ServiceName) -> Result<bool, StoreError> {
        Ok(self.with(service, |book, now| book.deregister(instance, now)))
    }

    async fn share(&mut self, service: &ServiceName, turn: &ShareTurn) -> Result<ShareReply, StoreError> {
        let holder = Holder::clone(&self.holder);
        let reply = self.with(service, |book, now| book.turn(&holder, turn, now));
        reply.ok_or_else(overtaken)
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        Ok(self.with(service, |book, now| book.look(now)))
    }
}
