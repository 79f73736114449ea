//! How routes stand, for people.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::policy::Policy;
use weir_worker::{
    refresh::Refreshed,
    routes::{RouteSeen, RoutesStatus},
};

/// How a route stands. `lag`, `waiting`, `registered_per_s`, `members` are of all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "name": "email", "drain_per_s": 480.0, "ceiling_per_s": 500, "registered_per_s": null, "lag": 14_200, "permits": 210,
    "reserved": 40, "held_by_others": 260, "members": 2, "waiting": 81_000, "waiting_by_partition": [40_500, 0, 40_500],
    "oldest_waiting_s": 95.0, "expected_wait_s": 168.7, "why": "delivery takes no more", "trouble": null
}))]
pub struct RouteView {
    /// Its name.
    pub name: String,
    /// What delivery takes per second, as weir reckons.
    #[schema(minimum = 0)]
    pub drain_per_s: f64,
    /// The most per second: of the route's rate and what its service has registered the smaller one; null: there is neither.
    pub ceiling_per_s: Option<u64>,
    /// What the service's instances have registered per second; null: the route has no service.
    pub registered_per_s: Option<u64>,
    /// Approved intents that the consumer group has not committed; null: not known, or the route has no group.
    pub lag: Option<u64>,
    /// Permits that this instance was granted by its last turn, about twice a second.
    pub permits: u64,
    /// Those of them that only reserved intents may take.
    pub reserved: u64,
    /// Permits that other instances hold, or have just used.
    pub held_by_others: u64,
    /// The instances that share the route, this one included.
    pub members: u64,
    /// Intents that wait for the route at the most: transactions take up offsets, too.
    pub waiting: u64,
    /// The same by partition of the route's topic.
    pub waiting_by_partition: Vec<u64>,
    /// How long the oldest of them has waited, at the least; null: none waits, or it is not known.
    #[schema(minimum = 0)]
    pub oldest_waiting_s: Option<f64>,
    /// How long an intent waits that comes now.
    #[schema(minimum = 0)]
    pub expected_wait_s: f64,
    /// Why it takes less than its ceiling; null: it does not.
    pub why: Option<String>,
    /// What cannot be found out, and what to do; null: nothing.
    pub trouble: Option<String>,
}

/// Where it is seen how routes stand; clones see the same.
#[derive(Clone)]
pub struct RoutesDesk {
    policy: Arc<Refreshed<Policy>>,
    status: RoutesStatus,
}

impl RoutesDesk {
    /// Of the policy in force, and what the tasks of its routes have found.
    #[must_use]
    pub const fn new(policy: Arc<Refreshed<Policy>>, status: RoutesStatus) -> Self {
        Self { policy, status }
    }

    /// The routes that have been looked at, in the order of the policy.
    #[must_use]
    pub fn look(&self) -> Vec<RouteView> {
        let seen = self.status.seen();
        let of = |name: &Arc<str>| seen.iter().find(|(known, _)| known == name);
        self.policy.current().routes.iter().filter_map(|route| of(&route.name)).map(RouteView::of).collect()
    }
}

impl RouteView {
    fn of((name, seen): &(Arc<str>, Arc<RouteSeen>)) -> Self {
        let known = &seen.known;
        Self {
            name: name.to_string(),
            drain_per_s: known.drain_per_s,
            ceiling_per_s: seen.ceiling_per_s,
            registered_per_s: known.registered_per_s,
            lag: known.lag,
            permits: seen.permits,
            reserved: seen.reserved,
            held_by_others: seen.held_by_others,
            members: seen.members,
            waiting: known.waiting(),
            waiting_by_partition: known.waiting.clone(),
            oldest_waiting_s: known.oldest_waiting_ms.map(seconds),
            expected_wait_s: seconds(known.expected_wait_ms()),
            why: known.why.clone(),
            trouble: seen.trouble.clone(),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}
