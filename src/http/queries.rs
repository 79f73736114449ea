//! Who answers questions about users: some queries, each with connections to the store of its own.

use std::pin::Pin;

use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use weir_core::ports::{Clock, Histories, Store, StoreError};

use crate::query::{Decision, Forgotten, QueryError, QueryService, SingleRecord, UserView};

/// Whether a decision is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionMode {
    Record,
    DryRun,
}

pub type Answering<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

pub trait Queries: Send + Sync + 'static {
    fn user<'a>(&'a self, user_id: &'a str) -> Answering<'a, UserView, StoreError>;
    fn forget<'a>(&'a self, user_id: &'a str) -> Answering<'a, Forgotten, StoreError>;
    fn decide<'a>(&'a self, intent: SingleRecord<'a>, mode: DecisionMode) -> Answering<'a, Decision, QueryError>;
}

/// Query services in a pool. Who finds none free waits; how many wait and how long is bounded by `http.concurrency` and
/// `http.timeout`.
pub struct QueryPool<S, C> {
    queries: Vec<Mutex<QueryService<S, C>>>,
    permits: Semaphore,
}

impl<S, C> QueryPool<S, C> {
    /// As many at the same time as these.
    pub fn new(queries: Vec<QueryService<S, C>>) -> Self {
        Self { permits: Semaphore::new(queries.len()), queries: queries.into_iter().map(Mutex::new).collect() }
    }

    /// A query service on loan, which may be given back half way through a question: a store allows that. It goes back before its permit,
    /// so there is a free one for each permit: of several the first, whose connections and names are warm.
    async fn borrow(&self) -> Result<(SemaphorePermit<'_>, MutexGuard<'_, QueryService<S, C>>), StoreError> {
        let none = || StoreError::Temporary("no connection is free".to_owned());
        let permit = self.permits.acquire().await.map_err(|_| none())?;
        let query = self.queries.iter().find_map(|query| query.try_lock().ok()).ok_or_else(none)?;
        Ok((permit, query))
    }
}

impl<S, C> Queries for QueryPool<S, C>
where
    S: Store + Histories + 'static,
    C: Clock + 'static,
{
    fn user<'a>(&'a self, user_id: &'a str) -> Answering<'a, UserView, StoreError> {
        Box::pin(async move {
            let (_permit, mut query) = self.borrow().await?;
            query.user(user_id).await
        })
    }

    fn forget<'a>(&'a self, user_id: &'a str) -> Answering<'a, Forgotten, StoreError> {
        Box::pin(async move {
            let (_permit, mut query) = self.borrow().await?;
            query.forget(user_id).await
        })
    }

    fn decide<'a>(&'a self, intent: SingleRecord<'a>, mode: DecisionMode) -> Answering<'a, Decision, QueryError> {
        Box::pin(async move {
            let (_permit, mut query) = self.borrow().await?;
            match mode {
                DecisionMode::Record => query.decide(intent).await,
                DecisionMode::DryRun => query.would(intent).await,
            }
        })
    }
}
