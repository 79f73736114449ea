//! What came of the last turns, by when they began: one that is asked for follows another sooner than after a second.

use std::{collections::VecDeque, time::Duration};

/// What came of each turn, with when it began, by the monotonic clock.
#[derive(Default)]
pub(super) struct Lately<T>(VecDeque<(Duration, T)>);

impl<T> Lately<T> {
    /// Adds what came of a turn that began at this time; what is that long ago then is forgotten.
    pub(super) fn add(&mut self, what: T, at: Duration, kept_for: Duration) {
        self.0.retain(|(began_at, _)| *began_at + kept_for > at);
        self.0.push_back((at, what));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, what)| what)
    }

    /// Takes all but the last ones.
    pub(super) fn take_all_but(&mut self, last: usize) -> impl Iterator<Item = T> {
        self.0.drain(..self.0.len().saturating_sub(last)).map(|(_, what)| what)
    }
}
