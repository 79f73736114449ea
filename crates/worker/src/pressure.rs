//! Pressure between instances: one task a process tells the log who became active here, and takes from it who did elsewhere, once a
//! second, however many intents there are, and at once where partitions move.

mod keeper;
mod lately;
mod untold;
mod view;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
pub use weir_core::limit::share::Silence;

pub use crate::share::AskedTurns;
pub use keeper::{MEMBER_FOR, PressureKeeper};

/// How often a turn is taken that nobody has asked for.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// After so long without an answer of the log, people are told.
pub const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// How pressure stands in this process, for HTTP, metrics and people, and where lanes ask for turns; clones are of the same task.
#[derive(Debug, Clone, Default)]
pub struct PressureStatus(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    seen: ArcSwap<Option<PressureSeen>>,
    unsynced: ArcSwap<Option<Silence>>,
    turns: AskedTurns,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PressureSeen {
    /// Users active in the window, estimated.
    pub active_users: u64,
    /// Those of them who came here in the window by intents that pressure does not apply to.
    pub exempt_users: u64,
    pub max_active_users: u64,
    pub window_minutes: u8,
    /// Whether only users come in that are active.
    pub throttling: bool,
    /// Instances that share the maximum, this one included.
    pub members: u64,
    /// Users who may still become active here until the next turn.
    pub places: u64,
    /// When the log answered last, by the monotonic clock.
    pub synced_at: Duration,
}

impl PressureStatus {
    /// What is known; `None` where the policy has no pressure, or the window has not been read yet.
    #[must_use]
    pub fn seen(&self) -> Arc<Option<PressureSeen>> {
        self.0.seen.load_full()
    }

    /// Since when the log does not answer, also where the window has not been read yet; `None`: it does, or need not.
    #[must_use]
    pub fn unsynced(&self) -> Arc<Option<Silence>> {
        self.0.unsynced.load_full()
    }

    /// Where a turn is asked for that is not to wait for the next second.
    #[must_use]
    pub fn turns(&self) -> AskedTurns {
        self.0.turns.clone()
    }

    pub fn set(&self, seen: Option<PressureSeen>, unsynced: Option<Silence>) {
        self.0.seen.store(Arc::new(seen));
        self.0.unsynced.store(Arc::new(unsynced));
    }
}
