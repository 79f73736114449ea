//! All budgets that are known, found by their ids, and by when they are looked at again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{CallNumber, holding::Holding, moment::Moment};
use crate::limit::budget::BudgetId;

const KNOWN: &str = "only the numbers of known budgets are kept";

#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    numbers: HashMap<Arc<BudgetId>, u32, RandomState>,
    holdings: Vec<Option<Holding>>,
    free: Vec<u32>,
    by_wake: BTreeSet<(Moment, u32)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a budget, of which nothing is held where it was not known.
    pub(super) fn number(&mut self, id: &BudgetId) -> u32 {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        let id = Arc::new(id.clone());
        let holding = Some(Holding::new(Arc::clone(&id)));
        let number = if let Some(number) = self.free.pop() {
            self.holdings[number as usize] = holding;
            number
        } else {
            self.holdings.push(holding);
            u32::try_from(self.holdings.len() - 1).expect("there are fewer budgets than 2^32")
        };
        self.numbers.insert(id, number);
        number
    }

    pub(super) fn get(&self, number: u32) -> &Holding {
        self.holdings[number as usize].as_ref().expect(KNOWN)
    }

    /// To change it: it is looked at when something is next due.
    pub(super) fn change(&mut self, number: u32) -> &mut Holding {
        self.wakes(number, Moment::START)
    }

    /// The one whose turn this call was, to take its answer.
    pub(super) fn asked(&mut self, CallNumber { budget, turn }: CallNumber) -> Option<&mut Holding> {
        let is_asked = self.holdings.get(budget as usize)?.as_ref()?.is_asked(turn);
        if is_asked { Some(self.change(budget)) } else { None }
    }

    /// It is looked at then.
    pub(super) fn wakes(&mut self, number: u32, at: Moment) -> &mut Holding {
        let holding = self.holdings[number as usize].as_mut().expect(KNOWN);
        if holding.wake_at != at {
            self.by_wake.remove(&(holding.wake_at, number));
            holding.wake_at = at;
            if at != Moment::NEVER {
                self.by_wake.insert((at, number));
            }
        }
        holding
    }

    /// Those to look at now: the changed ones, and those whose time has come. Those behind this number come first.
    pub(super) fn due(&self, now: Moment, number: u32) -> Vec<u32> {
        let due = self.by_wake.iter().take_while(|(at, _)| *at <= now);
        let mut due: Vec<u32> = due.map(|(_, number)| *number).collect();
        due.sort_unstable();
        let behind = due.partition_point(|other| *other <= number);
        due.rotate_left(behind);
        due
    }

    /// When to look at another one.
    pub(super) fn next_look(&self, now: Moment) -> Moment {
        self.by_wake.range((now, u32::MAX)..).next().map_or(Moment::NEVER, |(at, _)| *at)
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.wakes(number, Moment::NEVER);
        if let Some(holding) = self.holdings[number as usize].take() {
            self.numbers.remove(&holding.id);
            self.free.push(number);
        }
    }

    /// Each with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Holding)> {
        (0..).zip(&self.holdings).filter_map(|(number, holding)| Some((number, holding.as_ref()?)))
    }
}
