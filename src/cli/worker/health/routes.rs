//! How routes are: what `/v1/status` and `/metrics` ask.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use weir_core::{pace::Throttle, routes::Routes};
use weir_worker::routes::{RouteSeen, RoutesStatus};

use super::{bring, degradation};
use crate::{
    http::{Degradation, Degraded},
    metrics::{Metrics, OfRouteLabel, ThrottledLabels},
};

/// The routes, as health and metrics show them.
pub(in crate::cli::worker) struct RoutesHealth {
    pub(in crate::cli::worker) status: RoutesStatus,
    pub(in crate::cli::worker) routes: Arc<Routes>,
    /// The routes that were closed or unknown at the last look, and since when.
    pub(in crate::cli::worker) closed: ArcSwap<Vec<(Arc<str>, Instant)>>,
}

impl RoutesHealth {
    /// The routes that are closed but for probes, those whose offsets are not known, and those with intents that have waited for too
    /// long.
    pub(super) fn degraded(&self) -> Vec<Degradation> {
        let (before, now) = (self.closed.load_full(), Instant::now());
        let seen = self.status.seen();
        let overdue = |name: &str| self.routes.find(name).map_or(0, |route| route.overdue());
        let is_degraded = |(name, seen): &&(Arc<str>, Arc<RouteSeen>)| {
            seen.throttle.is_closed() || seen.trouble.is_some() || overdue(name) > 0
        };
        let closed: Vec<_> = seen.iter().filter(is_degraded).collect();
        let since = |name: &Arc<str>| before.iter().find(|(known, _)| known == name).map_or(now, |(_, since)| *since);
        self.closed.store(Arc::new(closed.iter().map(|(name, _)| (Arc::clone(name), since(name))).collect()));
        let message = |name: &str, seen: &RouteSeen| format!("{}{}", message(name, seen), too_long(overdue(name)));
        closed.into_iter().map(|(name, seen)| degradation(Degraded::Route, since(name), message(name, seen))).collect()
    }

    pub(super) fn note(&self, metrics: &Metrics) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let gauges = [&metrics.route_permits, &metrics.route_lag, &metrics.route_waiting, &metrics.route_overdue];
        gauges.into_iter().for_each(|family| family.clear());
        metrics.route_throttled.clear();
        let seconds = [&metrics.route_drain_rate, &metrics.route_expected_wait, &metrics.route_oldest_waiting];
        seconds.into_iter().for_each(|family| family.clear());
        for (name, seen) in self.status.seen() {
            let label = OfRouteLabel { route: name.to_string() };
            let RouteSeen { known, permits, throttle, .. } = &*seen;
            metrics.route_permits.get_or_create(&label).set(number(*permits));
            if *throttle != Throttle::No {
                let throttled = ThrottledLabels { route: name.to_string(), why: throttle.as_str() };
                metrics.route_throttled.get_or_create(&throttled).set(1);
            }
            if let Some(lag) = known.lag {
                metrics.route_lag.get_or_create(&label).set(number(lag));
            }
            metrics.route_waiting.get_or_create(&label).set(number(known.waiting()));
            metrics.route_drain_rate.get_or_create(&label).set(known.drain_per_s);
            let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
            metrics.route_expected_wait.get_or_create(&label).set(seconds(known.expected_wait_ms()));
            if let Some(oldest_ms) = known.oldest_waiting_ms.or((known.waiting() == 0).then_some(0)) {
                metrics.route_oldest_waiting.get_or_create(&label).set(seconds(oldest_ms));
            }
            let state = self.routes.state(&name);
            metrics.route_overdue.get_or_create(&label).set(number(state.overdue()));
            bring(&metrics.waiting.get_or_create(&label), state.queued());
        }
    }
}

fn message(name: &str, seen: &RouteSeen) -> String {
    let RouteSeen { known, trouble, .. } = seen;
    let why = trouble.as_deref().or(known.why.as_deref()).unwrap_or("not known");
    format!("the route {name} takes about {:.0} intents per second, {} wait: {why}", known.drain_per_s, known.waiting())
}

/// What is said of intents that have waited for too long.
fn too_long(overdue: u64) -> String {
    match overdue {
        0 => String::new(),
        overdue => format!("; {overdue} have waited for more than 72 h, and are suppressed as capacity"),
    }
}
