//! The budgets of a policy.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    caps::{PERIODS, action, filter},
    check::elsewhere,
};
use crate::{
    budget::{Budget, BudgetSpan, MAX_BUDGETS, MAX_LIMIT, WhenUnavailable},
    decide::Scope,
    document::{
        Document, Node, Table, Value,
        value::{self, Parsed, in_words},
    },
    policy::{Action, Selection},
};

/// The shortest rolling window: its buckets are 60, and a lease lasts a hundredth of it.
const SHORTEST_WINDOW_MS: i64 = 10 * 1000;
/// The longest rolling window.
const LONGEST_WINDOW_MS: i64 = 366 * 24 * 60 * 60 * 1000;

const UNAVAILABLE: [(&str, WhenUnavailable); 2] =
    [("wait", WhenUnavailable::Wait), ("suppress", WhenUnavailable::Suppress)];

/// The budgets, in their order; those that are wrong are noted.
pub(super) fn budgets(document: &Document<'_>, node: &Node, may_defer: bool) -> Vec<Budget> {
    let Value::List(items) = &node.value else {
        document.note(&node.origin, "budgets must be a list of budgets: in TOML, write [[budgets]] with two brackets");
        return Vec::new();
    };
    if items.len() > MAX_BUDGETS {
        let count = items.len();
        document.note(&node.origin, format!("budgets must not have more than {MAX_BUDGETS} budgets; it has {count}"));
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let mut budgets = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(budget) = budget(document, item, &format!("budgets[{index}]"), may_defer) else { continue };
        if !names.insert(Arc::clone(&budget.name)) {
            let name = &budget.name;
            document.note(
                &item.origin,
                format!("budgets has two budgets named {name:?}: decisions name the budget that denied"),
            );
        }
        budgets.push(budget);
    }
    budgets
}

fn budget(document: &Document<'_>, node: &Node, path: &str, may_defer: bool) -> Option<Budget> {
    let mut table = Table::of(document, node, path)?;
    let name = table.required("name", value::text);
    let filter = filter(&mut table);
    let campaigns = table.optional("campaign", value::texts);
    let each = table.optional("each", |node| value::one_of(node, &[("campaign", Scope::SameCampaign)]));
    let limit = table.required("limit", |node| value::whole(node, 0..=MAX_LIMIT));
    let span = span(&mut table);
    let best_effort = table.optional("best_effort", value::flag);
    let when_spent = table.optional("when_spent", |node| {
        let then = action(node, may_defer)?;
        match (&span, then) {
            (Some(BudgetSpan::Total), Action::Defer) => {
                Err("= \"defer\" needs `window` or `per`: what is spent in total never frees".into())
            }
            (_, then) => Ok(then),
        }
    });
    let on_unavailable = table.optional("on_unavailable", |node| value::one_of(node, &UNAVAILABLE));
    table.finish(elsewhere);
    let campaigns = campaigns.map(|names| names.into_iter().map(str::to_owned).collect());
    Some(Budget {
        name: name?.into(),
        selection: Selection { filter, campaigns },
        scope: each.unwrap_or(Scope::Every),
        limit: limit?,
        span: span?,
        best_effort: best_effort.unwrap_or(false),
        when_spent: when_spent.unwrap_or_default(),
        on_unavailable: on_unavailable.unwrap_or_default(),
    })
}

/// Exactly one of `window`, `per` and `total`.
fn span(table: &mut Table<'_>) -> Option<BudgetSpan> {
    let given: Vec<&str> = ["window", "per", "total"].into_iter().filter(|key| table.node(key).is_some()).collect();
    match given[..] {
        ["window"] => table.optional("window", rolling),
        ["per"] => table.optional("per", |node| value::one_of(node, &PERIODS).map(BudgetSpan::Per)),
        ["total"] => table.optional("total", total),
        [] => {
            table.note("needs `window` (such as \"1h\"), `per` (\"day\", \"week\" or \"month\") or `total = true`");
            None
        }
        [..] => {
            let all = given.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and ");
            table.note(&format!("has {all}: keep one"));
            None
        }
    }
}

fn rolling(node: &Node) -> Parsed<BudgetSpan> {
    let length_ms = value::duration_ms(node)?;
    if !(SHORTEST_WINDOW_MS..=LONGEST_WINDOW_MS).contains(&length_ms) {
        return Err(format!(
            "must be from {} to {}, not {}",
            in_words(SHORTEST_WINDOW_MS),
            in_words(LONGEST_WINDOW_MS),
            in_words(length_ms)
        ));
    }
    Ok(BudgetSpan::Rolling { length_ms, text: value::text(node)?.into() })
}

fn total(node: &Node) -> Parsed<BudgetSpan> {
    match value::flag(node)? {
        true => Ok(BudgetSpan::Total),
        false => Err("must be true, or left out".into()),
    }
}
