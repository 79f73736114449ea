//! Turns that are asked for, beside those that a task takes anyway.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// Where a task is asked for turns; clones ask the same one.
#[derive(Debug, Clone, Default)]
pub struct AskedTurns(Arc<TurnCounts>);

/// Whoever waits for a count is woken in the order of asking, so that the simulation of a seed stays the same.
#[derive(Debug, Default)]
struct TurnCounts {
    asked: AtomicU64,
    taken: AtomicU64,
    asked_changed: Notify,
    taken_changed: Notify,
}

#[derive(Debug)]
pub(crate) struct AskedTurn {
    /// How many had been asked for then, this one included.
    number: u64,
    turns: AskedTurns,
}

impl AskedTurns {
    /// Asks for a turn that begins after this, at once.
    pub(crate) fn ask(&self) -> AskedTurn {
        let number = self.0.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.0.asked_changed.notify_waiters();
        AskedTurn { number, turns: self.clone() }
    }

    /// How many have been asked for: a turn that begins after this is all of these.
    pub(crate) fn count(&self) -> u64 {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Done when more than so many are asked for.
    pub(crate) async fn more_than(&self, count: u64) {
        until(&self.0.asked_changed, || self.count() > count).await;
    }

    /// So many have been taken: all that was to be told and read until then is, unless another process has overtaken this one.
    pub(crate) fn taken(&self, count: u64) {
        self.0.taken.fetch_max(count, Ordering::AcqRel);
        self.0.taken_changed.notify_waiters();
    }

    /// No more turns are taken: nobody is to wait for one.
    pub(crate) fn end(&self) {
        self.taken(u64::MAX);
    }

    pub(crate) fn count_taken(&self) -> u64 {
        self.0.taken.load(Ordering::Acquire)
    }
}

impl AskedTurn {
    /// Done once it is taken, or cannot be. Safe to drop half way, and to call again.
    pub(crate) async fn taken(&self) {
        let Self { number, turns } = self;
        until(&turns.0.taken_changed, || turns.count_taken() >= *number).await;
    }
}

/// Waits until something is so, of which each change is told here.
async fn until(changed: &Notify, so: impl Fn() -> bool) {
    loop {
        // It hears of each change from here on.
        let change = changed.notified();
        if so() {
            return;
        }
        change.await;
    }
}
