//! The buckets of histograms.

use prometheus_client::metrics::histogram::Histogram;

use super::tallied::TalliedHistogram;

/// Buckets of a batch's size: 1 to 65,536 intents.
pub(super) fn sizes() -> Histogram {
    Histogram::new((0..=16).step_by(2).map(|power| f64::from(1_u32 << power)))
}

/// Buckets of a stage's time: 0.1 ms to 26 s.
pub(super) fn times() -> Histogram {
    Histogram::new((0..=9).map(|power| 0.000_1 * f64::from(4_u32.pow(power))))
}

/// Buckets of how late a deferred intent is: 1 s to 18 h.
pub(super) fn lateness() -> TalliedHistogram {
    TalliedHistogram::new(&[1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000, 16_384_000, 65_536_000])
}

/// Buckets of how long a record waits: 5 ms to 1 h.
pub(super) fn waits() -> TalliedHistogram {
    TalliedHistogram::new(&[
        5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
    ])
}
