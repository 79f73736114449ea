//! The routes of one batch: which intents have permits.
//!
//! An intent that its route cannot take now waits or is suppressed, as the route says. One that would expire before its
//! turn, even at the best rate, has expired already, and one that its service would answer too late by the measured rate is
//! suppressed: nothing asks Redis for them. A rate that is not known suppresses nothing. One that has waited for
//! [`crate::limit::route::MAX_WAIT_MS`] is suppressed, whatever its route takes: Kafka would delete it.
//!
//! A delivery that is tried again needs a permit, too. Where an intent would be suppressed, it is undelivered.

use std::sync::Arc;

use super::{
    Decider, GateDenial, Ground, Settlement, Takes,
    fate::Fates,
    intents::{Intents, paced},
    limits::{Ending, Limit, is_worth_it},
};
use crate::{
    basis::time::Time,
    batch::record::Records,
    intent::class::ClassNames,
    limit::route::{
        Route, WhenFull, is_overdue,
        routes::{Pool, RouteKnown, Taken},
    },
    policy::{Action, GateReason, Mode, Policy, SuppressReason},
};

/// The shortest time after which a suppressed intent may be tried again, in milliseconds: how often permits are granted.
const AGAIN_MS: i64 = 1_000;

/// Its route takes no more now, and the intent is not to wait for that.
const NO_CAPACITY: GateReason = GateReason::Limit(SuppressReason::Capacity, Action::Suppress);

/// A record's route, by its place in the policy, and the pool that it may take permits of.
#[derive(Debug, Clone, Copy)]
struct Slot {
    route: usize,
    pool: Pool,
    gets: Gets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gets {
    Permit,
    /// None but one that comes back: something else denies it, or there are none for it.
    WhatComesBack,
    /// It has waited for too long, or others queue before it.
    Nothing,
}

/// The capacity of one batch. Permits that were taken and not spent go back when it is dropped.
pub(super) struct BatchCapacity {
    /// Of each record; `None`: it has no route.
    slots: Vec<Option<Slot>>,
    /// By the route's place in the policy.
    taken: Vec<Taken>,
    /// Those of each route that no record uses.
    back: Vec<BackPermits>,
    is_short: bool,
}

#[derive(Debug, Clone, Copy)]
struct BackPermits {
    all: u64,
    /// How many of them a record may have that may have none of the reserved share, at most.
    general: u64,
}

impl BackPermits {
    fn left(self, pool: Pool) -> u64 {
        match pool {
            Pool::General => self.general.min(self.all),
            Pool::Reserved => self.all,
        }
    }
}

/// The intents of one route in a batch: their places, those of the reserved share apart.
#[derive(Default)]
struct RouteIntents {
    reserved: Vec<usize>,
    general: Vec<usize>,
}

/// A route that has no permit for some intents of a batch.
#[derive(Clone, Copy)]
struct FullRoute<'r> {
    route: &'r Route,
    /// Its place in the policy.
    place: usize,
    known: Option<&'r RouteKnown>,
}

impl Limit for BatchCapacity {
    fn take<R: Records>(decider: &Decider, intents: &mut Intents<'_, R>, ground: &mut Ground<'_>) -> Option<Self> {
        let (policy, passed) = (Arc::clone(intents.eval.policy()), ground.passed);
        // Nothing waits for a route in shadow mode.
        let is_limited = !policy.routes.is_empty() && policy.mode == Mode::Enforce;
        let routes = decider.held.routes.as_ref().filter(|_| is_limited)?;
        let mut taken: Vec<Taken> = policy.routes.iter().map(|route| Taken::none(routes.state(&route.name))).collect();
        let (looks, waited) = (matches!(ground.takes, Takes::Nothing), brought(&mut ground.takes, &mut taken));
        let queues = |(place, taken): (usize, &Taken)| taken.state().is_queueing() && waited != Some(place);
        let queues: Vec<bool> = taken.iter().enumerate().map(queues).collect();
        let (mut slots, mut is_short) = (vec![None; intents.decoded.len()], false);
        let mut wanting = wanting(intents, &policy, (&mut slots, &queues));
        for (place, (wanting, taken)) in wanting.iter_mut().zip(&mut taken).enumerate() {
            let (route, queues) = (&policy.routes[place], queues[place]);
            let known = taken.state().known_by(route);
            let full = FullRoute { route, place, known: known.as_deref() };
            let waits = waited == Some(place) && route.when_full == WhenFull::Wait;
            if waits {
                for record in wanting.take_overdue(intents) {
                    intents.denials.deny(record, full.suppressed(intents.at(record)));
                }
                // Those, too, that something else denies: what comes back is not for them.
                for (record, slot) in slots.iter_mut().enumerate() {
                    if let Some(slot) = slot.as_mut().filter(|slot| slot.route == place)
                        && is_overdue(intents.records.get(record).timestamp, intents.at(record))
                    {
                        slot.gets = Gets::Nothing;
                    }
                }
            }
            let permits = wanting.permits(queues, |pool, most| {
                if looks {
                    return taken.state().left(pool, passed).min(most);
                }
                // Beside those that were brought along.
                taken.take(pool, most.saturating_sub(taken.of(pool)), passed);
                taken.of(pool).min(most)
            });
            is_short |= waits && permits < wanting.all().count();
            for record in wanting.all().take(permits) {
                slots[record] = slots[record].map(|slot| Slot { gets: Gets::Permit, ..slot });
            }
            for record in wanting.all().skip(permits) {
                if let Some(denial) = full.denial(intents, record) {
                    intents.denials.deny(record, denial);
                }
            }
        }
        Some(Self { slots, taken, back: Vec::new(), is_short })
    }

