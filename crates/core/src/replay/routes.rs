//! The routes of a replay: how many intents would have waited for a route's rate.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{basis::time::Time, intent::class::ClassNames, limit::route::Route, policy::Policy};

/// How much of a rate is approved at once, in milliseconds: as where instances share it.
const BURST_MS: f64 = 1000.0;

/// The approved intents of a policy's routes. Only rates are considered: what consumers and services took then is not known.
#[derive(Debug)]
pub struct ReplayRoutes {
    policy: Arc<Policy>,
    queues: Vec<ReplayQueue>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ReplayQueue {
    intents: u64,
    waited: u64,
    longest_ms: f64,
    /// When the route has taken all of them, in milliseconds since 1970.
    done_ms: f64,
}

/// What a route of a policy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RouteTotals {
    /// The route's name.
    pub route: String,
    /// Its rate per second; null where it has none.
    pub rate: Option<u64>,
    /// How many intents it took.
    pub intents: u64,
    /// How many of them would have waited for the rate, or would have been suppressed; null without a rate.
    pub waited: Option<u64>,
    /// The longest wait for the rate, in milliseconds; null without a rate.
    pub longest_wait_ms: Option<u64>,
}

impl ReplayRoutes {
    pub fn new(policy: Arc<Policy>) -> Self {
        let queues = vec![ReplayQueue::default(); policy.routes.len()];
        Self { policy, queues }
    }

    /// An intent is approved; calls are in the order of time, within a minute.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 and rates are far below 2^53")]
    pub fn approve(&mut self, class: &ClassNames<'_>, now: Time) {
        let Some(place) = self.policy.route_of(class) else { return };
        let queue = &mut self.queues[place];
        queue.intents += 1;
        let Some(rate) = self.policy.routes[place].rate else { return };
        let now_ms = now.millis() as f64;
        let wait_ms = queue.done_ms - now_ms - BURST_MS;
        if wait_ms > 0.0 {
            queue.waited += 1;
            queue.longest_ms = queue.longest_ms.max(wait_ms);
        }
        queue.done_ms = queue.done_ms.max(now_ms) + 1000.0 / rate as f64;
    }

    /// What each route came to, in the policy's order.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is above 0, and the cast saturates"
    )]
    pub fn totals(&self) -> Vec<RouteTotals> {
        let totals = |(route, queue): (&Route, &ReplayQueue)| RouteTotals {
            route: route.name.to_string(),
            rate: route.rate,
            intents: queue.intents,
            waited: route.rate.map(|_| queue.waited),
            longest_wait_ms: route.rate.map(|_| queue.longest_ms.ceil() as u64),
        };
        self.policy.routes.iter().zip(&self.queues).map(totals).collect()
    }

    /// The routes that the replay limits by their rate alone, or not at all, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let is_paced = |route: &&Route| route.consumer_group.is_some() || route.service.is_some();
        self.policy.routes.iter().filter(is_paced).map(|route| {
            let considered = if route.rate.is_some() { "only its rate is considered" } else { "it is not paced here" };
            format!("route {}: what its delivery took then is not known, so {considered}", route.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_beyond_the_rate_wait_by_turns() {
        let text = "[[routes]]\nname = \"email\"\nchannel = \"email\"\n\
                    rate = 10\n[[routes]]\nname = \"rest\"\nconsumer_group = \"g\"\n";
        let mut routes = ReplayRoutes::new(Arc::new(Policy::uncapped(text)));
        let class = |channel| ClassNames { channel: Some(channel), ..ClassNames::default() };
        // 30 at once: the burst takes 11, the last one is due 2 s after the first, less the burst.
        for _ in 0..30 {
            routes.approve(&class("email"), Time::default().plus(1_000_000));
        }
        routes.approve(&class("email"), Time::default().plus(1_010_000));
        routes.approve(&class("push"), Time::default());
        let [email, rest] = &routes.totals()[..] else { panic!() };
        assert_eq!((email.intents, email.waited, email.longest_wait_ms), (31, Some(19), Some(1_900)));
        assert_eq!((rest.intents, rest.waited, rest.longest_wait_ms), (1, None, None));
        let notes: Vec<_> = routes.notes().collect();
        assert_eq!(notes, ["route rest: what its delivery took then is not known, so it is not paced here"]);
    }
}
