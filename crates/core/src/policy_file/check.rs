//! The whole policy: from the tree to the domain's type.

use std::{collections::BTreeMap, sync::Arc};

use jiff::civil::Time as CivilTime;

use super::{
    PolicyBounds, budgets,
    caps::{self, action, filter},
    pressure, routes,
};
use crate::{
    document::{
        Document, Node, Table, Value,
        value::{self, Parsed, in_words},
    },
    policy::{Action, Bypass, Caps, Counts, Mode, OnUnavailable, Policy, QuietHours, Selection, Unavailable},
    wheel::LONGEST_MS,
    zone::Zone,
};

/// The longest deferral where the policy does not say: 72 hours.
const DEFER_MAX_MS: i64 = 72 * 60 * 60 * 1000;
/// The longest time that intents may be spread over: what comes back later than a day after quiet hours comes in the next ones.
const LONGEST_SPREAD_MS: i64 = 12 * 60 * 60 * 1000;

/// Keys of the document itself: in TOML they must stand before the first table, which is easily missed.
const TOP_LEVEL: [&str; 9] =
    ["version", "timezone", "max_age", "shadow", "bypass", "on_unavailable", "stop", "budgets", "routes"];

const UNAVAILABLE: [(&str, Unavailable); 3] =
    [("wait", Unavailable::Wait), ("approve", Unavailable::Approve), ("suppress", Unavailable::Suppress)];

/// Where a key that is unknown here belongs.
pub(super) fn elsewhere(key: &str) -> Option<String> {
    TOP_LEVEL.contains(&key).then(|| {
        format!("`{key}` belongs to the policy itself: in TOML, write it above the first line that begins with `[`")
    })
}

/// Checks the whole policy; `None` where something is wrong, which is noted.
pub(super) fn policy(document: &Document<'_>, root: &Node, bounds: PolicyBounds) -> Option<Policy> {
    let mut table = Table::of(document, root, "")?;
    table.node("$schema");
    let version = table.required("version", value::text).map(str::to_owned);
    let timezone = table.optional("timezone", zone).unwrap_or_else(Zone::utc);
    let segments =
        table.node("segments").map_or_else(|| Some(BTreeMap::new()), |node| segments(document, node, bounds));
    let default = default(&mut table, bounds);
    let bypass = table.node("bypass").map_or_else(Vec::new, |node| bypass(document, node));
    let on_unavailable = table.node("on_unavailable").map_or_else(Vec::new, |node| on_unavailable(document, node));
    let quiet_hours = table.node("quiet_hours").and_then(|node| quiet_hours(document, node, bounds.may_defer));
    let stops = table.node("stop").map_or_else(Vec::new, |node| stops(document, node));
    let budgets =
        table.node("budgets").map_or_else(Vec::new, |node| budgets::budgets(document, node, bounds.may_defer));
    let pressure = table.node("pressure").and_then(|node| pressure::pressure(document, node, bounds.may_defer));
    let routes = table.node("routes").map_or_else(Vec::new, |node| routes::routes(document, node, bounds));
    let history_ms = bounds.history.retention_ms;
    let defer_max_ms = table.node("defer").and_then(|node| defer_max_ms(document, node, history_ms));
    let max_age_ms = table.optional("max_age", value::duration_ms);
    let shadow = table.optional("shadow", value::flag).unwrap_or(false);
    table.finish(|_| None);
    Some(Policy {
        version: version?,
        timezone,
        segments: segments?,
        default: default?,
        bypass,
        on_unavailable,
        quiet_hours,
        stops,
        pressure,
        budgets,
        routes,
        defer_max_ms: defer_max_ms.unwrap_or(DEFER_MAX_MS.min(history_ms)),
        max_age_ms,
        mode: if shadow { Mode::Shadow } else { Mode::Enforce },
    })
}

fn segments(document: &Document<'_>, node: &Node, bounds: PolicyBounds) -> Option<BTreeMap<String, Arc<Caps>>> {
    let table = Table::of(document, node, "segments")?;
    let mut segments = BTreeMap::new();
    for entry in table.entries() {
        let name = Node { origin: entry.origin.clone(), value: Value::Text(entry.key.clone()) };
        if let Err(reason) = value::text(&name) {
            document.note(&entry.origin, format!("the segment's name {:?} {reason}", entry.key));
        }
        if let Some(caps) = caps::of_segment(document, &entry.node, &table.path(&entry.key), bounds) {
            segments.insert(entry.key.clone(), Arc::new(caps));
        }
    }
    Some(segments)
}

fn default(table: &mut Table<'_>, bounds: PolicyBounds) -> Option<Arc<Caps>> {
    let Some(node) = table.node("default") else {
        table.note("needs `[default]`: the caps of users who are in no segment");
        return None;
    };
    caps::of_segment(table.document(), node, "default", bounds).map(Arc::new)
}

fn zone(node: &Node) -> Parsed<Zone> {
    let name = value::text(node)?;
    Zone::named(name).ok_or_else(|| {
        format!("must be the IANA name of a time zone, such as \"Asia/Singapore\" or \"UTC\", not {name:?}")
    })
}

fn bypass(document: &Document<'_>, node: &Node) -> Vec<Bypass> {
    let Value::List(rules) = &node.value else {
        document.note(&node.origin, "bypass must be a list of rules: in TOML, write [[bypass]] with two brackets");
        return Vec::new();
    };
    let rule = |(index, node)| bypass_rule(document, node, &format!("bypass[{index}]"));
    rules.iter().enumerate().filter_map(rule).collect()
}

