//! The routes of a policy.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    PolicyBounds,
    caps::filter,
    check::{elsewhere, selection},
};
use crate::{
    document::{
        Document, Node, Table, Value,
        value::{self, Parsed, in_words},
    },
    policy::Selection,
    route::{
        AHEAD_MS, DEFAULT_AHEAD_MS, DEFAULT_MAX_ATTEMPTS, DEFAULT_NETWORK_MS, FairBy, MAX_ROUTES, Reserved, Route,
        WhenFull,
    },
    service::ServiceName,
};

/// The longest name: it is a part of a topic's, which has at most 249 characters.
const LONGEST_NAME: usize = 64;
/// The highest rate, per second.
const MAX_RATE: u64 = 1_000_000_000;
/// The longest that a request takes on the network, in milliseconds.
const MAX_NETWORK_MS: i64 = 60_000;
/// The most attempts to deliver.
const MAX_ATTEMPTS: u32 = 100;

const WHEN_FULL: [(&str, WhenFull); 2] = [("wait", WhenFull::Wait), ("suppress", WhenFull::Suppress)];
const FAIR_BY: [(&str, FairBy); 4] = [
    ("campaign", FairBy::Campaign),
    ("category", FairBy::Category),
    ("channel", FairBy::Channel),
    ("user", FairBy::User),
];

/// Reads the routes, in their order. Notes each invalid route in the document and leaves it out.
pub(super) fn routes(document: &Document<'_>, node: &Node, bounds: PolicyBounds) -> Vec<Route> {
    let Value::List(items) = &node.value else {
        document.note(&node.origin, "routes must be a list of routes: in TOML, write [[routes]] with two brackets");
        return Vec::new();
    };
    if items.len() > MAX_ROUTES {
        let count = items.len();
        document.note(&node.origin, format!("routes must not have more than {MAX_ROUTES} routes; it has {count}"));
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut routes = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(route) = route(document, item, &format!("routes[{index}]"), bounds) else { continue };
        if !names.insert(Arc::clone(&route.name)) {
            let name = &route.name;
            document.note(&item.origin, format!("routes has two routes named {name:?}: each has a topic of its own"));
        }
        routes.push(route);
    }
    routes
}

fn route(document: &Document<'_>, node: &Node, path: &str, bounds: PolicyBounds) -> Option<Route> {
    let mut table = Table::of(document, node, path)?;
    let name = table.required("name", topic_part);
    let filter = filter(&mut table);
    let campaigns = table.optional("campaign", value::texts);
    let bound = ["consumer_group", "rate", "service"].into_iter().any(|key| table.node(key).is_some());
    if !bound {
        table.note(
            "needs `consumer_group` (paced by its lag), `rate` (per second) or `service` (what it has registered)",
        );
    }
    let consumer_group = table.optional("consumer_group", value::text);
    let ahead_ms = table.optional("ahead", ahead);
    let rate = table.optional("rate", |node| value::whole(node, 1..=MAX_RATE));
    let service = table.optional("service", service);
    let network_ms = table.optional("network", network);
    let reserved = table.node("reserved").and_then(|node| reserved(document, node, &format!("{path}.reserved")));
    let full = table.node("when_full").map_or(&node.origin, |node| &node.origin);
    let when_full = table.optional("when_full", |node| value::one_of(node, &WHEN_FULL)).unwrap_or_default();
    if when_full == WhenFull::Wait && !bounds.may_wait {
        let reason = "= \"wait\" (the default) needs topics for intents that wait: set kafka.waiting in the configuration (such as \
                      waiting = \"send-waiting\"), or write \"suppress\"";
        table.note_at(full, "when_full", reason);
    }
    let fair_by = table.optional("fair_by", |node| value::one_of(node, &FAIR_BY));
    let max_attempts = table.optional("max_attempts", |node| value::whole(node, 1..=MAX_ATTEMPTS));
    table.finish(elsewhere);
    let campaigns = campaigns.map(|names| names.into_iter().map(str::to_owned).collect());
    Some(Route {
        name: name?.into(),
        filter: Selection { filter, campaigns },
        consumer_group: consumer_group.map(Arc::from),
        ahead_ms: ahead_ms.unwrap_or(DEFAULT_AHEAD_MS),
        rate,
        service: service.map(Arc::from),
        network_ms: network_ms.unwrap_or(DEFAULT_NETWORK_MS),
        reserved,
        when_full,
        fair_by: fair_by.unwrap_or_default(),
        max_attempts: max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS),
    })
}

fn topic_part(node: &Node) -> Parsed<&str> {
    let name = value::text(node)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.len() <= LONGEST_NAME && name.chars().all(fits) {
        return Ok(name);
    }
    Err(format!(
        "must be at most {LONGEST_NAME} letters (a to z), digits, `.`, `_` and `-`, not {name:?}: it is a part of a topic's name"
    ))
}

fn service(node: &Node) -> Parsed<&str> {
    let name = value::text(node)?;
    if ServiceName::new(name).is_some() {
        return Ok(name);
    }
    Err(format!(
        "must be at most 64 letters (a to z), digits, `.`, `_` and `-`, not {name:?}: no service registers under another name"
    ))
}

fn ahead(node: &Node) -> Parsed<i64> {
    let ahead_ms = value::duration_ms(node)?;
    if AHEAD_MS.contains(&ahead_ms) {
        return Ok(ahead_ms);
    }
    let [least, most] = [*AHEAD_MS.start(), *AHEAD_MS.end()].map(in_words);
    Err(format!("must be from {least} to {most}, not {}", in_words(ahead_ms)))
}

fn network(node: &Node) -> Parsed<i64> {
    let network_ms = value::duration_ms(node)?;
    if network_ms <= MAX_NETWORK_MS {
        return Ok(network_ms);
    }
    Err(format!("must be at most {}, not {}", in_words(MAX_NETWORK_MS), in_words(network_ms)))
}

fn reserved(document: &Document<'_>, node: &Node, path: &str) -> Option<Reserved> {
    let mut table = Table::of(document, node, path)?;
    let filter = selection(&mut table, "which intents the share is for");
    let share_permille = table.required("share", share);
    table.finish(elsewhere);
    Some(Reserved { filter, share_permille: share_permille? })
}

/// A share, in thousandths.
fn share(node: &Node) -> Parsed<u32> {
    const HOW: &str = "a share from 0.001 to 0.999, such as 0.2";
    let Value::Number(number) = &node.value else { return Err(value::must_be(HOW, node)) };
    let share = number.parse::<f64>().ok().filter(|share| (0.001..=0.999).contains(share));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 999")]
    share.map(|share| (share * 1000.0).round() as u32).ok_or_else(|| value::must_be(HOW, node))
}
