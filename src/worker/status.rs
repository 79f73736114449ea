//! How the lanes stand, for `/livez`, `/readyz` and the logs: written by each lane, read by HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;

/// How long a lane may go without a turn of its loop before the process counts as stuck: several times the longest
/// single wait of a lane (going back to the committed offsets, some seconds).
pub const STUCK_AFTER: Duration = Duration::from_secs(60);
/// No turn was made yet.
const NEVER: u64 = u64::MAX;

/// How one lane stands.
#[derive(Debug)]
pub struct LaneStatus {
    assigned: AtomicBool,
    turned_at_ms: AtomicU64,
    trouble: ArcSwapOption<String>,
    lost_shards: AtomicUsize,
}

impl Default for LaneStatus {
    fn default() -> Self {
        Self {
            assigned: AtomicBool::new(false),
            turned_at_ms: AtomicU64::new(NEVER),
            trouble: ArcSwapOption::empty(),
            lost_shards: AtomicUsize::new(0),
        }
    }
}

fn millis(passed: Duration) -> u64 {
    u64::try_from(passed.as_millis()).unwrap_or(NEVER)
}

impl LaneStatus {
    /// The lane's loop has made a turn, at a time of [`super::ports::Clock::passed`].
    pub fn turn(&self, passed: Duration) {
        self.turned_at_ms.store(millis(passed), Ordering::Relaxed);
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

    /// Whether the lane has not made a turn for [`STUCK_AFTER`], at a time of [`super::ports::Clock::passed`].
    #[must_use]
    pub fn is_stuck(&self, passed: Duration) -> bool {
        let turned_at_ms = self.turned_at_ms.load(Ordering::Relaxed);
        turned_at_ms != NEVER && millis(passed).saturating_sub(turned_at_ms) > millis(STUCK_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_stuck_a_minute_after_its_last_turn_and_never_before_its_first() {
        let status = LaneStatus::default();
        assert!(!status.is_stuck(Duration::from_secs(1_000)));
        status.turn(Duration::from_secs(1));
        assert!(!status.is_stuck(Duration::from_secs(61)));
        assert!(status.is_stuck(Duration::from_millis(61_001)));
        assert!(!status.is_stuck(Duration::ZERO), "a look that is older than the turn");
    }
}
