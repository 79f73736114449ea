//! A route in words.

use indicatif::HumanCount;
use weir_core::{
    basis::document::value,
    limit::route::{FairBy, Reserved, Route, WhenFull},
};

use super::{or_all, selection_in_words};

/// `Route email: channel email, paced by the lag of group hedwig, at most 500 per second; ...`
pub(super) fn in_words(route: &Route) -> String {
    let Route { name, filter, consumer_group, ahead_ms, rate, service, network_ms, reserved, .. } = route;
    let what = or_all(selection_in_words(filter), "all intents without a route before it");
    let mut parts = vec![format!("Route {name}: {what}")];
    parts.extend(
        consumer_group
            .as_ref()
            .map(|group| format!("no more than group {group} takes in {}", value::in_words(*ahead_ms))),
    );
    parts.extend(rate.map(|rate| format!("at most {} per second", HumanCount(rate))));
    parts.extend(service.as_ref().map(|service| {
        format!("at most what service {service} has registered ({} away)", value::in_words(*network_ms))
    }));
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
