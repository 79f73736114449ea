//! Users who became active here and whom the log does not know of yet.

use std::collections::BTreeMap;

use weir_core::limit::pressure::{activity::Minute, activity_log::ActiveIn};

/// These users, by minute.
#[derive(Debug, Default)]
pub(super) struct Untold {
    by_minute: BTreeMap<Minute, ActiveIn>,
    users: usize,
}

impl Untold {
    pub(super) fn add(&mut self, active: ActiveIn) {
        self.users += active.users.len();
        let none = || ActiveIn { minute: active.minute, new: 0, users: Vec::new() };
        let found = self.by_minute.entry(active.minute).or_insert_with(none);
        found.new += active.new;
        if found.users.is_empty() {
            found.users = active.users;
        } else {
            found.users.extend(active.users);
        }
    }

    /// Takes so many, or all, the oldest first.
    pub(super) fn take(&mut self, most: usize) -> Vec<ActiveIn> {
        let (mut taken, mut left) = (Vec::new(), most);
        while left > 0
            && let Some(mut first) = self.by_minute.first_entry()
        {
            let found = first.get_mut();
            if found.users.len() <= left {
                left -= found.users.len();
                taken.push(first.remove());
                continue;
            }
            let users = found.users.split_off(found.users.len() - left);
            // Who of them was not active before is not known: as many as can be.
            let new = found.new.min(count(left));
            found.new -= new;
            left = 0;
            taken.push(ActiveIn { minute: found.minute, new, users });
        }
        self.users -= most - left;
        taken
    }

    /// Drops the oldest beyond so many; gives how many that were.
    pub(super) fn keep(&mut self, most: usize) -> u64 {
        let surplus = self.users.saturating_sub(most);
        drop(self.take(surplus));
        count(surplus)
    }

    /// How many of them were not active before.
    pub(super) fn new_users(&self) -> u64 {
        self.by_minute.values().map(|active| active.new).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users == 0
    }
}

fn count(users: usize) -> u64 {
    u64::try_from(users).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use weir_core::limit::pressure::activity::ActivityHash;

    use super::*;

    fn active(minute: i64, new: u64, users: std::ops::Range<u64>) -> ActiveIn {
        ActiveIn { minute: Minute(minute), new, users: users.map(ActivityHash).collect() }
    }

    #[test]
    fn the_oldest_come_first_and_each_once() {
        let mut untold = Untold::default();
        untold.add(active(2, 5, 10..20));
        untold.add(active(1, 3, 0..4));
        untold.add(active(2, 1, 20..22));
        assert_eq!(untold.take(7), [active(1, 3, 0..4), active(2, 3, 19..22)]);
        assert_eq!(untold.new_users(), 3);
        assert!(!untold.is_empty());
        assert_eq!(untold.take(100), [active(2, 3, 10..19)]);
        assert!(untold.is_empty());
        assert_eq!(untold.take(100), []);
    }

    #[test]
    fn of_too_many_the_oldest_are_dropped() {
        let mut untold = Untold::default();
        untold.add(active(1, 10, 0..10));
        untold.add(active(2, 10, 10..20));
        assert_eq!(untold.keep(20), 0);
        assert_eq!(untold.keep(8), 12);
        assert_eq!(untold.take(100), [active(2, 8, 10..18)]);
    }
}
