//! Pauses between attempts, and how often the group is served meanwhile: the same for lanes and for topics beside the intents.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// How long the group goes unserved while something is waited for.
pub(super) const SERVE_EVERY: Duration = Duration::from_millis(250);
/// The longest pause between two attempts at something that is away.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Pauses between attempts, without end: what waits is in Kafka, and is not lost.
pub(super) fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_delay(LONGEST_BACKOFF).with_jitter().without_max_times().build()
}
