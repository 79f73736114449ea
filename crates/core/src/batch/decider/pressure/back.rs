//! Places that came back, because no intent of their users is approved, and are given to other users of the batch.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;

use super::{BatchPressure, RecordUser};
use crate::{
    batch::decider::fate::Fates,
    limit::pressure::{ActiveBy, activity::ActivityHash},
};

/// The places that came back, by the users who took them.
#[derive(Debug, Default)]
pub(in crate::batch::decider) struct BackPlaces {
    users: HashSet<ActivityHash, RandomState>,
    /// The users in the order of their intents. A user stays here when the place is given away.
    order: VecDeque<ActivityHash>,
}

impl BackPlaces {
    pub(in crate::batch::decider) fn len(&self) -> u64 {
        u64::try_from(self.users.len()).unwrap_or(u64::MAX)
    }

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
    pub(in crate::batch::decider) fn placed(&self) -> u64 {
        u64::try_from(self.placed.len()).unwrap_or(u64::MAX)
    }

    /// The places of users of whom no intent is approved.
    pub(in crate::batch::decider) fn back(&self, fates: &Fates) -> BackPlaces {
        if self.placed.is_empty() {
            return BackPlaces::default();
        }
        let mut users = self.placed.clone();
        for RecordUser { record, user, .. } in &self.users {
            if users.contains(user) && fates.get(*record).is_approved() {
                users.remove(user);
            }
        }
        let mut rest = users.clone();
        let order = self.users.iter().map(|of| of.user).filter(|user| rest.remove(user)).collect();
        BackPlaces { users, order }
    }

    /// Whether the user of a record needs a place, and none of these came back.
    pub(in crate::batch::decider) fn lacks_place(&self, record: usize, back: &BackPlaces) -> bool {
        self.denies(record) && back.users.is_empty()
    }

    /// Gives the user of a record a place that came back, where one is needed; its own, where that is among these.
    pub(in crate::batch::decider) fn give(&mut self, record: usize, back: &mut BackPlaces) {
        let Some(user) = self.user(record).map(|of| of.user) else { return };
        if !back.users.remove(&user)
            && self.denies(record)
            && let Some(other) = back.take()
        {
            self.placed.remove(&other);
            self.placed.insert(user);
            self.moved.extend([(other, false), (user, true)]);
        }
    }

    /// The user of a record, where it is to be noted.
    fn user(&self, record: usize) -> Option<&RecordUser> {
        self.users.binary_search_by_key(&record, |of| of.record).ok().map(|place| &self.users[place])
    }

    /// Whether the user of a record has a place; `None`: none has come or gone.
    pub(super) fn has_moved_place(&self, record: usize) -> Option<bool> {
        let RecordUser { user, by, .. } = self.user(record)?;
        let has_place = *self.moved.get(user)?;
        // Intents that the rule does not apply to need none.
        Some(has_place || *by == ActiveBy::ExemptIntent)
    }
}
