//! The routes of one batch: which intents have permits.
//!
//! An intent that its route cannot take now waits or is suppressed, as the route says. One that would expire before its
//! turn, even at the best rate, has expired already, and one that its service would answer too late by the measured rate is
//! suppressed: nothing asks Redis for them. A rate that is not known suppresses nothing. One that has waited for
//! [`crate::limit::route::MAX_WAIT_MS`] is suppressed, whatever its route takes: Kafka would delete it.
//!
//! A delivery that is tried again needs a permit, too. Where an intent would be suppressed, it is undelivered.

mod back;

use std::{sync::Arc, time::Duration};

pub(super) use back::{BackPermits, Lacks};

use super::{
    GateDenial, Takes,
    intents::{Intents, paced},
    limits::BatchLimits,
};
use crate::{
    basis::time::Time,
    batch::record::Records,
    intent::class::ClassNames,
    limit::route::{
        Route, WhenFull, is_overdue,
        routes::{Pool, RouteKnown, Routes, Taken},
    },
    policy::{GateReason, Policy},
};

/// The shortest time after which a suppressed intent may be tried again, in milliseconds: how often permits are granted.
const AGAIN_MS: i64 = 1_000;

/// What a route makes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// It has none, or something else denies it.
    Unrouted,
    /// It has a permit of this route; it may have one of this pool.
    Permit(u16, Pool),
    /// The route has no permit for it.
    Denied(GateReason, i64),
    /// The same, but one that comes back is for it.
    Full(GateReason, i64),
}

/// The capacity of one batch. Permits that were taken and not spent go back when it is dropped.
pub(super) struct BatchCapacity {
    slots: Vec<Slot>,
    /// By the route's place in the policy.
    taken: Vec<Taken>,
    is_short: bool,
}

/// The intents of one route in a batch: their places, those of the reserved share apart.
#[derive(Default)]
struct Wanting {
    reserved: Vec<usize>,
    general: Vec<usize>,
}

/// A route that has no permit for some intents of a batch.
struct FullRoute<'r> {
    route: &'r Route,
    /// Its place in the policy.
    place: u16,
    known: Option<&'r RouteKnown>,
}

impl BatchCapacity {
    /// Takes the permits of the intents that nothing before denies. `passed`: the monotonic clock.
    pub(super) fn of<R: Records>(
        routes: &Routes,
        intents: &mut Intents<'_, R>,
        before: &BatchLimits,
        takes: Takes,
        passed: Duration,
    ) -> Self {
        let policy = Arc::clone(intents.eval.policy());
        let mut wanting = wanting(intents, before, &policy);
        let mut taken: Vec<Taken> = policy.routes.iter().map(|route| Taken::none(routes.state(&route.name))).collect();
        let looks = matches!(takes, Takes::Nothing);
        let mut waited = None;
        if let Takes::WithPermits(permits) = takes {
            waited = taken.iter().position(|route| Arc::ptr_eq(route.state(), permits.state()));
            if let Some(place) = waited {
                taken[place] = permits;
            }
        }
        let (mut slots, mut is_short) = (vec![Slot::Unrouted; intents.decoded.len()], false);
        for (place, (wanting, taken)) in wanting.iter_mut().zip(&mut taken).enumerate() {
            let route = &policy.routes[place];
            let (has_waited, known) = (waited == Some(place), taken.state().known_by(route));
            let waits = has_waited && route.when_full == WhenFull::Wait;
            if waits {
                for record in wanting.take_overdue(intents) {
                    slots[record] = Slot::Denied(GateReason::Capacity, again_ms(known.as_deref()));
                }
            }
            let queues = taken.state().is_queueing() && !has_waited;
            let has = match looks {
                true => wanting.looked(taken, queues, passed),
                false => wanting.take(taken, queues, passed),
            };
            is_short |= waits && has.len() < wanting.all().count();
            let number = u16::try_from(place).unwrap_or(u16::MAX);
            for (nth, record) in has.into_iter().enumerate() {
                let pool = if nth < wanting.reserved.len() { Pool::Reserved } else { Pool::General };
                slots[record] = Slot::Permit(number, pool);
            }
            let full = FullRoute { route, place: number, known: known.as_deref() };
            for record in wanting.all().filter(|record| slots[*record] == Slot::Unrouted).collect::<Vec<_>>() {
                slots[record] = match full.slot(intents, record) {
                    // Where others queue, it is not before them.
                    Slot::Denied(reason, wait_ms) if !queues => Slot::Full(reason, wait_ms),
                    slot @ (Slot::Unrouted | Slot::Permit(..) | Slot::Denied(..) | Slot::Full(..)) => slot,
                };
            }
        }
        Self { slots, taken, is_short }
    }

    /// Whether an intent that came from its route's topic would wait there again.
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Why what a record brings at `now` is denied, if it is.
    pub(super) fn denial(&self, record: usize, now: Time) -> Option<GateDenial> {
        match self.slots[record] {
            Slot::Unrouted | Slot::Permit(..) => None,
            Slot::Denied(reason, wait_ms) | Slot::Full(reason, wait_ms) => {
                Some((reason, (reason != GateReason::Expired).then(|| now.plus(wait_ms))))
            }
        }
    }

    /// How many permits of each route these records have, and how many of them are of records that may have none of the reserved share.
    fn used_by(&self, is_approved: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
        let mut used = vec![(0, 0); self.taken.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            if let Slot::Permit(route, pool) = *slot
                && is_approved(index)
            {
                let (all, general) = &mut used[usize::from(route)];
                *all += 1;
                *general += u64::from(pool == Pool::General);
            }
        }
        used
    }

