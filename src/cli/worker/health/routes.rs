//! How routes are: what `/v1/status` and `/metrics` ask.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use prometheus_client::metrics::family::Family;
use weir_core::{
    pace::Throttle,
    routes::{RouteKnown, RouteState, Routes},
};
use weir_worker::routes::{RouteSeen, RoutesStatus};

use super::{bring, degradation};
use crate::{
    http::{Degradation, Degraded},
    metrics::{Metrics, OfRouteLabel, RealGauge, ThrottledLabels},
};

/// The routes, as health and metrics show them.
pub(in crate::cli::worker) struct RoutesHealth {
    pub(in crate::cli::worker) status: RoutesStatus,
    pub(in crate::cli::worker) routes: Arc<Routes>,
    /// The routes that were closed or unknown at the last look, and since when.
    pub(in crate::cli::worker) closed: ArcSwap<Vec<(Arc<str>, Instant)>>,
}

impl RoutesHealth {
    /// The routes that approve nothing but probes, whose offsets are not known, whose permits are not shared, that have partitions behind,
    /// or in which intents have waited for too long.
    pub(super) fn degraded(&self) -> Vec<Degradation> {
        let (before, now) = (self.closed.load_full(), Instant::now());
        let seen = self.status.seen();
        let overdue = |name: &str| self.routes.find(name).map_or(0, |route| route.overdue());
        let is_degraded = |(name, seen): &&(Arc<str>, Arc<RouteSeen>)| {
            seen.throttle.is_closed() || seen.trouble.is_some() || seen.behind.is_some() || overdue(name) > 0
        };
        let closed: Vec<_> = seen.iter().filter(is_degraded).collect();
        let since = |name: &Arc<str>| before.iter().find(|(known, _)| known == name).map_or(now, |(_, since)| *since);
        self.closed.store(Arc::new(closed.iter().map(|(name, _)| (Arc::clone(name), since(name))).collect()));
        let message = |name: &str, seen: &RouteSeen| format!("{}{}", message(name, seen), too_long(overdue(name)));
        closed.into_iter().map(|(name, seen)| degradation(Degraded::Route, since(name), message(name, seen))).collect()
    }

    pub(super) fn note(&self, metrics: &Metrics) {
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
