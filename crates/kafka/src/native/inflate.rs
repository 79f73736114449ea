//! What record batches may inflate to. The crate in crates/kafka/inflate, which the binary alone links, keeps to it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The version of librdkafka that this is built with.
pub const LIBRDKAFKA_VERSION: i32 = rdkafka::bindings::RD_KAFKA_VERSION;

/// What one answer of a broker may inflate to before the rest of it is left for the next one, in bytes: the least.
pub const LEAST_ANSWER_BYTES: u64 = 32 * 1024 * 1024;

/// For all clients of this process, in bytes.
static BATCH_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
static ANSWER_BYTES: AtomicU64 = AtomicU64::new(LEAST_ANSWER_BYTES);

/// Sets the bounds: of a batch, and of the batches of one answer, after which no further batch of it is inflated. For an answer the
/// largest `answer_bytes` of all clients counts.
pub fn bound(batch_bytes: u64, answer_bytes: u64) {
    BATCH_BYTES.store(batch_bytes, Ordering::Relaxed);
    ANSWER_BYTES.fetch_max(answer_bytes, Ordering::Relaxed);
}

/// Whether so many bytes are too many for a batch.
#[must_use]
pub fn is_beyond(bytes: u64) -> bool {
    bytes > BATCH_BYTES.load(Ordering::Relaxed)
}

/// Whether batches of so many bytes are enough for an answer.
#[must_use]
pub fn is_enough(bytes: u64) -> bool {
    bytes >= ANSWER_BYTES.load(Ordering::Relaxed)
}
