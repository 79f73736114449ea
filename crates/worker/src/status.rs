//! How the lanes and the store are, for `/livez`, `/readyz`, `/v1/status` and the logs: written by each lane and by who looks
//! at the store, read by HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use weir_core::{basis::time::millis, ports::ShardsFound};

/// How long a lane may go without an iteration of its loop before the process counts as stuck: several times the longest
/// single wait of a lane (going back to the committed offsets, some seconds).
pub const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How long it is shown that retention has deleted records undecided: nothing repairs it.
pub const DELETED_SHOWN: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub struct LaneStatus {
    assigned: AtomicBool,
    was_assigned: AtomicBool,
    /// When progress was made last, at least 1; 0: none was made yet.
    turned_at_ms: AtomicU64,
    trouble: ArcSwapOption<Trouble>,
    deleted: ArcSwapOption<Trouble>,
    lost_shards: AtomicUsize,
}

/// What something waits for, or what has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub since: Instant,
    pub message: String,
}

/// What the last look at the store has found, and since when it is so; nothing is wrong where nobody looks.
#[derive(Debug, Clone, Default)]
pub struct StoreStatus(Arc<ArcSwap<StoreSeen>>);

#[derive(Debug, Default)]
pub struct StoreSeen {
    pub found: ShardsFound,
    pub unavailable_since: Option<Instant>,
    pub lost_since: Option<Instant>,
}

impl StoreStatus {
    pub fn set(&self, found: ShardsFound) {
        let before = self.0.load();
        let since =
            |shards: &[u16], before: Option<Instant>| (!shards.is_empty()).then(|| before.unwrap_or_else(Instant::now));
        let unavailable_since = since(&found.unavailable, before.unavailable_since);
        let lost_since = since(&found.lost, before.lost_since);
        self.0.store(Arc::new(StoreSeen { found, unavailable_since, lost_since }));
    }

    pub fn seen(&self) -> Arc<StoreSeen> {
        self.0.load_full()
    }
}

impl LaneStatus {
    /// The lane's loop has made progress, at a time of [`weir_core::ports::Clock::passed`].
    pub fn progressed(&self, passed: Duration) {
        self.turned_at_ms.store(millis(passed).max(1), Ordering::Relaxed);
    }

    /// The lane has been given its partitions (which may be none).
    pub fn assigned(&self) {
        self.assigned.store(true, Ordering::Release);
        self.was_assigned.store(true, Ordering::Release);
    }

    /// The lane waits for its partitions.
    pub fn revoked(&self) {
        self.assigned.store(false, Ordering::Release);
    }

    /// What the lane waits for, or `None` when it goes on. Cheap where nothing changes.
    pub fn set_trouble(&self, trouble: Option<String>) {
        let before = self.trouble.load();
        let Some(message) = trouble else {
            if before.is_some() {
                self.trouble.store(None);
            }
            return;
        };
        let since = before.as_ref().map_or_else(Instant::now, |before| before.since);
        self.trouble.store(Some(Arc::new(Trouble { since, message })));
    }

    /// Retention has deleted records of the lane's topic undecided: for people. It is shown for [`DELETED_SHOWN`].
    pub fn note_deleted(&self, message: String) {
        self.deleted.store(Some(Arc::new(Trouble { since: Instant::now(), message })));
    }

    /// What retention has deleted undecided, if that was found out not long ago.
    pub fn deleted(&self) -> Option<Arc<Trouble>> {
        self.deleted.load_full().filter(|deleted| deleted.since.elapsed() < DELETED_SHOWN)
    }

    pub fn set_lost_shards(&self, shards: usize) {
        self.lost_shards.store(shards, Ordering::Relaxed);
    }

    /// How many shards without their history the lane waits for.
    pub fn lost_shards(&self) -> usize {
        self.lost_shards.load(Ordering::Relaxed)
    }

    pub fn trouble(&self) -> Option<Arc<Trouble>> {
        self.trouble.load_full()
    }

    /// Whether the group has given the lane its partitions (which may be none) since the start, be they taken since or not.
    pub fn was_assigned(&self) -> bool {
        self.was_assigned.load(Ordering::Acquire)
    }

    /// Whether the group has given the lane its partitions (which may be none).
    pub fn is_assigned(&self) -> bool {
        self.assigned.load(Ordering::Acquire)
    }

    /// Whether the lane has made no progress for [`STUCK_AFTER`], at a time of [`weir_core::ports::Clock::passed`].
    pub fn is_stuck(&self, passed: Duration) -> bool {
        let turned_at_ms = self.turned_at_ms.load(Ordering::Relaxed);
        turned_at_ms != 0 && millis(passed).saturating_sub(turned_at_ms) > millis(STUCK_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_stuck_a_minute_after_its_last_turn_and_never_before_its_first() {
        let status = LaneStatus::default();
        assert!(!status.is_stuck(Duration::from_secs(1_000)));
        status.progressed(Duration::from_secs(1));
        assert!(!status.is_stuck(Duration::from_secs(61)));
        assert!(status.is_stuck(Duration::from_millis(61_001)));
        assert!(!status.is_stuck(Duration::ZERO), "a look that is older than the progress");
    }
}
