//! The routes of one batch: which intents have permits.
//!
//! An intent that its route cannot take now waits or is suppressed, as the route says. One that would expire before its
//! turn, even at the best rate, has expired already, and one that its service would answer too late by the measured rate is
//! suppressed: nothing asks Redis for them. A rate that is not known suppresses nothing. One that has waited for
//! [`crate::route::MAX_WAIT_MS`] is suppressed, whatever its route takes: Kafka would delete it.
//!
//! A delivery that is tried again needs a permit, too. Where an intent would be suppressed, it is undelivered.

mod back;

use std::{collections::HashMap, sync::Arc, time::Duration};

pub(super) use back::{BackPermits, Lacks};
use foldhash::fast::RandomState;

use super::{BatchDecision, Decoded, Undecided, gate::facts, pressure::BatchPressure};
use crate::{
    class::ClassNames,
    intent::Intent,
    policy::{Gate, GateReason, IntentFacts, Mode, Policy, PolicyEval},
    record::{Output, Records},
    retry,
    route::{Route, WhenFull, is_overdue},
    routes::{Pool, RouteKnown, Routes, Taken},
    time::Time,
};

/// The shortest time after which a suppressed intent may be tried again, in milliseconds: how often permits are granted.
const AGAIN_MS: i64 = 1_000;

/// Where the permits of a batch come from.
#[derive(Debug)]
pub enum PermitsFrom {
    /// From those of its routes.
    Pools,
    /// The lane reads intents that waited for this route, and took permits before, if they still wait by the policy of then. Intents of
    /// other routes use the shared permits.
    Taken(Taken),
    /// It takes none: it is only asked what would become of an intent.
    Look,
}

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
pub(crate) struct BatchCapacity {
    slots: Vec<Slot>,
    /// By the route's place in the policy.
    taken: Vec<Taken>,
    /// Whether an intent that came from its route's topic would wait there again.
    is_short: bool,
}

/// The intents of one route in a batch: their places, those of the reserved share apart.
#[derive(Default)]
struct Wanting {
    reserved: Vec<usize>,
    general: Vec<usize>,
}

impl BatchDecision {
    /// Takes the permits of the intents, where the policy has routes; after [`BatchDecision::press`], before
    /// [`BatchDecision::claim`]. `passed`: the monotonic clock.
    pub fn take_permits<'b>(
        &mut self,
        records: &'b impl Records,
        decoded: &'b [Decoded<'b>],
        from: PermitsFrom,
        passed: Duration,
    ) {
        // Nothing is kept back in shadow mode.
        if self.eval.policy().routes.is_empty() || self.eval.policy().mode == Mode::Shadow {
            return;
        }
        if let Some(routes) = &self.decider.routes {
            let batch = (records, decoded);
            self.capacity = Some(BatchCapacity::of(
                (&mut self.eval, self.pressure.as_ref(), routes),
                batch,
                (from, self.now, passed),
            ));
        }
    }

    /// Whether the permits that a lane took for intents which wait are too few for the batch: without one an intent would queue again,
    /// behind newer ones.
    #[must_use]
    pub fn is_short_of_permits(&self) -> bool {
        self.capacity.as_ref().is_some_and(|capacity| capacity.is_short)
    }

    /// The permits of the records that are approved, by their outputs: to be spent when these are committed. The others go back.
    #[must_use]
    pub fn permits_of(&mut self, outputs: &[Output]) -> Vec<Taken> {
        self.permits_where(|index| outputs[index].to.is_approved())
    }

    /// The same, by the place of a record in the batch.
    #[must_use]
    pub fn permits_where(&mut self, is_approved: impl Fn(usize) -> bool) -> Vec<Taken> {
        self.capacity.take().map(|capacity| capacity.used(is_approved)).unwrap_or_default()
    }
}

