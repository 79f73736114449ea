//! A histogram that takes many observations of one value at once. That of prometheus-client takes a lock for each.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// A histogram of times, in milliseconds inside and in seconds where it is shown.
#[derive(Debug, Clone)]
pub struct TalliedHistogram(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds_ms: &'static [u32],
    /// One per bound, and one for what is above all of them.
    counts: Vec<AtomicU64>,
    sum_ms: AtomicU64,
}

impl TalliedHistogram {
    /// An empty one with these upper bounds, ascending.
    pub fn new(bounds_ms: &'static [u32]) -> Self {
        let counts = (0..=bounds_ms.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { bounds_ms, counts, sum_ms: AtomicU64::new(0) }))
    }

    pub fn observe(&self, millis: u64, count: u64) {
        let Inner { bounds_ms, counts, sum_ms } = &*self.0;
        let bucket = bounds_ms.partition_point(|bound| u64::from(*bound) < millis);
        counts[bucket].fetch_add(count, Ordering::Relaxed);
        sum_ms.fetch_add(millis.saturating_mul(count), Ordering::Relaxed);
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

impl EncodeMetric for TalliedHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Inner { bounds_ms, counts, sum_ms } = &*self.0;
        let bounds = bounds_ms.iter().map(|bound| seconds(u64::from(*bound))).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> =
            bounds.zip(counts).map(|(bound, count)| (bound, count.load(Ordering::Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(sum_ms.load(Ordering::Relaxed)), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for TalliedHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    #[test]
    fn each_observation_is_in_the_buckets_at_or_above_it() {
        let (histogram, mut registry, mut text) =
            (TalliedHistogram::new(&[10, 1_000]), Registry::default(), String::new());
        registry.register("wait", "Time", histogram.clone());
        histogram.observe(10, 3);
        histogram.observe(11, 1);
        histogram.observe(2_500, 2);
        encode(&mut text, &registry).unwrap();
        for line in [
            "wait_sum 5.041",
            "wait_count 6",
            "wait_bucket{le=\"0.01\"} 3",
            "wait_bucket{le=\"1.0\"} 4",
            "wait_bucket{le=\"+Inf\"} 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
