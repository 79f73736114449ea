//! Routes: intents per second, as delivery takes them.

use std::{sync::Arc, time::Duration};

use indicatif::HumanCount;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{
    basis::document::value::in_words,
    limit::route::{
        FairBy, Reserved, Route, WhenFull,
        pace::Throttle,
        routes::{RouteKnown, RouteState, Routes},
    },
    policy::Policy,
    ports::Clock as _,
};
use weir_worker::{clock::SystemClock, pressure::REPORTED_AFTER, refresh::Refreshed};

use super::{Degraded, FindingRows, LimitKind, LimitSpan, LimitView, LimitedIntent, PolicyLimits, ShownLimits, found};
use crate::{
    http::Degradation,
    metrics::{Metrics, OfRouteLabel, RealGauge, ThrottledLabels, bring},
    selections::{or_all, selection_in_words},
};

pub(super) const OF_POLICY: PolicyLimits =
    PolicyLimits { in_words: |policy| policy.routes.iter().map(route_in_words).collect(), not_looked_at };

/// What is shown of routes: their tasks know how they stand.
pub struct RoutesShown {
    pub policy: Arc<Refreshed<Policy>>,
    pub routes: Arc<Routes>,
}

/// How a route stands, over all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "kind": "route", "name": "email", "per": "second", "limit": 500, "used": null, "left": null, "held": 210, "leased": 470,
    "members": 2, "free_at": null, "why": "delivery takes no more", "available": true, "drain_per_s": 480.0,
    "registered_per_s": null, "reserved": 40, "lag": 14_200, "waiting": 81_000, "waiting_by_partition": [40_500, 0, 40_500],
    "oldest_waiting_s": 95.0, "expected_wait_s": 168.7
}))]
pub struct RouteView {
    /// `limit`: of the route's rate and what its service has registered the smaller one. `held`: the permits that this instance was
    /// granted by its last turn, about twice a second. `leased`: those of all instances, and those that others have just used.
    #[serde(flatten)]
    pub shared: LimitView,
    /// What delivery takes per second, as weir reckons.
    #[schema(minimum = 0)]
    pub drain_per_s: f64,
    /// What the service's instances have registered per second; null: the route has no service.
    pub registered_per_s: Option<u64>,
    /// The permits of this instance that only reserved intents may take.
    pub reserved: u64,
    /// Approved intents that the consumer group has not committed; null: not known, or the route has no group.
    pub lag: Option<u64>,
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
}

impl RoutesShown {
    /// The routes that have been looked at, in the order of the policy.
    fn known(&self) -> Vec<(Arc<RouteState>, Arc<RouteKnown>)> {
        let policy = self.policy.current();
        let states = policy.routes.iter().filter_map(|route| self.routes.find(&route.name));
        let known = states.filter_map(|state| state.known().map(|known| (state, known)));
        known.filter(|(_, known)| known.rule.is_some()).collect()
    }

    /// How the routes stand that have been looked at, in the order of the policy.
    #[must_use]
    pub fn views(&self) -> Vec<RouteView> {
        self.known().iter().map(|(state, known)| RouteView::new(&state.name, known)).collect()
    }
}

impl ShownLimits for RoutesShown {
    fn rows(&self) -> FindingRows<'_> {
        found(self.views())
    }

    /// The routes that approve nothing but probes, whose offsets are not known, whose permits have not been shared for a while, that have
    /// partitions behind, or in which intents have waited for too long.
    fn degraded(&self) -> Vec<Degradation> {
        let passed = SystemClock.passed();
        let degraded = self.known().into_iter().filter_map(|(state, known)| {
            let lasts = passed.saturating_sub(degraded_since(&known, passed)?);
            Some(Degradation::lasting(Degraded::Route, lasts, message(&state, &known)))
        });
        degraded.collect()
    }

    fn note(&self, metrics: &Metrics) {
        let figures: [(&Family<OfRouteLabel, RealGauge>, RouteFigure); 7] = [
            (&metrics.route_permits, |known, _| Some(known.grant.permits as f64)),
            (&metrics.route_lag, |known, _| known.lag.map(|lag| lag as f64)),
            (&metrics.route_waiting, |known, _| Some(known.waiting() as f64)),
            (&metrics.route_overdue, |_, state| Some(state.overdue() as f64)),
            (&metrics.route_drain_rate, |known, _| Some(known.drain_per_s)),
            (&metrics.route_expected_wait, |known, _| Some(seconds(known.expected_wait_ms()))),
            (&metrics.route_oldest_waiting, |known, _| oldest_s(known)),
        ];
        figures.iter().for_each(|(family, _)| family.clear());
        metrics.route_throttled.clear();
        for (state, known) in self.known() {
            let label = OfRouteLabel { route: state.name.to_string() };
            for (family, figure) in figures {
                if let Some(figure) = figure(&known, &state) {
                    family.get_or_create(&label).set(figure);
                }
            }
            bring(&metrics.waiting.get_or_create(&label), state.queued());
            if known.throttle != Throttle::No {
                let throttled = ThrottledLabels { route: label.route, why: known.throttle.as_str() };
                metrics.route_throttled.get_or_create(&throttled).set(1);
            }
        }
    }
}

