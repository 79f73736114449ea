//! Who answers questions about users: some inquiries, each with connections to the store of its own.
#![expect(clippy::disallowed_types, reason = "requests share the inquiries that are free; nothing waits in the lock")]

use std::{
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use weir_core::ports::{Clock, Histories, Store, StoreError};

use crate::inquiry::{Decision, Forgotten, Inquiry, InquiryError, Posted, UserView};

/// Whether a decision is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is.
    Record,
    /// Nothing is written.
    DryRun,
}

/// The answer to come of an inquiry.
pub type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// What is asked about users.
pub trait Inquiries: Send + Sync + 'static {
    /// What a user was sent, and what each cap stands at.
    fn user<'a>(&'a self, user_id: &'a str) -> Answer<'a, UserView, StoreError>;
    /// Deletes what the store knows of a user.
    fn forget<'a>(&'a self, user_id: &'a str) -> Answer<'a, Forgotten, StoreError>;
    /// What becomes of an intent.
    fn decide<'a>(&'a self, intent: Posted<'a>, mode: Mode) -> Answer<'a, Decision, InquiryError>;
}

/// Inquiries that take turns. Who finds none free waits; how many wait and how long is bounded by `http.concurrency` and
/// `http.timeout`.
pub struct InquiryPool<S, C> {
    free: Mutex<Vec<Inquiry<S, C>>>,
    permits: Semaphore,
}

/// An inquiry on loan; given back when dropped, also half way through a question, which a store allows.
struct Loan<'p, S, C> {
    of: &'p InquiryPool<S, C>,
    inquiry: Option<Inquiry<S, C>>,
    // Behind the inquiry: it is back before another one may look for it.
    _permit: SemaphorePermit<'p>,
}

impl<S, C> InquiryPool<S, C> {
    /// As many at the same time as these.
    #[must_use]
    pub fn new(inquiries: Vec<Inquiry<S, C>>) -> Self {
        Self { permits: Semaphore::new(inquiries.len()), free: Mutex::new(inquiries) }
    }

    async fn borrow(&self) -> Result<Loan<'_, S, C>, StoreError> {
        let none = || StoreError::Temporary("no connection is free".to_owned());
        let permit = self.permits.acquire().await.map_err(|_| none())?;
        // The one used last: its connections and the names it knows are warm.
        let inquiry = self.lock().pop();
        Ok(Loan { of: self, inquiry, _permit: permit })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Inquiry<S, C>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, C> Loan<'_, S, C> {
    fn inquiry(&mut self) -> &mut Inquiry<S, C> {
        self.inquiry.as_mut().expect("there is an inquiry for each permit")
    }
}

impl<S, C> Drop for Loan<'_, S, C> {
    fn drop(&mut self) {
        self.of.lock().extend(self.inquiry.take());
    }
}

impl<S, C> Inquiries for InquiryPool<S, C>
where
    S: Store + Histories + 'static,
    C: Clock + 'static,
{
    fn user<'a>(&'a self, user_id: &'a str) -> Answer<'a, UserView, StoreError> {
        Box::pin(async move { self.borrow().await?.inquiry().user(user_id).await })
    }

    fn forget<'a>(&'a self, user_id: &'a str) -> Answer<'a, Forgotten, StoreError> {
        Box::pin(async move { self.borrow().await?.inquiry().forget(user_id).await })
    }

    fn decide<'a>(&'a self, intent: Posted<'a>, mode: Mode) -> Answer<'a, Decision, InquiryError> {
        Box::pin(async move {
            let mut loan = self.borrow().await?;
            match mode {
                Mode::Record => loan.inquiry().decide(intent).await,
                Mode::DryRun => loan.inquiry().would(intent).await,
            }
        })
    }
}
