//! Routes: intents per second, as delivery takes them.

use std::{
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{
    limit::route::{
        pace::Throttle,
        routes::{RouteKnown, RouteState, Routes},
    },
    policy::Policy,
    ports::Clock as _,
};
use weir_worker::{
    clock::SystemClock,
    pressure::REPORTED_AFTER,
    refresh::Refreshed,
    routes::{RouteSeen, RoutesStatus},
};

use super::{Adding, LimitKind, LimitRows, LimitSpan, LimitView, ShownLimit};
use crate::{
    http::{Degradation, Degraded},
    metrics::{Metrics, OfRouteLabel, RealGauge, ThrottledLabels, bring},
};

/// What is shown of routes: their tasks know how they stand.
pub struct RoutesShown {
    pub(super) policy: Arc<Refreshed<Policy>>,
    pub(super) status: RoutesStatus,
    pub(super) routes: Arc<Routes>,
    /// The routes that were closed or unknown at the last look, and since when.
    pub(super) closed: ArcSwap<Vec<(Arc<str>, Instant)>>,
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
    /// Those that are degraded at a moment, and what has passed by then of the monotonic clock.
    fn degraded_at(&self, now: Instant, passed: Duration) -> Vec<Degradation> {
        let (before, seen) = (self.closed.load_full(), self.status.seen());
        let overdue = |name: &str| self.routes.find(name).map_or(0, |route| route.overdue());
        let is_held_up =
            |name: &str, seen: &RouteSeen| seen.throttle.is_closed() || seen.behind.is_some() || overdue(name) > 0;
        let is_degraded =
            |(name, seen): &&(Arc<str>, Arc<RouteSeen>)| is_held_up(name, seen) || is_in_trouble(seen, passed);
        // Of anything else it is only known at which look it was so first.
        let silent = |name: &str, seen: &RouteSeen| {
            let since = seen.silent_since.filter(|_| !is_held_up(name, seen))?;
            now.checked_sub(passed.saturating_sub(since))
        };
        let known = |name: &str| before.iter().find(|(known, _)| **known == *name).map(|(_, since)| *since);
        let since = |name: &str, seen: &RouteSeen| silent(name, seen).or_else(|| known(name)).unwrap_or(now);
        let closed: Vec<_> =
            seen.iter().filter(is_degraded).map(|(name, seen)| (name, seen, since(name, seen))).collect();
        self.closed.store(Arc::new(closed.iter().map(|(name, _, since)| (Arc::clone(name), *since)).collect()));
        let message = |name: &str, seen: &RouteSeen| format!("{}{}", message(name, seen), too_long(overdue(name)));
        let degraded = |(name, seen, since): (&Arc<str>, &Arc<RouteSeen>, Instant)| {
            Degradation::lasting(Degraded::Route, since.elapsed(), message(name, seen))
        };
        closed.into_iter().map(degraded).collect()
    }

    /// The routes that have been looked at, in the order of the policy.
    #[must_use]
    pub fn views(&self) -> Vec<RouteView> {
        let (seen, policy) = (self.status.seen(), self.policy.current());
        let of = |name: &Arc<str>| seen.iter().find(|(known, _)| known == name);
        let found = policy.routes.iter().filter_map(|route| of(&route.name));
        found.map(|(name, seen)| RouteView::new(name, seen)).collect()
    }
}

impl ShownLimit for RoutesShown {
    fn add_to<'a>(&'a self, rows: &'a mut LimitRows) -> Adding<'a> {
        self.views().iter().for_each(|view| rows.add(view));
        Box::pin(ready(()))
    }

    /// The routes that approve nothing but probes, whose offsets are not known, whose permits have not been shared for a while, that have
    /// partitions behind, or in which intents have waited for too long.
    fn degraded(&self) -> Vec<Degradation> {
        self.degraded_at(Instant::now(), SystemClock.passed())
    }

    fn note(&self, metrics: &Metrics) {
        let figures: [(&Family<OfRouteLabel, RealGauge>, RouteFigure); 7] = [
            (&metrics.route_permits, |seen, _| Some(seen.permits as f64)),
            (&metrics.route_lag, |seen, _| seen.known.lag.map(|lag| lag as f64)),
            (&metrics.route_waiting, |seen, _| Some(seen.known.waiting() as f64)),
            (&metrics.route_overdue, |_, state| Some(state.overdue() as f64)),
            (&metrics.route_drain_rate, |seen, _| Some(seen.known.drain_per_s)),
            (&metrics.route_expected_wait, |seen, _| Some(seen.known.expected_wait_ms() as f64 / 1e3)),
            (&metrics.route_oldest_waiting, |seen, _| oldest_s(&seen.known)),
        ];
        figures.iter().for_each(|(family, _)| family.clear());
        metrics.route_throttled.clear();
        for (name, seen) in self.status.seen() {
            let (label, state) = (OfRouteLabel { route: name.to_string() }, self.routes.state(&name));
            for (family, figure) in figures {
                if let Some(figure) = figure(&seen, &state) {
                    family.get_or_create(&label).set(figure);
                }
            }
            bring(&metrics.waiting.get_or_create(&label), state.queued());
            if seen.throttle != Throttle::No {
                let throttled = ThrottledLabels { route: name.to_string(), why: seen.throttle.as_str() };
                metrics.route_throttled.get_or_create(&throttled).set(1);
            }
        }
    }
}

impl RouteView {
    fn new(name: &str, seen: &RouteSeen) -> Self {
        let RouteSeen {
            known,
            ceiling_per_s,
            permits,
            reserved,
            held_by_others,
            members,
            throttle: _,
            trouble,
            silent_since: _,
            behind,
        } = seen;
        let shared = LimitView {
            held: Some(*permits),
            leased: Some(permits + held_by_others),
            members: Some(*members),
            why: trouble.as_ref().or(behind.as_ref()).or(known.why.as_ref()).cloned(),
            available: trouble.is_none(),
            ..LimitView::bare(LimitKind::Route, name, *ceiling_per_s, LimitSpan::second())
        };
        Self {
            shared,
            drain_per_s: known.drain_per_s,
            registered_per_s: known.registered_per_s,
            reserved: *reserved,
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

/// Whether it has a trouble that people are to hear of. Turns without an answer are none at once, as for pressure: the next one may have one.
fn is_in_trouble(seen: &RouteSeen, passed: Duration) -> bool {
    let is_late = seen.silent_since.is_none_or(|since| passed.saturating_sub(since) >= REPORTED_AFTER);
    seen.trouble.is_some() && is_late
}

/// A figure of a route; `None`: it is not known, and not shown.
type RouteFigure = fn(&RouteSeen, &RouteState) -> Option<f64>;

/// How long the oldest intent has waited, in seconds; 0: none waits.
fn oldest_s(known: &RouteKnown) -> Option<f64> {
    let oldest_ms = known.oldest_waiting_ms.or((known.waiting() == 0).then_some(0))?;
    Some(oldest_ms as f64 / 1e3)
}

fn message(name: &str, seen: &RouteSeen) -> String {
    let RouteSeen { known, trouble, behind, .. } = seen;
    let why = [trouble, behind, &known.why].into_iter().flatten().next().map_or("not known", String::as_str);
    format!("the route {name} takes about {:.0} intents per second, {} wait: {why}", known.drain_per_s, known.waiting())
}

/// What is said of intents that have waited for too long.
fn too_long(overdue: u64) -> String {
    match overdue {
        0 => String::new(),
        overdue => format!("; {overdue} have waited for more than 72 h, and are suppressed as capacity"),
    }
}

#[cfg(test)]
mod tests {
    use weir_core::{basis::document::Format, policy::file::parse_policy};

    use super::*;

    fn seen(trouble: Option<&str>, silent_since: Option<Duration>) -> RouteSeen {
        RouteSeen {
            known: RouteKnown::default(),
            ceiling_per_s: None,
            permits: 0,
            reserved: 0,
            held_by_others: 0,
            members: 1,
            throttle: Throttle::No,
            trouble: trouble.map(str::to_owned),
            silent_since,
            behind: None,
        }
    }

    #[test]
    fn a_route_is_in_trouble_once_its_permits_have_not_been_shared_for_a_while_and_at_once_for_another_reason() {
        let s = Duration::from_secs;
        for (trouble, silent_since, passed, expected) in [
            (None, None, s(100), false),
            (Some("the offsets are not known"), None, s(100), true),
            (Some("the permits are not shared"), Some(s(96)), s(100), false),
            (Some("the permits are not shared"), Some(s(95)), s(100), true),
        ] {
            let seen = seen(trouble, silent_since);
            assert_eq!(is_in_trouble(&seen, passed), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_route_whose_permits_are_not_shared_is_degraded_since_then_and_another_one_since_it_was_first_seen_to_be() {
        let (s, now) = (Duration::from_secs, Instant::now());
        let text = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n";
        let policy = Arc::new(parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap());
        let silent = seen(Some("the permits are not shared"), Some(s(90)));
        let behind = RouteSeen { behind: Some("a partition is behind".to_owned()), ..silent.clone() };
        for (looks, ago_ms) in [([&silent, &silent], 10_000), ([&silent, &behind], 10_000), ([&behind, &behind], 0)] {
            let (status, routes) = (RoutesStatus::default(), Routes::new());
            let policy = Refreshed::new(Arc::clone(&policy));
            let health = RoutesShown { policy, status, routes, closed: ArcSwap::default() };
            for look in looks {
                health.status.set(&"email".into(), look.clone());
                let degraded = health.degraded_at(now, s(100));
                assert!(degraded[0].since <= SystemClock.now().plus(-ago_ms), "{degraded:?}");
                let since = health.closed.load()[0].1;
                assert_eq!(now - since, Duration::from_millis(ago_ms.unsigned_abs()), "{degraded:?}");
            }
        }
    }
}