impl RouteView {
    fn new(name: &str, known: &RouteKnown) -> Self {
        let shared = LimitView {
            held: Some(known.grant.permits),
            leased: Some(known.grant.permits + known.grant.held_by_others),
            members: Some(known.grant.members),
            why: known.why.clone(),
            available: known.available,
            ..LimitView::bare(LimitKind::Route, name, known.ceiling_per_s, LimitSpan::second())
        };
        Self {
            shared,
            drain_per_s: known.drain_per_s,
            registered_per_s: known.grant.registered_per_s,
            reserved: known.reserved,
            lag: known.lag,
            waiting: known.waiting(),
            waiting_by_partition: known.waiting.clone(),
            oldest_waiting_s: known.oldest_waiting_ms.map(seconds),
            expected_wait_s: seconds(known.expected_wait_ms()),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

/// Since when people are to hear of it, by the monotonic clock; `None`: they are not. Turns without an answer are no trouble at once, as for
/// pressure: the next one may have one.
fn degraded_since(known: &RouteKnown, passed: Duration) -> Option<Duration> {
    let silent_since = known.silent_since.filter(|since| passed.saturating_sub(*since) >= REPORTED_AFTER);
    known.held_up_since.into_iter().chain(silent_since).min()
}

/// A figure of a route; `None`: it is not known, and not shown.
type RouteFigure = fn(&RouteKnown, &RouteState) -> Option<f64>;

/// How long the oldest intent has waited, in seconds; 0: none waits.
fn oldest_s(known: &RouteKnown) -> Option<f64> {
    known.oldest_waiting_ms.or((known.waiting() == 0).then_some(0)).map(seconds)
}

fn message(state: &RouteState, known: &RouteKnown) -> String {
    let (name, why) = (&state.name, known.why.as_deref().unwrap_or("not known"));
    // That intents have waited for too long is said beside why.
    let too_long = match state.overdue() {
        0 => String::new(),
        overdue => format!("; {overdue} have waited for more than 72 h, and are suppressed as capacity"),
    };
    let (drain_per_s, waiting) = (known.drain_per_s, known.waiting());
    format!("the route {name} takes about {drain_per_s:.0} intents per second, {waiting} wait: {why}{too_long}")
}

/// `Route email: channel email, paced by the lag of group hedwig, at most 500 per second; ...`
fn route_in_words(route: &Route) -> String {
    let Route { name, filter, consumer_group, ahead_ms, rate, service, network_ms, reserved, .. } = route;
    let what = or_all(selection_in_words(filter), "all intents without a route before it");
    let mut parts = vec![format!("Route {name}: {what}")];
    parts.extend(
        consumer_group.as_ref().map(|group| format!("no more than group {group} takes in {}", in_words(*ahead_ms))),
    );
    parts.extend(rate.map(|rate| format!("at most {} per second", HumanCount(rate))));
    parts.extend(
        service
            .as_ref()
            .map(|service| format!("at most what service {service} has registered ({} away)", in_words(*network_ms))),
    );
    let mut words = parts.join(", ");
    if let Some(Reserved { filter, share_permille }) = reserved {
        let percent = f64::from(*share_permille) / 10.0;
        words.push_str(&format!("; {percent}% is kept for {}", selection_in_words(filter)));
    }
    words.push_str(match route.when_full {
        WhenFull::Wait => "; other intents wait",
        WhenFull::Suppress => "; other intents are suppressed",
    });
    if route.when_full == WhenFull::Wait {
        words.push_str(match route.fair_by {
            FairBy::Campaign => ", campaigns by turns",
            FairBy::Category => ", categories by turns",
            FairBy::Channel => ", channels by turns",
            FairBy::User => ", users by turns",
        });
    }
    words.push_str(&format!(". A delivery is tried {} times.", route.max_attempts));
    words
}

/// Where nobody knows what the route takes.
fn not_looked_at(policy: &Policy, intent: &LimitedIntent<'_>) -> Vec<LimitView> {
    policy.route_of(&intent.class).map(|place| LimitView::of_route(&policy.routes[place])).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_degraded_at_once_where_it_is_held_up_and_after_a_while_where_its_permits_are_not_shared() {
        let s = Duration::from_secs;
        for (held_up_since, silent_since, expected) in [
            (None, None, None),
            (Some(100), None, Some(100)),
            (None, Some(96), None),
            (None, Some(95), Some(95)),
            (Some(99), Some(90), Some(90)),
            (Some(80), Some(90), Some(80)),
        ] {
            let (held_up_since, silent_since) = (held_up_since.map(s), silent_since.map(s));
            let known = RouteKnown { held_up_since, silent_since, ..RouteKnown::default() };
            assert_eq!(degraded_since(&known, s(100)), expected.map(s), "{known:?}");
        }
    }
}
