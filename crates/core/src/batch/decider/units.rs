//! What a batch does with a limit that gives one unit per intent, such as the permits of routes. If an intent is not approved, another intent
//! of the same rule gets its unit.

use super::{
    Ground, Settlement, Takes,
    fate::Fates,
    intents::{Intents, paced},
    limits::{Ending, Limit, is_worth_it},
};
use crate::{
    batch::record::Records,
    intent::Intent,
    limit::share::{Pool, Taken, UnitRule, Waits},
};

/// A record's rule, by its place, and the pool that it may take units of.
#[derive(Debug, Clone, Copy)]
struct Slot {
    rule: usize,
    pool: Pool,
    gets: Gets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gets {
    Unit,
    /// None but one that comes back: something else denies it, or there are none for it.
    WhatComesBack,
    /// It has waited for too long, or others queue before it.
    Nothing,
}

/// The units that a batch holds of one limit. Dropping it returns the units that are not spent.
pub(super) struct BatchUnits {
    /// Of each record; `None`: it has no rule.
    slots: Vec<Option<Slot>>,
    /// By the rule's place.
    taken: Vec<Taken>,
    /// Those of each rule that no record uses.
    back: Vec<BackUnits>,
    is_short: bool,
}

#[derive(Debug, Clone, Copy)]
struct BackUnits {
    all: u64,
    /// How many of them a record may have that may have none of the reserved share, at most.
    general: u64,
}

impl BackUnits {
    fn left(self, pool: Pool) -> u64 {
        match pool {
            Pool::General => self.general.min(self.all),
            Pool::Reserved => self.all,
        }
    }
}

/// The intents of one rule in a batch that nothing before denies: their places, those of the reserved share apart.
#[derive(Default)]
struct Wanting {
    reserved: Vec<usize>,
    general: Vec<usize>,
}

impl BatchUnits {
    /// Takes units for the intents that nothing has denied yet, and denies those that get none. `rules`: each with the units that the batch
    /// holds already; `rule_of`: the place of a record's rule among them, and the pool that its intent may use.
    pub(super) fn take<'b, R: Records>(
        rules: Vec<(Taken, impl UnitRule)>,
        intents: &mut Intents<'b, R>,
        ground: &Ground<'_>,
        rule_of: impl FnMut(&mut Intents<'b, R>, usize, &'b Intent<'b>) -> Option<(usize, Pool)>,
    ) -> Self {
        let (looks, passed) = (matches!(ground.takes, Takes::Nothing), ground.passed);
        let (mut slots, mut is_short): (Vec<Option<Slot>>, _) = (vec![None; intents.decoded.len()], false);
        let wanting = wanting(&rules, intents, &mut slots, rule_of);
        let mut all_taken = Vec::with_capacity(rules.len());
        for ((mut taken, rule), wanting) in rules.into_iter().zip(wanting) {
            let units = wanting.units(rule.waits() == Waits::Others, |pool, most| {
                if looks {
                    return taken.left(pool, passed).min(most);
                }
                // The batch may hold some already.
                taken.take(pool, most.saturating_sub(taken.units_of(pool)), passed);
                taken.units_of(pool).min(most)
            });
            is_short |= rule.waits() == Waits::These && units < wanting.all().count();
            for record in wanting.all().take(units) {
                slots[record] = slots[record].map(|slot| Slot { gets: Gets::Unit, ..slot });
            }
            for record in wanting.all().skip(units) {
                let Some(intent) = paced(&intents.decoded[record]) else { continue };
                let is_expired = |then| intents.eval.expired_at(&intents.facts(record, intent), then);
                let denial = rule.denial(intent, intents.at(record), &is_expired);
                intents.denials.deny(record, denial);
            }
            all_taken.push(taken);
        }
        Self { slots, taken: all_taken, back: Vec::new(), is_short }
    }

    /// How many units of each rule these records have, and how many of them are of records that may have none of the reserved share.
    fn used_by(&self, is_used: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
        let mut used = vec![(0, 0); self.taken.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(Slot { rule, pool, gets: Gets::Unit }) = *slot
                && is_used(index)
            {
                let (all, general) = &mut used[rule];
                *all += 1;
                *general += u64::from(pool == Pool::General);
            }
        }
        used
    }