    fn comes_back(&mut self, fates: &Fates) -> bool {
        let used = self.used_by(|index| fates.get(index).uses_permit());
        let back = self.taken.iter().zip(used).map(|(taken, (used, used_general))| BackPermits {
            all: taken.permits().saturating_sub(used),
            general: taken.of(Pool::General).saturating_sub(used_general),
        });
        self.back = back.collect();
        let mut back = self.back.iter().zip(&self.taken);
        back.any(|(back, taken)| is_worth_it(back.left(Pool::Reserved), taken.permits()))
    }

    /// It may have a permit already: that came back, too.
    fn lacks(&self, record: usize) -> bool {
        let slot = self.slots[record];
        slot.is_some_and(|slot| slot.gets == Gets::Nothing || self.back[slot.route].left(slot.pool) == 0)
    }

    fn give(&mut self, record: usize) {
        if let Some(slot) = &mut self.slots[record] {
            let back = &mut self.back[slot.route];
            back.all -= 1;
            back.general -= u64::from(slot.pool == Pool::General);
            slot.gets = Gets::Permit;
        }
    }

    /// The permits of approved intents are spent when these are committed.
    fn settle(&mut self, ending: &Ending<'_>, left: &mut Settlement) {
        left.permits = self.used(|record| ending.fates.get(record).uses_permit());
    }

    /// Whether an intent that came from its route's topic would wait there again.
    fn is_short(&self) -> bool {
        self.is_short
    }

    fn permits(&mut self) -> Vec<Taken> {
        self.used(|_| true)
    }
}

impl BatchCapacity {
    /// How many permits of each route these records have, and how many of them are of records that may have none of the reserved share.
    fn used_by(&self, is_used: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
        let mut used = vec![(0, 0); self.taken.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(Slot { route, pool, gets: Gets::Permit }) = *slot
                && is_used(index)
            {
                let (all, general) = &mut used[route];
                *all += 1;
                *general += u64::from(pool == Pool::General);
            }
        }
        used
    }

    /// Takes the permits of these records out. The others go back.
    fn used(&mut self, is_used: impl Fn(usize) -> bool) -> Vec<Taken> {
        let used = self.used_by(is_used);
        self.slots.clear();
        let mut taken = std::mem::take(&mut self.taken);
        for (taken, (used, general)) in taken.iter_mut().zip(used) {
            taken.keep(used - general, general);
        }
        taken.retain(|taken| taken.permits() > 0);
        taken
    }
}

impl RouteIntents {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.reserved.iter().chain(&self.general).copied()
    }

    /// Takes out those that have waited for too long.
    fn take_overdue<R: Records>(&mut self, intents: &Intents<'_, R>) -> Vec<usize> {
        let is_overdue = |record: &mut usize| is_overdue(intents.records.get(*record).timestamp, intents.at(*record));
        let mut overdue: Vec<usize> = self.reserved.extract_if(.., is_overdue).collect();
        overdue.extend(self.general.extract_if(.., is_overdue));
        overdue
    }

    /// How many of [all](Self::all) have a permit: first those of the reserved share, then the others, unless they queue. Only records of
    /// that share get its permits. `get`: how many there are of a pool, of at most so many.
    fn permits(&self, queues: bool, mut get: impl FnMut(Pool, u64) -> u64) -> usize {
        let count = |records: &[usize]| u64::try_from(records.len()).unwrap_or(u64::MAX);
        let (of_share, others) = (count(&self.reserved), if queues { 0 } else { count(&self.general) });
        let reserved = get(Pool::Reserved, of_share);
        let general = get(Pool::General, of_share - reserved + others);
        usize::try_from(reserved + general).unwrap_or(usize::MAX)
    }
}

