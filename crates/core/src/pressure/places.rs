//! The places of one process: how many users may still become active here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Places, taken by batches and added by the task that shares them with other instances.
///
/// Invariant: a place counts as held from when it is added until its user is noted as active, or it is withdrawn. So users whom the
/// estimate has, and places held, together are never fewer than the users who may have become active.
#[derive(Debug, Default)]
pub struct Places {
    /// Not taken.
    left: AtomicU64,
    /// Taken or not.
    held: AtomicU64,
}

impl Places {
    /// Takes one; `false`: none is left.
    pub fn take(&self) -> bool {
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
    }

    /// Places that were taken and not used.
    pub fn put_back(&self, places: u64) {
        self.left.fetch_add(places, Ordering::AcqRel);
    }

    /// The users of places that were taken are noted as active now.
    pub fn used(&self, places: u64) {
        self.held.fetch_sub(places, Ordering::AcqRel);
    }

    /// How many are left to be taken.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// How many are held, taken or not.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// So many more.
    pub fn add(&self, places: u64) {
        self.held.fetch_add(places, Ordering::AcqRel);
        self.left.fetch_add(places, Ordering::AcqRel);
    }

    /// Gives up what is left beyond this many held.
    pub fn withdraw_above(&self, most: u64) {
        let surplus = self.held().saturating_sub(most);
        let mut taken = 0;
        let withdraw = |left: u64| {
            taken = left.min(surplus);
            Some(left - taken)
        };
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, withdraw).is_ok() {
            self.held.fetch_sub(taken, Ordering::AcqRel);
        }
    }
}
