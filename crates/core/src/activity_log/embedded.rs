//! The embedded log of activity: in this process. For `weir demo` and tests.

use std::{fmt, sync::Arc};

use super::{Book, SyncReply, SyncRequest};
use crate::{
    embedded::{Locked, Now},
    limit::share::overtaken,
    ports::{ActivityLog, StoreError},
    time::Time,
};

/// A [`Book`] with a clock, shared by the logs of all instances.
#[derive(Clone)]
pub struct EmbeddedActivityLog {
    book: Locked<Book>,
    instance: Arc<str>,
    now: Now,
}

impl EmbeddedActivityLog {
    /// An empty log, at which this instance takes turns, at the times of this clock.
    #[must_use]
    pub fn new(instance: &str, now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { book: Locked::default(), instance: instance.into(), now: Arc::new(now) }
    }

    /// The same log, at which another instance takes turns.
    #[must_use]
    pub fn for_instance(&self, instance: &str) -> Self {
        Self { instance: instance.into(), ..self.clone() }
    }
}

impl fmt::Debug for EmbeddedActivityLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedActivityLog").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl ActivityLog for EmbeddedActivityLog {
    async fn sync(&mut self, request: &SyncRequest<'_>) -> Result<SyncReply, StoreError> {
        let reply = self.book.lock().sync(&self.instance, request, (self.now)());
        reply.ok_or_else(overtaken)
    }
}
