//! What a process has learnt of a route's delivery: it outlives a change of the route's policy.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use weir_core::limit::route::{
    Route, delivery_signals::DeliverySignals, pace::Controller, permits, permits::PermitGrant, routes::RouteState,
};

/// The mean of fewer reports says nothing: what is usual would begin with them.
const ENOUGH: u64 = 20;

/// What is learnt of one route, sample by sample.
#[derive(Debug, Clone)]
pub struct Learnt {
    pub(super) controller: Controller,
    pub(super) signals: DeliverySignals,
    /// Of how many reports that this instance has read there is a mean time, and the mean.
    reported: u64,
    mean_us: u64,
    /// The last answer of the store.
    pub(super) grant: PermitGrant,
    /// Whether there was one for this delivery.
    pub(super) is_answered: bool,
    /// Since when there is none, by the monotonic clock.
    pub(super) silent_since: Option<Duration>,
}

/// What a route's task has learnt up to its last turn.
pub type LastLearnt = Arc<ArcSwap<Learnt>>;

impl Learnt {
    /// Nothing but what was learnt before, where that is of the same delivery. Of any, who shares the route and since when the store is
    /// silent: a change of the policy must not give each instance the whole room.
    pub(super) fn before(route: &Route, state: &RouteState, before: Option<(&Route, &Self)>) -> Self {
        let reserved_permille = route.reserved.as_ref().map_or(0, |reserved| reserved.share_permille);
        if let Some((_, learnt)) = before.filter(|(before, _)| before.delivery() == route.delivery()) {
            let controller = learnt.controller.clone().changed_to(route.ahead_ms, reserved_permille);
            return Self { controller, ..learnt.clone() };
        }
        // Of another delivery, or of long ago.
        state.take_times();
        let controller = Controller::new(route.ahead_ms, reserved_permille);
        let signals = DeliverySignals::default();
        let alone = PermitGrant { members: 1, ..PermitGrant::default() };
        let (grant, silent_since) = before.map_or((alone, None), |(_, learnt)| (learnt.grant, learnt.silent_since));
        let grant = PermitGrant { slow: 1_000, ..grant };
        Self { controller, signals, reported: 0, mean_us: 0, grant, is_answered: false, silent_since }
    }

    /// Takes processing times, so many with this sum in milliseconds, into their mean.
    pub(super) fn note_times(&mut self, took: (u64, u64)) {
        self.reported = self.reported.saturating_add(took.0);
        self.mean_us = permits::mean_us(self.mean_us, took);
    }

    /// The mean of about the last 20, in milliseconds; `None`: so many were not reported yet.
    pub(super) fn mean_ms(&self) -> Option<u64> {
        Some(self.mean_us.div_ceil(1_000)).filter(|ms| *ms > 0 && self.reported >= ENOUGH)
    }
}
