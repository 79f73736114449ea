//! What the worker needs of the outside world, as traits. The edges and the simulation implement them.

use std::future::Future;

use crate::domain::{admit::AdmitBatch, decide::Answer};

/// Why a store did not answer everything.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It may answer later: the connection is away, a slot moves, memory is full. Ask again, with backoff.
    #[error("{0}")]
    Temporary(String),
    /// Shards have lost their history (their epoch is gone or another): their sends wait for `weir rebuild`.
    #[error("shards {shards:?} have lost their history: {message}")]
    LostHistory {
        /// The shards, ascending.
        shards: Vec<u16>,
        /// What was found.
        message: String,
    },
    /// Asking again cannot help: a keyspace of another make, no permission to run scripts.
    #[error("{0}")]
    Fatal(String),
}

/// Where histories are: decides sends and records them, atomically a user.
pub trait Store: Send {
    /// Answers all asks of a batch whose place in `answers` (as long as `batch.asks`) is still empty.
    ///
    /// Safe to call again after an error, and to drop half way: a send that was recorded already is
    /// answered as [`crate::domain::decide::Verdict::Replayed`].
    ///
    /// # Errors
    /// Some places in `answers` are still empty; the error says why.
    fn admit(
        &mut self,
        batch: &AdmitBatch<'_>,
        answers: &mut [Option<Answer>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
