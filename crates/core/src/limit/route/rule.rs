//! The routes of one batch: which of its intents wait, and what becomes of one that has no permit.
//!
//! An intent that its route cannot take now waits or is suppressed, as the route says. One that would expire before its
//! turn, even at the best rate, has expired already, and one that its service would answer too late by the measured rate is
//! suppressed: nothing asks Redis for them. A rate that is not known suppresses nothing. One that has waited for
//! [`MAX_WAIT_MS`](super::MAX_WAIT_MS) is suppressed, whatever its route takes: Kafka would delete it.
//!
//! A delivery that is tried again needs a permit, too. Where an intent would be suppressed, it is undelivered.

use std::{mem, sync::Arc};

use super::{
    Route, WhenFull, is_overdue,
    routes::{RouteKnown, Routes},
};
use crate::{
    basis::time::Time,
    intent::{
        Intent,
        reason::{GateDenial, GateReason, SuppressReason},
        selection::Action,
    },
    limit::share::{Taken, UnitRule, Waits},
};

/// The shortest time after which a suppressed intent may be tried again, in milliseconds: how often permits are granted.
const AGAIN_MS: i64 = 1_000;
/// A bound of the expected wait, in milliseconds: a year.
const MOST_WAIT_MS: i64 = 365 * 24 * 60 * 60 * 1000;
/// Its route takes no more now, and the intent is not to wait for that.
const NO_CAPACITY: GateReason = GateReason::Limit(SuppressReason::Capacity, Action::Suppress);

/// A route, as it is applied to the intents of one batch.
pub(crate) struct RouteRule<'p> {
    route: &'p Route,
    /// Its place in the policy.
    place: usize,
    known: Option<Arc<RouteKnown>>,
    waits: Waits,
}

impl Routes {
    /// The routes of a policy for one batch, each with the permits that it has taken: `brought`, for the route whose waiting intents these
    /// are.
    pub(crate) fn rules<'p>(
        &self,
        routes: &'p [Route],
        mut brought: Option<&mut Taken>,
    ) -> Vec<(Taken, RouteRule<'p>)> {
        let rule = |(place, route): (usize, &'p Route)| {
            let state = self.state(&route.name);
            let mut taken = Taken::none(Arc::clone(&state));
            let brought = brought.as_mut().filter(|brought| brought.is_of(&state));
            let waits = match brought {
                Some(brought) => {
                    mem::swap(&mut taken, brought);
                    if route.when_full == WhenFull::Wait { Waits::These } else { Waits::Nobody }
                }
                None if state.is_queueing() => Waits::Others,
                None => Waits::Nobody,
            };
            (taken, RouteRule { route, place, known: state.known_by(route), waits })
        };
        routes.iter().enumerate().map(rule).collect()
    }
}

impl UnitRule for RouteRule<'_> {
    fn denial(&self, intent: &Intent<'_>, now: Time, is_expired: &dyn Fn(Time) -> bool) -> GateDenial {
        let (Self { route, place, .. }, known) = (self, self.known.as_deref());
        if route.when_full == WhenFull::Suppress {
            return self.suppressed(now);
        }
        let hash = route.fair_by.hash_of(intent);
        // An intent that is denied now is not tried again, so a guess is no reason.
        let least_ms = known.and_then(|known| known.least_wait_ms(hash)).map(bounded);
        if least_ms.is_some_and(|least_ms| is_expired(now.plus(least_ms))) {
            return (GateReason::Expired, None);
        }
        let turn_ms = known.and_then(|known| known.measured_wait_ms(hash)).map(bounded);
        let most_ms = known.and_then(|known| known.answers_within_ms(route.network_ms));
        let (reason, wait_ms) = match turn_ms.zip(most_ms) {
            Some((turn_ms, most_ms)) if turn_ms > most_ms => (NO_CAPACITY, turn_ms),
            Some(_) | None => (GateReason::RouteFull(u32::try_from(*place).unwrap_or(u32::MAX)), self.expected_ms()),
        };
        (reason, Some(now.plus(wait_ms)))
    }

    fn waits(&self) -> Waits {
        self.waits
    }

    fn overdue(&self, timestamp: Option<Time>, now: Time) -> Option<GateDenial> {
        is_overdue(timestamp, now).then(|| self.suppressed(now))
    }
}

impl RouteRule<'_> {
    /// That an intent is suppressed now, and may be tried again.
    fn suppressed(&self, now: Time) -> GateDenial {
        (NO_CAPACITY, Some(now.plus(self.expected_ms().max(AGAIN_MS))))
    }

    fn expected_ms(&self) -> i64 {
        bounded(self.known.as_deref().map_or(0, RouteKnown::expected_wait_ms))
    }
}

fn bounded(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).min(MOST_WAIT_MS)
}
