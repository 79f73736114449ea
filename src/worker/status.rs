//! How the lanes stand, for `/livez`, `/readyz` and the logs: written by each lane, read by HTTP.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use arc_swap::ArcSwapOption;

use crate::domain::time::Time;

/// How long a lane may go without a turn of its loop before the process counts as stuck, in milliseconds: the
/// longest single wait of a lane (a hung commit, 30 s) twice.
pub const STUCK_AFTER_MS: i64 = 60_000;

/// How one lane stands.
#[derive(Debug, Default)]
pub struct LaneStatus {
    assigned: AtomicBool,
    turned_at_ms: AtomicI64,
    trouble: ArcSwapOption<String>,
    lost_shards: AtomicUsize,
}

impl LaneStatus {
    /// The lane's loop has made a turn.
    pub fn turn(&self, now: Time) {
        self.turned_at_ms.store(now.millis(), Ordering::Relaxed);
    }

    /// The lane has been given its partitions (which may be none).
    pub fn assigned(&self) {
        self.assigned.store(true, Ordering::Release);
    }

    /// The lane waits for its partitions.
    pub fn revoked(&self) {
        self.assigned.store(false, Ordering::Release);
    }

    /// What the lane waits for, or `None` when it goes on. Cheap where nothing changes.
    pub fn set_trouble(&self, trouble: Option<String>) {
        if trouble.is_some() || self.trouble.load().is_some() {
            self.trouble.store(trouble.map(Arc::new));
        }
    }

    /// How many shards without their history the lane waits for.
    pub fn set_lost_shards(&self, shards: usize) {
        self.lost_shards.store(shards, Ordering::Relaxed);
    }

    /// How many shards without their history the lane waits for.
    #[must_use]
    pub fn lost_shards(&self) -> usize {
        self.lost_shards.load(Ordering::Relaxed)
    }

    /// What the lane waits for.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Whether the group has given the lane its partitions (which may be none).
    #[must_use]
    pub fn is_assigned(&self) -> bool {
        self.assigned.load(Ordering::Acquire)
    }

    /// Whether the lane has not made a turn for [`STUCK_AFTER_MS`].
    #[must_use]
    pub fn is_stuck(&self, now: Time) -> bool {
        let turned_at_ms = self.turned_at_ms.load(Ordering::Relaxed);
        turned_at_ms != 0 && now.millis() - turned_at_ms > STUCK_AFTER_MS
    }
}
