//! All budgets that are known, found by their keys, by when they were last claimed, and by when they are looked at again.

use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasher as _,
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{claim::Key, moment::Moment, slot::BudgetSlot};
use crate::limit::budget::BudgetId;

const KNOWN: &str = "only the numbers of known budgets are kept";

#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    numbers: HashMap<Arc<Key>, u32, RandomState>,
    /// The hash of a budget, whatever its limit and period -> the one of these that follows the others: all of them are superseded.
    newest: HashMap<u64, u32, RandomState>,
    slots: Vec<Option<BudgetSlot>>,
    free: Vec<u32>,
    /// By the last claim.
    by_claim: BTreeSet<(u64, u32)>,
    by_wake: BTreeSet<(Moment, u32)>,
    /// To be looked at now; some may be forgotten since.
    dirty: Vec<u32>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// Adds a budget that is not known; its number. What is held of it by another limit or period goes back soon.
    pub(super) fn add(&mut self, key: Key, best_effort: bool) -> u32 {
        let key = Arc::new(key);
        let slot = Some(BudgetSlot::new(Arc::clone(&key), best_effort));
        let number = if let Some(number) = self.free.pop() {
            self.slots[number as usize] = slot;
            number
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("there are fewer budgets than 2^32")
        };
        self.follow(number, &key.id);
        self.numbers.insert(key, number);
        self.by_claim.insert((0, number));
        number
    }

    /// This one follows the other limits and periods of its budget.
    fn follow(&mut self, number: u32, budget: &BudgetId) {
        let hash = self.hash_of(budget);
        let before = self.newest.insert(hash, number);
        if let Some(before) = before.filter(|before| self.is_of(*before, budget)) {
            self.change(before).supersede();
        }
    }

    fn hash_of(&self, budget: &BudgetId) -> u64 {
        self.newest.hasher().hash_one(budget)
    }

    pub(super) fn get(&self, number: u32) -> &BudgetSlot {
        self.slots[number as usize].as_ref().expect(KNOWN)
    }

    /// To change it: it is looked at when something is next due.
    pub(super) fn change(&mut self, number: u32) -> &mut BudgetSlot {
        let slot = self.slots[number as usize].as_mut().expect(KNOWN);
        if !slot.is_dirty {
            slot.is_dirty = true;
            self.dirty.push(number);
        }
        slot
    }

    /// Whether this number is one of this budget yet.
    pub(super) fn is_of(&self, number: u32, budget: &BudgetId) -> bool {
        self.slots[number as usize].as_ref().is_some_and(|slot| slot.key.id == *budget)
    }

    /// Notes that a claim uses it. One that another has followed may come again: for a batch that was judged before, or a policy of before.
    ///
    /// # Panics
    /// Where the claim has used it already: it could take the same tokens twice.
    pub(super) fn claimed(&mut self, number: u32, claim: u64) {
        let slot = self.get(number);
        let last = slot.last_claim;
        assert_ne!(last, claim, "a claim uses each budget once");
        if slot.is_superseded {
            let key = Arc::clone(&slot.key);
            self.follow(number, &key.id);
        }
        self.by_claim.remove(&(last, number));
        self.by_claim.insert((claim, number));
    }

    /// Those to look at now: the changed ones, and those whose time has come.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<u32> {
        while let Some(&(at, number)) = self.by_wake.first()
            && at <= now
        {
            self.by_wake.pop_first();
            let slot = self.change(number);
            slot.wake_at = Moment::NEVER;
        }
        let mut due = std::mem::take(&mut self.dirty);
        due.sort_unstable();
        due.dedup();
        due.retain(|number| self.slots[*number as usize].as_ref().is_some_and(|slot| slot.is_dirty));
        due
    }

    pub(super) fn looked_at(&mut self, number: u32, next: Moment) {
        let slot = self.slots[number as usize].as_mut().expect(KNOWN);
        slot.is_dirty = false;
        let last = std::mem::replace(&mut slot.wake_at, next);
        if last != next {
            self.by_wake.remove(&(last, number));
            if next != Moment::NEVER {
                self.by_wake.insert((next, number));
            }
        }
    }

    pub(super) fn next_look(&self) -> Moment {
        self.by_wake.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// The least recently claimed one for which no ticket waits.
    pub(super) fn least_recent(&self) -> Option<u32> {
        self.by_claim.iter().map(|(_, number)| *number).find(|number| self.get(*number).waiting.is_empty())
    }

    pub(super) fn remove(&mut self, number: u32) -> BudgetSlot {
        let slot = self.slots[number as usize].take().expect(KNOWN);
        self.numbers.remove(&slot.key);
        let hash = self.hash_of(&slot.key.id);
        if self.newest.get(&hash) == Some(&number) {
            self.newest.remove(&hash);
        }
        self.by_claim.remove(&(slot.last_claim, number));
        self.by_wake.remove(&(slot.wake_at, number));
        self.free.push(number);
        slot
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BudgetSlot> {
        self.slots.iter().flatten()
    }

    /// The numbers of all of them.
    pub(super) fn all(&self) -> Vec<u32> {
        self.numbers.values().copied().collect()
    }
}
