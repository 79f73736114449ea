//! What the metrics stand at, for the page. A family cannot be walked, so its labels are asked for one by one.

use std::sync::atomic::Ordering;

use prometheus_client::metrics::counter::Counter;

use super::{CapLabels, DecisionLabels, Metrics, PartitionLabel, ReasonLabel};

/// Brings a counter to a total that is counted elsewhere.
pub fn bring(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

impl Metrics {
    /// Intents decided with this verdict and reason.
    #[must_use]
    pub fn decided(&self, verdict: &'static str, reason: &'static str) -> u64 {
        self.decisions.get(&DecisionLabels { verdict, reason }).map_or(0, |count| count.get())
    }

    /// Records that were no intents, for this reason.
    #[must_use]
    pub fn dead_lettered(&self, reason: &'static str) -> u64 {
        self.dead_letters.get(&ReasonLabel { reason }).map_or(0, |count| count.get())
    }

    /// Intents that this cap denied to users of this segment, or of none.
    #[must_use]
    pub fn denied(&self, segment: Option<&str>, cap: &str) -> u64 {
        let labels = CapLabels { segment: segment.unwrap_or_default().to_owned(), cap: cap.to_owned() };
        self.cap_denials.get(&labels).map_or(0, |count| count.get())
    }

    /// The lag of each partition that this process reads.
    #[must_use]
    pub fn lags(&self) -> Vec<(i32, i64)> {
        let partitions = 0..=self.highest_partition.load(Ordering::Relaxed);
        let lag = |partition| self.lag.get(&PartitionLabel { partition }).map(|lag| (partition, lag.get()));
        partitions.filter_map(lag).collect()
    }
}
