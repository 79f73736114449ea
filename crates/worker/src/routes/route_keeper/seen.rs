//! What a route's task shows of it after each turn.

use std::{sync::Arc, time::Duration};

use weir_core::limit::route::{
    Waiting,
    pace::{Pace, Throttle},
    permits::PermitGrant,
    routes::RouteKnown,
};

use super::HeldPermits;
use crate::{
    routes::{RouteSeen, offsets::OffsetsSeen},
    share::Silence,
};

impl HeldPermits {
    /// How the route stands by the last turn; `None` until there was one.
    pub(super) fn seen(&self, now: Duration, silence: Option<&Silence>) -> Option<RouteSeen> {
        let (look, pace) = self.went_by.as_ref()?;
        let silent = silence.map(|silence| format!("the permits are not shared: {}", silence.why));
        Some(RouteSeen {
            known: self.known((look, pace), now),
            ceiling_per_s: self.ceiling(),
            permits: self.permits,
            reserved: self.reserved,
            held_by_others: self.grant.held_by_others,
            members: self.grant.members,
            throttle: pace.why,
            trouble: self.trouble.unknown.clone().or(silent),
            silent_since: silence.filter(|_| self.trouble.unknown.is_none()).map(|silence| silence.since),
            behind: self.trouble.behind.clone(),
        })
    }

    fn known(&self, (look, pace): (&OffsetsSeen, &Pace), now: Duration) -> RouteKnown {
        let PermitGrant { members, registered_per_s, timeout_ms, .. } = self.grant;
        let before = self.state.known();
        let waiting = match &look.waiting {
            Ok(waiting) => waiting.iter().copied().map(Waiting::count).collect(),
            Err(_) => before.map(|known| known.waiting.clone()).unwrap_or_default(),
        };
        let is_sure = self.is_there() && self.is_counted(look, now);
        RouteKnown {
            rule: Some(Arc::clone(&self.route)),
            drain_per_s: pace.drain_per_s,
            best_per_s: pace.best_per_s.filter(|_| is_sure),
            measured_per_s: pace.measured_per_s.filter(|_| is_sure),
            lag: look.undelivered(),
            members,
            waiting,
            oldest_waiting_ms: look.oldest_at(now),
            queued_before: look.queued,
            registered_per_s,
            timeout_ms,
            processing_ms: self.processing_ms().unwrap_or(0),
            why: in_words(pace.why).map(str::to_owned),
        }
    }
}

const fn in_words(why: Throttle) -> Option<&'static str> {
    match why {
        Throttle::No => None,
        Throttle::Lag => Some("delivery takes no more"),
        Throttle::Stopped => Some("nothing is delivered: weir probes"),
        Throttle::Signal => Some("a signal of overload holds, or did a moment ago"),
        Throttle::LagUnknown => Some("the lag of the consumer group is not known"),
    }
}
