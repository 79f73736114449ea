//! What a route's task knows of it after each turn.

use std::{sync::Arc, time::Duration};

use weir_core::limit::{
    route::{Waiting, permits::PermitGrant, routes::RouteKnown},
    share::Silence,
};

use super::HeldPermits;

impl HeldPermits {
    /// How the route stands by the last turn; `None` until there was one.
    pub(super) fn known(&self, now: Duration, silence: Option<&Silence>) -> Option<RouteKnown> {
        let (look, pace) = self.went_by.as_ref()?;
        let grant = PermitGrant { permits: self.permits, processing_ms: self.processing_ms(), ..self.learnt.grant };
        let before = self.state.known();
        let waiting = match &look.waiting {
            Ok(waiting) => waiting.iter().copied().map(Waiting::count).collect(),
            Err(_) => before.as_ref().map(|known| known.waiting.clone()).unwrap_or_default(),
        };
        let is_sure = self.is_there() && self.is_counted(look, now);
        let (unknown, behind) = (look.unknown().cloned(), look.behind_in_words());
        let is_held_up = pace.why.is_closed() || unknown.is_some() || behind.is_some() || self.state.overdue() > 0;
        let held_up_before = before.and_then(|known| known.held_up_since);
        let silent = || silence.map(|silence| format!("the permits are not shared: {}", silence.why));
        let throttled = || pace.why.in_words().map(str::to_owned);
        Some(RouteKnown {
            rule: Some(Arc::clone(&self.route)),
            drain_per_s: pace.drain_per_s,
            best_per_s: pace.best_per_s.filter(|_| is_sure),
            measured_per_s: pace.measured_per_s.filter(|_| is_sure),
            lag: look.undelivered(),
            waiting,
            oldest_waiting_ms: look.oldest_at(now),
            queued_before: look.queued,
            ceiling_per_s: self.ceiling(),
            grant,
            reserved: self.reserved,
            throttle: pace.why,
            available: unknown.is_none() && silence.is_none(),
            why: unknown.or_else(silent).or(behind).or_else(throttled),
            held_up_since: is_held_up.then(|| held_up_before.unwrap_or(now)),
            silent_since: silence.and(self.learnt.silent_since),
        })
    }
}
