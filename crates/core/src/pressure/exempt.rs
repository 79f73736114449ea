//! How many users came by intents that pressure does not apply to.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use crate::activity::Minute;

/// These users, by the minute in which they became active.
///
/// Whoever became active in the window is active, and at most once: a user who comes again has been away for a window. So the sum never
/// counts a user who is not active, nor one twice.
#[derive(Debug, Default)]
pub(super) struct Exempt(RwLock<BTreeMap<Minute, u64>>);

impl Exempt {
    /// So many more.
    pub(super) fn add(&self, users: u64, minute: Minute) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner).entry(minute).or_default() += users;
    }

    /// Forgets the minutes outside of a window.
    pub(super) fn sweep(&self, now: Minute, window: u8) {
        let is_in_window = |minute: &Minute| now.0.abs_diff(minute.0) < u64::from(window);
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|minute, _| is_in_window(minute));
    }

    /// How many there are since the window of the last sweep began.
    pub(super) fn users(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}