    /// Takes the units of these records out. The others go back.
    fn used(&mut self, is_used: impl Fn(usize) -> bool) -> Vec<Taken> {
        let used = self.used_by(is_used);
        self.slots.clear();
        let mut taken = std::mem::take(&mut self.taken);
        for (taken, (used, general)) in taken.iter_mut().zip(used) {
            taken.keep(used - general, general);
        }
        taken.retain(|taken| taken.units() > 0);
        taken
    }
}

impl Limit for BatchUnits {
    fn comes_back(&mut self, fates: &Fates) -> bool {
        let used = self.used_by(|index| fates.get(index).uses_unit());
        let back = self.taken.iter().zip(used).map(|(taken, (used, used_general))| BackUnits {
            all: taken.units().saturating_sub(used),
            general: taken.units_of(Pool::General).saturating_sub(used_general),
        });
        self.back = back.collect();
        let mut back = self.back.iter().zip(&self.taken);
        back.any(|(back, taken)| is_worth_it(back.left(Pool::Reserved), taken.units()))
    }

    /// It may have a unit already: that came back, too.
    fn lacks(&self, record: usize) -> bool {
        let slot = self.slots[record];
        slot.is_some_and(|slot| slot.gets == Gets::Nothing || self.back[slot.rule].left(slot.pool) == 0)
    }

    fn give(&mut self, record: usize) {
        if let Some(slot) = &mut self.slots[record] {
            let back = &mut self.back[slot.rule];
            back.all -= 1;
            back.general -= u64::from(slot.pool == Pool::General);
            slot.gets = Gets::Unit;
        }
    }

    /// The units of approved intents are spent when these are committed.
    fn settle(&mut self, ending: &Ending<'_>, left: &mut Settlement) {
        left.units.extend(self.used(|record| ending.fates.get(record).uses_unit()));
    }

    /// Whether an intent that has waited would wait again.
    fn is_short(&self) -> bool {
        self.is_short
    }

    fn units(&mut self) -> Vec<Taken> {
        self.used(|_| true)
    }
}

impl Wanting {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.reserved.iter().chain(&self.general).copied()
    }

    /// How many of [all](Self::all) have a unit: first those of the reserved share, then the others, unless they queue. Only records of
    /// that share get its units. `get`: how many there are of a pool, of at most so many.
    fn units(&self, queues: bool, mut get: impl FnMut(Pool, u64) -> u64) -> usize {
        let count = |records: &[usize]| u64::try_from(records.len()).unwrap_or(u64::MAX);
        let (of_share, others) = (count(&self.reserved), if queues { 0 } else { count(&self.general) });
        let reserved = get(Pool::Reserved, of_share);
        let general = get(Pool::General, of_share - reserved + others);
        usize::try_from(reserved + general).unwrap_or(usize::MAX)
    }
}

/// The slots of records, and those of each rule that nothing before denies, by the rule's place.
fn wanting<'b, R: Records>(
    rules: &[(Taken, impl UnitRule)],
    intents: &mut Intents<'b, R>,
    slots: &mut [Option<Slot>],
    mut rule_of: impl FnMut(&mut Intents<'b, R>, usize, &'b Intent<'b>) -> Option<(usize, Pool)>,
) -> Vec<Wanting> {
    let mut wanting: Vec<Wanting> = rules.iter().map(|_| Wanting::default()).collect();
    for (record, decoded) in intents.decoded.iter().enumerate() {
        let Some(intent) = paced(decoded) else { continue };
        let Some((place, pool)) = rule_of(intents, record, intent) else { continue };
        let (rule, is_denied) = (&rules[place].1, intents.denial(record).is_some());
        let mut gets = if rule.waits() == Waits::Others { Gets::Nothing } else { Gets::WhatComesBack };
        if rule.waits() == Waits::These
            && let Some(denial) = rule.overdue(intents.records.get(record).timestamp, intents.at(record))
        {
            gets = Gets::Nothing;
            // What comes back is not for it, whatever denies it.
            if !is_denied {
                intents.denials.deny(record, denial);
            }
        } else if !is_denied {
            match pool {
                Pool::General => wanting[place].general.push(record),
                Pool::Reserved => wanting[place].reserved.push(record),
            }
        }
        slots[record] = Some(Slot { rule: place, pool, gets });
    }
    wanting
}