fn bypass_rule(document: &Document<'_>, node: &Node, path: &str) -> Option<Bypass> {
    let mut table = Table::of(document, node, path)?;
    let selection = selection(&mut table, "which intents are never capped");
    let counts = table.optional("counts", value::flag).unwrap_or(true);
    table.finish(elsewhere);
    Some(Bypass { selection, counts: if counts { Counts::Yes } else { Counts::No } })
}

/// `channel`, `category` and `campaign`, at least one of them; `what` says what they select.
pub(super) fn selection(table: &mut Table<'_>, what: &str) -> Selection {
    let names_any = |entry: &crate::document::TableEntry| {
        ["channel", "category", "campaign"].contains(&&*entry.key) && entry.node.value != Value::Null
    };
    if !table.entries().iter().any(names_any) {
        table.note(&format!("needs at least one of `channel`, `category` and `campaign`: {what}"));
    }
    let filter = filter(table);
    let campaigns = table.optional("campaign", value::texts);
    Selection { filter, campaigns: campaigns.map(|names| names.into_iter().map(str::to_owned).collect()) }
}

fn stops(document: &Document<'_>, node: &Node) -> Vec<Selection> {
    let Value::List(rules) = &node.value else {
        document.note(&node.origin, "stop must be a list of rules: in TOML, write [[stop]] with two brackets");
        return Vec::new();
    };
    let rule = |(index, node)| {
        let mut table = Table::of(document, node, format!("stop[{index}]"))?;
        let selection = selection(&mut table, "which intents are not sent any more");
        table.finish(elsewhere);
        Some(selection)
    };
    rules.iter().enumerate().filter_map(rule).collect()
}

fn defer_max_ms(document: &Document<'_>, node: &Node, history_ms: i64) -> Option<i64> {
    let mut table = Table::of(document, node, "defer")?;
    let max_ms = table.required("max", |node| {
        let max_ms = value::duration_ms(node)?;
        let (longest, why) = if history_ms < LONGEST_MS {
            (history_ms, "redis.history: a replay must still be recognized")
        } else {
            (LONGEST_MS, "the hours that the topics have buckets for")
        };
        if max_ms <= longest { Ok(max_ms) } else { Err(format!("must be at most {} ({why})", in_words(longest))) }
    });
    table.finish(elsewhere);
    max_ms
}

fn on_unavailable(document: &Document<'_>, node: &Node) -> Vec<OnUnavailable> {
    let Value::List(rules) = &node.value else {
        document.note(
            &node.origin,
            "on_unavailable must be a list of rules: in TOML, write [[on_unavailable]] with two brackets",
        );
        return Vec::new();
    };
    let rule = |(index, node)| unavailable_rule(document, node, &format!("on_unavailable[{index}]"));
    rules.iter().enumerate().filter_map(rule).collect()
}

fn unavailable_rule(document: &Document<'_>, node: &Node, path: &str) -> Option<OnUnavailable> {
    let mut table = Table::of(document, node, path)?;
    let filter = filter(&mut table);
    let action = table.required("action", |node| value::one_of(node, &UNAVAILABLE));
    table.finish(elsewhere);
    Some(OnUnavailable { filter, action: action? })
}

fn quiet_hours(document: &Document<'_>, node: &Node, may_defer: bool) -> Option<QuietHours> {
    let mut table = Table::of(document, node, "quiet_hours")?;
    let from = table.required("from", time_of_day);
    let to = table.required("to", time_of_day);
    let then = table.required("action", |node| action(node, may_defer));
    let spread = table.node("spread").map(|node| node.origin.clone());
    let spread_ms = table.optional("spread", spread_of);
    if let (Some(origin), Some(Action::Suppress)) = (&spread, then) {
        table.note_at(origin, "spread", "needs action = \"defer\": what is suppressed does not return");
    }
    let filter = filter(&mut table);
    let (Some(from), Some(to)) = (from, to) else {
        table.finish(elsewhere);
        return None;
    };
    let quiet = QuietHours::new(from, to, filter);
    if quiet.is_none() {
        table.note_at(&node.origin, "from", "and quiet_hours.to must not be the same: leave [quiet_hours] out for never; for always, use a cap with limit = 0");
    }
    table.finish(elsewhere);
    match then? {
        Action::Suppress => quiet,
        Action::Defer => quiet.map(|quiet| quiet.deferring(spread_ms.unwrap_or(0))),
    }
}

fn spread_of(node: &Node) -> Parsed<i64> {
    let spread_ms = value::duration_ms(node)?;
    if spread_ms <= LONGEST_SPREAD_MS {
        return Ok(spread_ms);
    }
    Err(format!("must be at most {}", in_words(LONGEST_SPREAD_MS)))
}

fn time_of_day(node: &Node) -> Parsed<CivilTime> {
    let how = || Err(value::must_be("a time of day as \"HH:MM\", from \"00:00\" to \"23:59\"", node));
    let Value::Text(text) = &node.value else { return how() };
    let number = |digits: Option<&str>| {
        let digits = digits.filter(|digits| digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i8>().ok()
    };
    let colon = text.get(2..3) == Some(":");
    match (number(text.get(..2)), number(text.get(3..))) {
        (Some(hour), Some(minute)) if colon => CivilTime::new(hour, minute, 0, 0).or_else(|_| how()),
        (Some(_) | None, Some(_) | None) => how(),
    }
}
