//! The permits of routes, as instances share them ([`RoutePermits`]): so many approvals that a route has room for. [`RouteBook`] is the
//! reference that `lua/permit.lua` must equal.

mod book;
mod registry;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub use book::RouteBook;
pub use registry::{RegisteredInstance, Registry, ServiceName, Total, mean_us};

use crate::limit::{
    SharedLimit,
    route::{Route, pace::KeptRates},
    share::{Embedded, PlainLimit},
};

/// How long an instance holds its permits without another turn. A grant counts for so long from when it was made, and may be used
/// for so long from when it was asked for.
pub const LEASE: Duration = Duration::from_secs(3);
/// The largest number in a turn: what Lua's numbers count exactly is more.
pub const MOST: u64 = 1_000_000_000_000;
/// Rates are kept in so many parts of an intent per second; 0 stands for a rate that is not known.
const RATE_PARTS: f64 = 1_000.0;

/// The embedded permits: in this process. For `weir demo` and tests. No service registers here.
pub type EmbeddedPermits = Embedded<RoutePermits>;

#[derive(Debug, Clone, Copy)]
pub struct RoutePermits;

impl SharedLimit for RoutePermits {
    type Key = RouteKey;
    type Turn = PermitTurn;
    type Reply = PermitGrant;
    type Reference = RouteBook;
}

impl PlainLimit for RoutePermits {
    const WHAT: &'static str = "a turn at the permits";

    /// In the shard of its service, where it has one, so that one script reads both.
    fn keys(RouteKey { route, service }: &RouteKey) -> (&str, Vec<(&'static str, &str)>) {
        let service = service.as_deref();
        let registry = service.map(|service| ("service:", service));
        (service.unwrap_or(route), [("p", &**route)].into_iter().chain(registry).collect())
    }

    fn args(turn: &PermitTurn) -> Vec<String> {
        let PermitTurn { lease, want, unused, recent, rate, took, delivery, .. } = *turn;
        let number = |number: u64| number.min(MOST).to_string();
        let [drain, measured] = turn.rate_parts();
        vec![
            lease.as_millis().to_string(),
            turn.room_or_most().to_string(),
            number(want),
            number(unused),
            number(recent),
            rate.map(number).unwrap_or_default(),
            turn.slow.to_string(),
            number(took.0),
            number(took.1),
            format!("{delivery:x}"),
            drain.to_string(),
            measured.to_string(),
        ]
    }

    fn reply(numbers: &[i64]) -> Option<PermitGrant> {
        let [granted, held_by_others, members, registered, timeout, processing, slow, _now, drain, best] = *numbers
        else {
            return None;
        };
        let some = |number| u64::try_from(number).ok();
        Some(PermitGrant {
            permits: some(granted)?,
            held_by_others: some(held_by_others)?,
            members: some(members)?,
            registered_per_s: some(registered),
            timeout_ms: some(timeout),
            processing_ms: some(processing),
            slow: some(slow)?,
            rates: kept_rates([some(drain)?, some(best)?]),
        })
    }
}

/// Names a route, and the service whose capacity is its ceiling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    pub route: Arc<str>,
    pub service: Option<Arc<str>>,
}

impl RouteKey {
    pub fn of(route: &Route) -> Self {
        Self { route: Arc::clone(&route.name), service: route.service.clone() }
    }
}

/// One instance's turn for one route: returns what was not used, and takes permits. To be made with the lag of just now. One that is repeated
/// gets the permits that it had, and returns none again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PermitTurn {
    /// How long this instance holds its permits without another turn.
    pub lease: Duration,
    /// What all instances may hold together beyond the lag; `None`: the route has no consumer group, and only its rate and its
    /// service bound it.
    pub room: Option<u64>,
    pub want: u64,
    /// How many it took back, unused, for this turn.
    pub unused: u64,
    /// How many it has used, or is using, that may not be in the lag yet.
    pub recent: u64,
    /// The most that the route takes per second.
    pub rate: Option<u64>,
    /// What this instance's signals of overload leave of the drain rate, in thousandths, above 0.
    pub slow: u64,
    /// Deliveries whose processing time was reported since the last turn, and the sum of these times in milliseconds.
    pub took: (u64, u64),
    /// The delivery that it is paced by ([`crate::limit::route::Route::delivery`]): rates of another one are not kept.
    pub delivery: u64,
    /// What this instance knows of its rates.
    pub rates: KeptRates,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PermitGrant {
    /// The permits that this instance holds until its lease ends.
    pub permits: u64,
    /// What other instances hold or have just used.
    pub held_by_others: u64,
    /// The instances that share, this one included.
    pub members: u64,
    /// What the service's instances have registered, per second.
    pub registered_per_s: Option<u64>,
    /// How long the service may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The mean time that the service takes, in milliseconds, by the ends of admissions and by [`PermitTurn::took`].
    pub processing_ms: Option<u64>,
    /// The least of all instances' [`PermitTurn::slow`].
    pub slow: u64,
    /// What is kept of its rates, these of this turn included.
    pub rates: KeptRates,
}

impl PermitTurn {
    /// What this instance knows of the rates of its delivery, in thousandths, at most [`MOST`]; 0: not known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates at 0 and at the maximum"
    )]
    fn rate_parts(&self) -> [u64; 2] {
        let parts = |rate: f64| ((rate * RATE_PARTS) as u64).clamp(1, MOST);
        [self.rates.drain_per_s, self.rates.best_per_s].map(|rate| rate.map_or(0, parts))
    }

    /// The room, [`MOST`] where nothing bounds it.
    pub fn room_or_most(&self) -> u64 {
        self.room.unwrap_or(MOST).min(MOST)
    }
}

/// The rates that are kept in thousandths.
#[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
fn kept_rates([drain, best]: [u64; 2]) -> KeptRates {
    let rate = |parts: u64| (parts > 0).then(|| parts as f64 / RATE_PARTS);
    KeptRates { drain_per_s: rate(drain), best_per_s: rate(best) }
}