/// Takes over the permits that a lane has brought along for its route; the place of that in the policy.
fn brought(takes: &mut Takes, taken: &mut [Taken]) -> Option<usize> {
    let Takes::WithPermits(permits) = takes else { return None };
    let place = taken.iter().position(|route| Arc::ptr_eq(route.state(), permits.state()))?;
    std::mem::swap(&mut taken[place], permits);
    Some(place)
}

/// The records of each route that nothing before denies, by the route's place in the policy; `queues`: those behind others.
fn wanting<R: Records>(
    intents: &mut Intents<'_, R>,
    policy: &Policy,
    (slots, queues): (&mut [Option<Slot>], &[bool]),
) -> Vec<RouteIntents> {
    let mut wanting: Vec<RouteIntents> = policy.routes.iter().map(|_| RouteIntents::default()).collect();
    let mut routes = vec![None; intents.classes.number_all(intents.decoded)];
    for (record, decoded) in intents.decoded.iter().enumerate() {
        let Some(intent) = paced(decoded) else { continue };
        let class = intents.classes.number(record, intent) as usize;
        let route = *routes[class].get_or_insert_with(|| route_of(policy, &intent.class()));
        let Some((route, pool)) = route else { continue };
        let gets = if queues[route] { Gets::Nothing } else { Gets::WhatComesBack };
        slots[record] = Some(Slot { route, pool, gets });
        if intents.denial(record).is_some() {
            continue;
        }
        match pool {
            Pool::General => wanting[route].general.push(record),
            Pool::Reserved => wanting[route].reserved.push(record),
        }
    }
    wanting
}

fn route_of(policy: &Policy, class: &ClassNames<'_>) -> Option<(usize, Pool)> {
    let place = policy.route_of(class)?;
    let pool = if policy.routes[place].reserves(class) { Pool::Reserved } else { Pool::General };
    Some((place, pool))
}

fn bounded(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).min(MOST_WAIT_MS)
}

impl FullRoute<'_> {
    /// Why an intent without a permit is denied, and when it may be approved.
    fn denial<R: Records>(&self, intents: &Intents<'_, R>, record: usize) -> Option<GateDenial> {
        let (Self { route, place, known }, now) = (*self, intents.at(record));
        let intent = paced(&intents.decoded[record])?;
        if route.when_full == WhenFull::Suppress {
            return Some(self.suppressed(now));
        }
        let (facts, hash) = (intents.facts(record, intent), route.fair_by.hash_of(intent));
        // An intent that is denied now is not tried again, so a guess is no reason.
        let least_ms = known.and_then(|known| known.least_wait_ms(hash)).map(bounded);
        if least_ms.is_some_and(|least_ms| intents.eval.expired_at(&facts, now.plus(least_ms))) {
            return Some((GateReason::Expired, None));
        }
        let turn_ms = known.and_then(|known| known.measured_wait_ms(hash)).map(bounded);
        let most_ms = known.and_then(|known| known.answers_within_ms(route.network_ms));
        let (reason, wait_ms) = match turn_ms.zip(most_ms) {
            Some((turn_ms, most_ms)) if turn_ms > most_ms => (NO_CAPACITY, turn_ms),
            Some(_) | None => (GateReason::RouteFull(u32::try_from(place).unwrap_or(u32::MAX)), self.expected_ms()),
        };
        Some((reason, Some(now.plus(wait_ms))))
    }

    /// That an intent is suppressed now, and may be tried again.
    fn suppressed(&self, now: Time) -> GateDenial {
        (NO_CAPACITY, Some(now.plus(self.expected_ms().max(AGAIN_MS))))
    }

    fn expected_ms(&self) -> i64 {
        bounded(self.known.map_or(0, RouteKnown::expected_wait_ms))
    }
}

/// A bound of the expected wait, in milliseconds: a year.
const MOST_WAIT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
