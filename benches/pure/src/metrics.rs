//! src/metrics.rs, as far as the desk uses it, without a registry.

use std::sync::atomic::{AtomicU64, Ordering};

#[path = "../../../src/metrics/tally.rs"]
mod tally;

pub use tally::{RefundTally, Tally};

/// Labels of a cap's denials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CapLabels {
    /// The segment.
    pub segment: String,
    /// The cap.
    pub cap: String,
}

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the desk counts while it decides.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Intents of users in more than one segment.
    pub segment_overlaps: Counter,
    /// Intents of users whose segment the policy does not name.
    pub segment_unnamed: Counter,
}
