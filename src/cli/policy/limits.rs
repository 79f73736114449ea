//! Limits that instances share, in words.

use indicatif::{HumanBytes, HumanCount};
use weir_core::{
    basis::document::value::in_words,
    history::decide::Scope,
    limit::{
        budget::{Budget, WhenUnavailable},
        pressure::{PressureRule, activity::CELLS_PER_USER},
        route::{FairBy, Reserved, Route, WhenFull},
    },
    policy::{Action, Policy},
};

use super::{filter_in_words, or_all, selection_in_words};

/// Each limit of a policy, in a sentence or two.
pub fn limits_in_words(policy: &Policy) -> impl Iterator<Item = String> {
    let (pressure, budgets) =
        (policy.pressure.iter().map(pressure_in_words), policy.budgets.iter().map(budget_in_words));
    pressure.chain(budgets).chain(policy.routes.iter().map(route_in_words))
}

fn pressure_in_words(rule: &PressureRule) -> String {
    let PressureRule { max_active_users, window_minutes: _, filter, action } = rule;
    let (most, window) = (HumanCount(*max_active_users), in_words(rule.window_ms()));
    let (what, memory) = (filter_in_words(filter, " of "), HumanBytes(max_active_users * CELLS_PER_USER));
    let action = match action {
        Action::Suppress => "suppressed",
        Action::Defer => "deferred, and spread over the window",
    };
    format!(
        "Pressure: at most {most} users are active in {window} (takes {memory} of memory); then intents{what} of other users are {action}."
    )
}

pub(super) fn budget_in_words(budget: &Budget) -> String {
    let Budget { name, selection, scope, limit, span, best_effort, when_spent, on_unavailable } = budget;
    let (amount, then) = match limit {
        0 => ("never any".to_owned(), ""),
        limit => (format!("at most {} {span}", HumanCount(*limit)), "then "),
    };
    let scope = match scope {
        Scope::Every => "",
        Scope::SameCampaign => " of each campaign",
    };
    let intents = or_all(selection_in_words(selection), "all intents");
    let action = match when_spent {
        Action::Suppress => "suppressed",
        Action::Defer => "deferred",
    };
    let last = if *best_effort { " Tokens are granted one by one." } else { "" };
    let unavailable = match on_unavailable {
        WhenUnavailable::Wait => "",
        WhenUnavailable::Suppress => " While Redis is unavailable, intents without a token are suppressed.",
    };
    format!("Budget {name}: {amount}{scope}, for {intents}; {then}intents are {action}.{last}{unavailable}")
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