    /// The permits of these records, to be spent when they are committed. The others go back.
    pub(super) fn used(mut self, is_approved: impl Fn(usize) -> bool) -> Vec<Taken> {
        let used = self.used_by(is_approved);
        for (taken, (used, general)) in self.taken.iter_mut().zip(used) {
            taken.keep(used - general, general);
        }
        self.taken.retain(|taken| taken.permits() > 0);
        self.taken
    }
}

impl Wanting {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.reserved.iter().chain(&self.general).copied()
    }

    /// Takes out those that have waited for too long.
    fn take_overdue<R: Records>(&mut self, intents: &Intents<'_, R>) -> Vec<usize> {
        let mut overdue = Vec::new();
        for wanting in [&mut self.reserved, &mut self.general] {
            wanting.retain(|&record| {
                let waits = !is_overdue(intents.records.get(record).timestamp, intents.at(record));
                if !waits {
                    overdue.push(record);
                }
                waits
            });
        }
        overdue
    }

    /// Takes permits beside those that were taken before; gives the records that have one: first those of the reserved share, then the
    /// others, unless they queue. Permits of that share are for its records alone, whenever they were taken.
    fn take(&self, taken: &mut Taken, queues: bool, passed: Duration) -> Vec<usize> {
        let count = |records: &[usize]| u64::try_from(records.len()).unwrap_or(u64::MAX);
        let of_share = count(&self.reserved);
        taken.take(Pool::Reserved, of_share.saturating_sub(taken.of(Pool::Reserved)), passed);
        let reserved = taken.of(Pool::Reserved).min(of_share);
        let others = if queues { 0 } else { count(&self.general) };
        let most = (of_share - reserved).saturating_add(others);
        taken.take(Pool::General, most.saturating_sub(taken.of(Pool::General)), passed);
        self.first(reserved + taken.of(Pool::General).min(most), queues)
    }

    /// The same, and takes none.
    fn looked(&self, taken: &Taken, queues: bool, passed: Duration) -> Vec<usize> {
        let left = |pool| taken.state().left(pool, passed);
        let reserved = left(Pool::Reserved).min(u64::try_from(self.reserved.len()).unwrap_or(u64::MAX));
        self.first(reserved + left(Pool::General), queues)
    }

    fn first(&self, permits: u64, queues: bool) -> Vec<usize> {
        let general = if queues { &[][..] } else { &self.general };
        self.reserved.iter().chain(general).copied().take(usize::try_from(permits).unwrap_or(usize::MAX)).collect()
    }
}

/// The records of each route that nothing before denies, by the route's place in the policy.
fn wanting<R: Records>(intents: &mut Intents<'_, R>, before: &BatchLimits, policy: &Policy) -> Vec<Wanting> {
    let mut wanting: Vec<Wanting> = policy.routes.iter().map(|_| Wanting::default()).collect();
    let mut routes = vec![None; intents.classes.number_all(intents.decoded)];
    for (record, decoded) in intents.decoded.iter().enumerate() {
        let Some(intent) = paced(decoded) else { continue };
        let class = intents.classes.number(record, intent) as usize;
        let route = *routes[class].get_or_insert_with(|| route_of(policy, &intent.class()));
        let Some((place, pool)) = route else { continue };
        if intents.denial(record).is_some() || before.denial(record, intents.at(record)).is_some() {
            continue;
        }
        match pool {
            Pool::General => wanting[place].general.push(record),
            Pool::Reserved => wanting[place].reserved.push(record),
        }
    }
    wanting
}

fn route_of(policy: &Policy, class: &ClassNames<'_>) -> Option<(usize, Pool)> {
    let place = policy.route_of(class)?;
    let pool = if policy.routes[place].reserves(class) { Pool::Reserved } else { Pool::General };
    Some((place, pool))
}

/// After how many milliseconds a suppressed intent may be tried again.
fn again_ms(known: Option<&RouteKnown>) -> i64 {
    bounded(known.map_or(0, RouteKnown::expected_wait_ms)).max(AGAIN_MS)
}

fn bounded(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).min(MOST_WAIT_MS)
}

impl FullRoute<'_> {
    /// What becomes of an intent that it has no permit for, and after how many milliseconds it may be approved.
    fn slot<R: Records>(&self, intents: &Intents<'_, R>, record: usize) -> Slot {
        let Some(intent) = paced(&intents.decoded[record]) else { return Slot::Unrouted };
        let Self { route, place, known } = *self;
        if route.when_full == WhenFull::Suppress {
            return Slot::Denied(GateReason::Capacity, again_ms(known));
        }
        let (facts, hash) = (intents.facts(record, intent), route.fair_by.hash_of(intent));
        // An intent that is denied now is not tried again, so a guess is no reason.
        let least_ms = known.and_then(|known| known.least_wait_ms(hash)).map(bounded);
        if least_ms.is_some_and(|least_ms| intents.eval.expired_at(&facts, intents.at(record).plus(least_ms))) {
            return Slot::Denied(GateReason::Expired, 0);
        }
        let turn_ms = known.and_then(|known| known.measured_wait_ms(hash)).map(bounded);
        let most_ms = known.and_then(|known| known.answers_within_ms(route.network_ms));
        match turn_ms.zip(most_ms) {
            Some((turn_ms, most_ms)) if turn_ms > most_ms => Slot::Denied(GateReason::Capacity, turn_ms),
            Some(_) | None => {
                let wait_ms = bounded(known.map_or(0, RouteKnown::expected_wait_ms));
                Slot::Denied(GateReason::RouteFull(u32::from(place)), wait_ms)
            }
        }
    }
}

/// A bound of the expected wait, in milliseconds: a year.
const MOST_WAIT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