impl BatchCapacity {
    fn of<'b>(
        (eval, pressure, routes): (&mut PolicyEval, Option<&BatchPressure>, &Routes),
        (records, decoded): (&'b impl Records, &'b [Decoded<'b>]),
        (from, now, passed): (PermitsFrom, Time, Duration),
    ) -> Self {
        let policy = Arc::clone(eval.policy());
        let mut wanting = wanting((eval, &policy), pressure, (records, decoded), now);
        let mut taken: Vec<Taken> = policy.routes.iter().map(|route| Taken::none(routes.state(&route.name))).collect();
        let looks = matches!(from, PermitsFrom::Look);
        let mut before = None;
        if let PermitsFrom::Taken(permits) = from {
            before = taken.iter().position(|route| Arc::ptr_eq(route.state(), permits.state()));
            if let Some(place) = before {
                taken[place] = permits;
            }
        }
        let (mut slots, mut is_short) = (vec![Slot::Unrouted; decoded.len()], false);
        for (place, (wanting, taken)) in wanting.iter_mut().zip(&mut taken).enumerate() {
            let route = &policy.routes[place];
            let (has_waited, known) = (before == Some(place), taken.state().known_by(route));
            let waits = has_waited && route.when_full == WhenFull::Wait;
            if waits {
                for index in wanting.take_overdue(records, now) {
                    slots[index] = Slot::Denied(GateReason::Capacity, again_ms(known.as_deref()));
                }
            }
            let queues = taken.state().is_queueing() && !has_waited;
            let has = match looks {
                true => wanting.looked(taken, queues, passed),
                false => wanting.take(taken, queues, passed),
            };
            is_short |= waits && has.len() < wanting.all().count();
            let number = u16::try_from(place).unwrap_or(u16::MAX);
            for (nth, index) in has.into_iter().enumerate() {
                let pool = if nth < wanting.reserved.len() { Pool::Reserved } else { Pool::General };
                slots[index] = Slot::Permit(number, pool);
            }
            for index in wanting.all().filter(|index| slots[*index] == Slot::Unrouted).collect::<Vec<_>>() {
                let Some(intent) = paced(&decoded[index]) else { continue };
                let facts = facts(intent, None, &records.get(index));
                let hash = route.fair_by.hash_of(intent);
                slots[index] = match full((eval, route, known.as_deref()), (&facts, number, hash), now) {
                    // Where others queue, it is not before them.
                    Slot::Denied(reason, wait_ms) if !queues => Slot::Full(reason, wait_ms),
                    slot @ (Slot::Unrouted | Slot::Permit(..) | Slot::Denied(..) | Slot::Full(..)) => slot,
                };
            }
        }
        Self { slots, taken, is_short }
    }

    /// Whether a record has no permit that needs one.
    pub(crate) fn denies(&self, record: usize) -> bool {
        matches!(self.slots[record], Slot::Denied(..) | Slot::Full(..))
    }

    /// What the gate makes of an intent at `now`.
    pub(crate) fn gate(&self, record: usize, gate: Gate, now: Time) -> Gate {
        match (gate, self.slots[record]) {
            (Gate::Bypass | Gate::CheckCaps { .. }, Slot::Denied(reason, wait_ms) | Slot::Full(reason, wait_ms)) => {
                let eligible_at = (reason != GateReason::Expired).then(|| now.plus(wait_ms));
                Gate::Suppress { reason, eligible_at }
            }
            (gate @ (Gate::Bypass | Gate::CheckCaps { .. } | Gate::Suppress { .. }), _) => gate,
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

    fn used(mut self, is_approved: impl Fn(usize) -> bool) -> Vec<Taken> {
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
    fn take_overdue(&mut self, records: &impl Records, now: Time) -> Vec<usize> {
        let mut overdue = Vec::new();
        for wanting in [&mut self.reserved, &mut self.general] {
            wanting.retain(|&index| {
                let waits = !is_overdue(&records.get(index), now);
                if !waits {
                    overdue.push(index);
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
fn wanting<'b>(
    (eval, policy): (&mut PolicyEval, &Policy),
    pressure: Option<&BatchPressure>,
    (records, decoded): (&'b impl Records, &'b [Decoded<'b>]),
    now: Time,
) -> Vec<Wanting> {
    let mut wanting: Vec<Wanting> = policy.routes.iter().map(|_| Wanting::default()).collect();
    let mut of_class: HashMap<ClassNames<'b>, Option<(usize, Pool)>, RandomState> = HashMap::default();
    for (index, decoded) in decoded.iter().enumerate() {
        let Some(intent) = paced(decoded) else { continue };
        let class = intent.class();
        let Some((place, pool)) = *of_class.entry(class).or_insert_with(|| route_of(policy, &class)) else { continue };
        let facts = facts(intent, None, &records.get(index));
        let is_denied = match decoded {
            Ok(_) => pressure.is_some_and(|pressure| pressure.denies(index)) || eval.denial(&facts).is_some(),
            // Of what was approved before, nothing else is asked.
            Err(_) => retry::ended(eval, &facts, now).is_some(),
        };
        if is_denied {
            continue;
        }
        match pool {
            Pool::General => wanting[place].general.push(index),
            Pool::Reserved => wanting[place].reserved.push(index),
        }
    }
    wanting
}

/// The intent of a record that needs a permit if it has a route: to be decided, or approved before and to be delivered again.
fn paced<'b>(decoded: &'b Decoded<'b>) -> Option<&'b Intent<'b>> {
    match decoded {
        Ok(intent) => Some(intent),
        Err(Undecided::Retry(intent)) => Some(intent.as_ref()),
        Err(Undecided::Invalid(_)) => None,
    }
}

/// The route of a class, and the pool that is its own.
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

/// What becomes of an intent that its route has no permit for, and after how many milliseconds it may be approved.
fn full(
    (eval, route, known): (&PolicyEval, &Route, Option<&RouteKnown>),
    (facts, place, hash): (&IntentFacts<'_>, u16, u64),
    now: Time,
) -> Slot {
    let wait_ms = bounded(known.map_or(0, RouteKnown::expected_wait_ms));
    match route.when_full {
        WhenFull::Suppress => Slot::Denied(GateReason::Capacity, again_ms(known)),
        WhenFull::Wait => {
            // An intent that is denied now is not tried again, so a guess is no reason.
            let least_ms = known.and_then(|known| known.least_wait_ms(hash)).map(bounded);
            if least_ms.is_some_and(|least_ms| eval.expired_at(facts, now.plus(least_ms))) {
                return Slot::Denied(GateReason::Expired, 0);
            }
            let turn_ms = known.and_then(|known| known.measured_wait_ms(hash)).map(bounded);
            let most_ms = known.and_then(|known| known.answers_within_ms(route.network_ms));
            match turn_ms.zip(most_ms) {
                Some((turn_ms, most_ms)) if turn_ms > most_ms => Slot::Denied(GateReason::Capacity, turn_ms),
                Some(_) | None => Slot::Denied(GateReason::RouteFull(u32::from(place)), wait_ms),
            }
        }
    }
}

/// A bound of the expected wait, in milliseconds: a year.
const MOST_WAIT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
