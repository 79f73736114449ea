//! What a record batch may inflate to. The crate in crates/kafka/inflate, which the binary alone links, keeps to it.

use std::sync::atomic::{AtomicU64, Ordering};

/// For all clients of this process, in bytes.
static LIMIT_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// From now on a batch inflates to so many bytes at the most.
pub fn bound(bytes: u64) {
    LIMIT_BYTES.store(bytes, Ordering::Relaxed);
}

/// Whether so many bytes are too many.
#[must_use]
pub fn is_beyond(bytes: u64) -> bool {
    bytes > LIMIT_BYTES.load(Ordering::Relaxed)
}
