//! Why Redis, or what is in its place, did not answer.

/// Why a store did not answer everything.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It may answer later: the connection is lost, a node does not answer. Retry with backoff. What has no answer may be recorded.
    #[error("{0}")]
    Temporary(String),
    /// It may answer later, and nothing that has no answer was recorded or will be: it was not asked, or the store refused, as where memory is
    /// full. Retry with backoff.
    #[error("{0}")]
    NotRecorded(String),
    /// It answers, but would take too long for all: ask for fewer at a time. What has an answer was recorded.
    #[error("{0}")]
    TooSlow(String),
    /// Shards have lost their history (their epoch is gone or another): their sends wait until it is restored. None that has no answer was
    /// recorded.
    #[error("shards {} have lost their history: {message}", in_short(.shards))]
    LostHistory {
        /// The shards, ascending.
        shards: Vec<u16>,
        message: String,
    },
    /// Asking again cannot help: a keyspace of another make, no permission to run scripts.
    #[error("{0}")]
    Fatal(String),
}

/// Some shards for people, and never hundreds of them: `[1, 2, 3] and 338 more`.
pub fn in_short(shards: &[u16]) -> String {
    const SHOWN: usize = 8;
    match shards.len().checked_sub(SHOWN) {
        None | Some(0) => format!("{shards:?}"),
        Some(more) => format!("{:?} and {more} more", &shards[..SHOWN]),
    }
}
