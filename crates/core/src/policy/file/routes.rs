//! The routes of a policy.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    caps::selection,
    forms::{Check, Form, Read, between, names, table, text, whole, word},
    options::{Declared, ValueAt, options},
};
use crate::{
    basis::document::{
        Value,
        value::{self, Parsed},
    },
    limit::route::{
        AHEAD_MS, DEFAULT_AHEAD_MS, DEFAULT_MAX_ATTEMPTS, DEFAULT_NETWORK_MS, FairBy, MAX_ROUTES, Reserved, Route,
        WhenFull, permits::ServiceName,
    },
};

/// The longest name: it is a part of a topic's, which has at most 249 characters.
pub(super) const LONGEST_NAME: usize = 64;
/// The highest rate, per second.
const MAX_RATE: u64 = 1_000_000_000;
/// The longest that a request takes on the network, in milliseconds.
const MAX_NETWORK_MS: i64 = 60_000;
const MAX_ATTEMPTS: u32 = 100;

const WHEN_FULL: &[(&str, WhenFull)] = &[("wait", WhenFull::Wait), ("suppress", WhenFull::Suppress)];
const FAIR_BY: &[(&str, FairBy)] = &[
    ("campaign", FairBy::Campaign),
    ("category", FairBy::Category),
    ("channel", FairBy::Channel),
    ("user", FairBy::User),
];

options! {
    RouteOptions -> Route, "Route",
    "One route: weir approves its intents no faster than delivery takes them. Without channel, category and campaign, it takes all\n\
     intents.",
    anyOf(consumer_group, rate, service)
    "needs `consumer_group` (paced by its lag), `rate` (per second) or `service` (what it has registered)" {
        name: required, Check { form: Form::TopicPart, ..text() }.and(|name, _| short(name, "it is a part of a topic's name")),
            "Its name, unique in the policy; part of the name of its topic of waiting intents.";
        channel: optional, names(), "Only intents of these channels.";
        category: optional, names(), "Only intents of these categories.";
        campaign: optional, names(), "Only intents of these campaigns.";
        consumer_group: optional, text(), "The group that consumes the approved topic: weir approves by its lag.";
        ahead: or(DEFAULT_AHEAD_MS), between(AHEAD_MS),
            "weir approves no more than delivery takes in this time: \"30s\" (the default), from \"5s\" to \"1h\". At least three times what\n\
             lies between two commits of the consumer group.";
        rate: optional, whole(1..=MAX_RATE), "The most intents per second, over all instances.";
        service: optional,
            Check { form: Form::TopicPart, ..text() }.and(|name, _| short(name, "no service registers under another name")),
            "The service whose instances register what they take: no more is approved. Two routes cannot have the same one: make them\n\
             one route, with `reserved` for what must not queue.";
        network: or(DEFAULT_NETWORK_MS), between(0..=MAX_NETWORK_MS),
            r#"The time on the network to the service, one way: "50ms" (the default), at most "1m"."#;
        reserved: optional, table::<ReservedOptions>(), "A share of the capacity that is kept for some intents.";
        when_full: or_default, word(WHEN_FULL),
            "The action for intents that the route cannot take now. wait (default): on the route's topic, in fair order; needs\n\
             kafka.waiting. suppress: suppressed as capacity.";
        fair_by: or_default, word(FAIR_BY), "What waiting intents take turns by. Default: campaign.";
        max_attempts: or(DEFAULT_MAX_ATTEMPTS), whole(1..=MAX_ATTEMPTS), "How often a delivery is tried. Default: 5.";
    }
    |at| {
        if when_full == WhenFull::Wait && !at.bounds.may_wait {
            let reason = "= \"wait\" (the default) needs topics for intents that wait: set kafka.waiting in the configuration \
                          (such as waiting = \"send-waiting\"), or write \"suppress\"";
            at.note_option("when_full", reason);
        }
        Some(Route {
            name: name?,
            filter: selection(channel, category, campaign),
            consumer_group,
            ahead_ms: ahead,
            rate,
            service,
            network_ms: network,
            reserved,
            when_full,
            fair_by,
            max_attempts,
        })
    }
}

options! {
    ReservedOptions -> Reserved, "Reserved",
    "A share of a route. At least one of channel, category and campaign; an intent must fit all that are given.",
    anyOf(channel, category, campaign)
    "needs at least one of `channel`, `category` and `campaign`: which intents the share is for" {
        channel: optional, names(), "The channels.";
        category: optional, names(), "The categories.";
        campaign: optional, names(), "The campaigns.";
        share: required, Check { form: Form::Share, read: share }, "The share: 0.001 to 0.999.";
    }
    |at| Some(Reserved { filter: selection(channel, category, campaign), share_permille: share? })
}

/// The routes. No two may have one service: each goes by all that it has registered.
pub(super) fn routes() -> Check<impl Read<Vec<Route>>> {
    let read = |at: &ValueAt<'_>| {
        let mut by_service = BTreeMap::new();
        let read = |at: &ValueAt<'_>| {
            let route = RouteOptions::read(at)?;
            let Route { name, service: Some(service), .. } = &route else { return Some(route) };
            if let Some(other) = by_service.insert(Arc::clone(service), Arc::clone(name)) {
                let why = "each would take all of it: make them one route, with `reserved` for what must not queue";
                at.note_option("service", &format!("= {service:?} is of two routes, {other:?} and {name:?}: {why}"));
            }
            Some(route)
        };
        at.each("routes", MAX_ROUTES, read, Some("each has a topic of its own"))
    };
    Check { form: Form::Several(RouteOptions::declared, Some(MAX_ROUTES)), read }
}

/// A name that a service may have, too.
fn short(name: Arc<str>, why: &str) -> Parsed<Arc<str>> {
    if ServiceName::new(&name).is_some() {
        return Ok(name);
    }
    Err(format!("must be at most {LONGEST_NAME} letters (a to z), digits, `.`, `_` and `-`, not {name:?}: {why}"))
}

/// A share, in thousandths.
fn share(at: &ValueAt<'_>) -> Option<u32> {
    const HOW: &str = "a share from 0.001 to 0.999, such as 0.2";
    at.parse(|node| {
        let Value::Number(number) = &node.value else { return Err(value::must_be(HOW, node)) };
        let share = number.parse::<f64>().ok().filter(|share| (0.001..=0.999).contains(share));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 999")]
        share.map(|share| (share * 1000.0).round() as u32).ok_or_else(|| value::must_be(HOW, node))
    })
}
