//! The embedded ledger: budgets in this process. For `weir demo` and tests.

use std::{fmt, sync::Arc};

use super::{Book, GiveBack, TakeAnswer, TakeRequest};
use crate::{
    locked::{Locked, Now},
    ports::{Ledger, StoreError},
    time::Time,
};

/// A [`Book`] with a clock, shared by the ledgers of all holders.
#[derive(Clone)]
pub struct EmbeddedLedger {
    book: Locked<Book>,
    holder: Arc<str>,
    now: Now,
}

impl EmbeddedLedger {
    /// An empty ledger, asked by this holder at the times of this clock.
    #[must_use]
    pub fn new(holder: &str, now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { book: Locked::default(), holder: holder.into(), now: Arc::new(now) }
    }

    /// The same ledger, asked by another holder.
    #[must_use]
    pub fn for_holder(&self, holder: &str) -> Self {
        Self { holder: holder.into(), ..self.clone() }
    }
}

impl fmt::Debug for EmbeddedLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLedger").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Ledger for EmbeddedLedger {
    async fn take(&mut self, requests: &[TakeRequest], answers: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
        let mut book = self.book.lock();
        for (request, answer) in requests.iter().zip(answers) {
            answer.get_or_insert_with(|| book.take((self.now)(), &self.holder, request));
        }
        Ok(())
    }

    async fn give_back(&mut self, tokens: &[GiveBack], answers: &mut [Option<u64>]) -> Result<(), StoreError> {
        let mut book = self.book.lock();
        for (given, answer) in tokens.iter().zip(answers) {
            *answer = Some(book.give_back((self.now)(), &self.holder, given));
        }
        Ok(())
    }
}
