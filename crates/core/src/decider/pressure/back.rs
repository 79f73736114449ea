//! Places that came back, because no intent of their users is approved, and are given to other users of the batch.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;

use super::BatchPressure;
use crate::{activity::ActivityHash, decider::fate::Fates, pressure::ActiveBy};

/// The places that came back, by the users who took them.
#[derive(Debug, Default)]
pub(in crate::decider) struct BackPlaces {
    users: HashSet<ActivityHash, RandomState>,
    /// The same users, in the order of their intents. It may still hold users whose place was given away later.
    order: VecDeque<ActivityHash>,
}

impl BackPlaces {
    pub(in crate::decider) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Takes the first one.
    fn take(&mut self) -> Option<ActivityHash> {
        while let Some(user) = self.order.pop_front() {
            if self.users.remove(&user) {
                return Some(user);
            }
        }
        None
    }
}

impl BatchPressure {
    /// The places of users without an approved intent.
    pub(in crate::decider) fn back(&self, fates: Fates<'_>) -> BackPlaces {
        if self.placed.is_empty() {
            return BackPlaces::default();
        }
        let mut users = self.placed.clone();
        for (index, user) in self.users.iter().enumerate() {
            let Some(user) = user else { continue };
            if users.contains(user) && fates.get(index).is_approved() {
                users.remove(user);
            }
        }
        let mut rest = users.clone();
        let order = self.users.iter().flatten().copied().filter(|user| rest.remove(user)).collect();
        BackPlaces { users, order }
    }

    /// Whether the user of a record needs a place, and none of these came back.
    pub(in crate::decider) fn lacks_place(&self, record: usize, back: &BackPlaces) -> bool {
        self.denies(record) && back.is_empty()
    }

    /// Gives the user of a record a place that came back, where one is needed; its own, where that is among these.
    pub(in crate::decider) fn give(&mut self, record: usize, back: &mut BackPlaces) {
        let Some(user) = self.users[record] else { return };
        if back.users.remove(&user) || !self.denies(record) {
            return;
        }
        if let Some(other) = back.take() {
            self.placed.remove(&other);
            self.placed.insert(user);
            self.moved.extend([(other, false), (user, true)]);
        }
    }

    /// Whether the user of a record has a place; `None`: none has come or gone.
    pub(super) fn has_moved_place(&self, record: usize) -> Option<bool> {
        let has_place = *self.moved.get(&self.users[record]?)?;
        // Intents that the rule does not apply to need none.
        Some(has_place || self.by[record] == ActiveBy::ExemptIntent)
    }
}
