//! The caps of one segment.

use std::{collections::BTreeSet, sync::Arc};

use super::check::elsewhere;
use crate::{
    admit::MAX_CAPS,
    class::{Filter, MAX_NAME_BYTES},
    decide::Scope,
    document::{
        Document, Node, Table, Value,
        value::{self, Parsed, in_words},
    },
    policy::{Action, Cap, CapWindow, Caps, Period},
    policy_file::PolicyBounds,
};

const ACTIONS: [(&str, Action); 2] = [("suppress", Action::Suppress), ("defer", Action::Defer)];
pub(super) const PERIODS: [(&str, Period); 3] =
    [("day", Period::Day), ("week", Period::Week), ("month", Period::Month)];

/// The caps of a segment or of the default; `None` where something is wrong, which is noted.
pub(super) fn of_segment(document: &Document<'_>, node: &Node, path: &str, bounds: PolicyBounds) -> Option<Caps> {
    let mut table = Table::of(document, node, path)?;
    let caps = match table.node("caps") {
        Some(node) => caps(document, node, &table.path("caps"), bounds),
        None => {
            table.note(
                "needs `caps`: a list of caps, or caps = \"unlimited\" where nothing is to be counted against its users",
            );
            None
        }
    };
    table.finish(elsewhere);
    caps
}

fn caps(document: &Document<'_>, node: &Node, path: &str, bounds: PolicyBounds) -> Option<Caps> {
    let wrong = |reason: String| {
        document.note(&node.origin, format!("{path} {reason}"));
        None
    };
    if node.value == Value::Text("unlimited".to_owned()) {
        return Some(Caps::Unlimited);
    }
    let Value::List(items) = &node.value else {
        return wrong(value::must_be("a list of caps, or \"unlimited\"", node));
    };
    if items.is_empty() {
        return wrong(
            "must not be an empty list: write caps = \"unlimited\" for no caps, or a cap with limit = 0".into(),
        );
    }
    if items.len() > MAX_CAPS {
        return wrong(format!("must not have more than {MAX_CAPS} caps; it has {}", items.len()));
    }
    let cap = |(index, item)| cap(document, item, &format!("{path}[{index}]"), bounds);
    let caps: Vec<Option<Cap>> = items.iter().enumerate().map(cap).collect();
    let mut names = BTreeSet::new();
    for (cap, item) in caps.iter().zip(items) {
        if let Some(cap) = cap.as_ref().filter(|cap| !names.insert(Arc::clone(&cap.name))) {
            document.note(
                &item.origin,
                format!("{path} has two caps named {:?}: decisions name the cap that denied", cap.name),
            );
        }
    }
    caps.into_iter().collect::<Option<_>>().map(Caps::Limited)
}

fn cap(document: &Document<'_>, node: &Node, path: &str, bounds: PolicyBounds) -> Option<Cap> {
    let mut table = Table::of(document, node, path)?;
    let name = table.required("name", value::text);
    let limit = table.required("limit", |node| limit(node, bounds.history.max_entries));
    let window = window(&mut table, bounds.history);
    let filter = filter(&mut table);
    let each = table.optional("each", |node| value::one_of(node, &[("campaign", Scope::SameCampaign)]));
    let action = table.optional("action", |node| action(node, bounds.may_defer));
    table.finish(elsewhere);
    Some(Cap {
        name: name?.into(),
        limit: limit?,
        window: window?,
        filter: Arc::new(filter),
        scope: each.unwrap_or(Scope::Every),
        action: action.unwrap_or_default(),
    })
}

/// What becomes of an intent that may be sent later: `defer` needs topics to defer to.
pub(super) fn action(node: &Node, may_defer: bool) -> Parsed<Action> {
    match value::one_of(node, &ACTIONS)? {
        Action::Defer if !may_defer => Err("= \"defer\" needs topics to defer intents to: set kafka.deferred in the \
                                            configuration (such as deferred = \"send-deferred\"), or write \"suppress\""
            .into()),
        action @ (Action::Suppress | Action::Defer) => Ok(action),
    }
}

/// A limit; one above the entries that a history may have would never be reached.
fn limit(node: &Node, max_entries: u32) -> Parsed<u32> {
    let limit = value::whole(node, 0..=u32::MAX)?;
    if limit > max_entries {
        return Err(format!(
            "is {limit}, but redis.max_entries keeps the newest {max_entries} sends of a user: choose a lower one, or raise \
             redis.max_entries"
        ));
    }
    Ok(limit)
}

fn window(table: &mut Table<'_>, bounds: crate::history::HistoryBounds) -> Option<CapWindow> {
    let (window, per) = (table.node("window"), table.node("per"));
    let (key, node) = match (window, per) {
        (Some(node), None) => ("window", node),
        (None, Some(node)) => ("per", node),
        (Some(_), Some(_)) => {
            table.note("has both `window` and `per`: keep one");
            return None;
        }
        (None, None) => {
            table.note("needs `window` (such as \"24h\") or `per` (\"day\", \"week\" or \"month\")");
            return None;
        }
    };
    let window = if key == "window" {
        table.optional("window", sliding)?
    } else {
        CapWindow::Per(table.optional("per", |node| value::one_of(node, &PERIODS))?)
    };
    let longest_ms = window.longest_ms();
    if longest_ms > bounds.retention_ms {
        let reason = format!(
            "looks back up to {}, but redis.history keeps {}: choose a shorter one, or raise redis.history",
            in_words(longest_ms),
            in_words(bounds.retention_ms)
        );
        table.note_at(&node.origin, key, &reason);
    }
    Some(window)
}

fn sliding(node: &Node) -> Parsed<CapWindow> {
    let length_ms = value::duration_ms(node)?;
    Ok(CapWindow::Sliding { length_ms, text: value::text(node)?.into() })
}

/// `channel` and `category`, a string or a list each.
pub(super) fn filter(table: &mut Table<'_>) -> Filter {
    let set = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    Filter {
        channels: table.optional("channel", names).map(set),
        categories: table.optional("category", names).map(set),
    }
}

/// A name or a list of names, none longer than histories know them by.
fn names(node: &Node) -> Parsed<Vec<&str>> {
    let names = value::texts(node)?;
    match names.iter().find(|name| name.len() > MAX_NAME_BYTES) {
        None => Ok(names),
        Some(name) => Err(format!("has a name of {} bytes: at most {MAX_NAME_BYTES}", name.len())),
    }
}
