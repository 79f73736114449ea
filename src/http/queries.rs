//! Who answers questions about users: some queries, each with connections to the store of its own.
#![expect(clippy::disallowed_types, reason = "requests share the queries that are free; nothing waits in the lock")]

use std::{
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};
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
    free: Mutex<Vec<QueryService<S, C>>>,
    permits: Semaphore,
}

/// A query service on loan; given back when dropped, also half way through a question, which a store allows.
struct Loan<'p, S, C> {
    of: &'p QueryPool<S, C>,
    query: Option<QueryService<S, C>>,
    // Behind the query service: it is back before another one may look for it.
    _permit: SemaphorePermit<'p>,
}

impl<S, C> QueryPool<S, C> {
    /// As many at the same time as these.
    pub fn new(queries: Vec<QueryService<S, C>>) -> Self {
        Self { permits: Semaphore::new(queries.len()), free: Mutex::new(queries) }
    }

    async fn borrow(&self) -> Result<Loan<'_, S, C>, StoreError> {
        let none = || StoreError::Temporary("no connection is free".to_owned());
        let permit = self.permits.acquire().await.map_err(|_| none())?;
        // The one used last: its connections and the names it knows are warm.
        let query = self.lock().pop();
        Ok(Loan { of: self, query, _permit: permit })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<QueryService<S, C>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, C> Loan<'_, S, C> {
    fn query(&mut self) -> &mut QueryService<S, C> {
        self.query.as_mut().expect("there is a query for each permit")
    }
}

impl<S, C> Drop for Loan<'_, S, C> {
    fn drop(&mut self) {
        self.of.lock().extend(self.query.take());
    }
}

impl<S, C> Queries for QueryPool<S, C>
where
    S: Store + Histories + 'static,
    C: Clock + 'static,
{
    fn user<'a>(&'a self, user_id: &'a str) -> Answering<'a, UserView, StoreError> {
        Box::pin(async move { self.borrow().await?.query().user(user_id).await })
    }

    fn forget<'a>(&'a self, user_id: &'a str) -> Answering<'a, Forgotten, StoreError> {
        Box::pin(async move { self.borrow().await?.query().forget(user_id).await })
    }

    fn decide<'a>(&'a self, intent: SingleRecord<'a>, mode: DecisionMode) -> Answering<'a, Decision, QueryError> {
        Box::pin(async move {
            let mut loan = self.borrow().await?;
            match mode {
                DecisionMode::Record => loan.query().decide(intent).await,
                DecisionMode::DryRun => loan.query().would(intent).await,
            }
        })
    }
}
