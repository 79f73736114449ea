//! The budgets of a policy.

use std::ops::RangeInclusive;

use super::{
    caps::{EACH, PERIODS, action, selection},
    forms::{Check, Form, between, flag, names, text, whole, word},
    options::{Declared, ValueAt, options},
};
use crate::{
    basis::document::value::{self, Parsed},
    history::decide::Scope,
    limit::budget::{Budget, BudgetSpan, MAX_LIMIT, WhenUnavailable},
    policy::Action,
};

/// The bounds of a rolling window. The shortest has 60 buckets, and a lease lasts a hundredth of it.
const WINDOW_MS: RangeInclusive<i64> = 10 * 1000..=366 * 24 * 60 * 60 * 1000;

const UNAVAILABLE: &[(&str, WhenUnavailable)] =
    &[("wait", WhenUnavailable::Wait), ("suppress", WhenUnavailable::Suppress)];

options! {
    BudgetOptions -> Budget, "Budget",
    "One budget: all intents that it matches take their cost from it. Without channel, category and campaign, all intents do.",
    oneOf(window, per, total) "needs `window` (such as \"1h\"), `per` (\"day\", \"week\" or \"month\") or `total = true`" {
        name: required, text(),
            "Its name, unique in the policy; decisions name the budget that denied, and the budgets that an intent took from.";
        channel: optional, names(), "Only intents of these channels take from it.";
        category: optional, names(), "Only intents of these categories take from it.";
        campaign: optional, names(), "Only intents of these campaigns take from it.";
        each: or(Scope::Every), word(EACH),
            r#""campaign": each campaign has a budget of its own; intents without one take nothing."#;
        limit: required, whole(0..=MAX_LIMIT),
            "The largest sum of costs in the window (an intent's cost is 1 by default). 0: never.";
        window: optional, between(WINDOW_MS).and(rolling), r#"Rolling window: "1h". From "10s" to "366d"."#;
        per: optional, word(PERIODS).and(|period, _| Ok(BudgetSpan::Per(period))),
            "Calendar period in the policy's time zone; weeks begin on Monday.";
        total: optional, Check { form: Form::True, ..flag() }.and(in_total), "true: a budget that never frees.";
        best_effort: or_default, flag(),
            "true: tokens are granted one by one, so that the last of them are used, too. Default: false.";
        when_spent: or_default, action(), "The action for intents when the budget is spent. Default: suppress.";
        on_unavailable: or_default, word(UNAVAILABLE),
            "The action for intents without a token once Redis has been unavailable for redis.unavailable_after. wait (default): until\n\
             Redis is available. suppress: suppressed as unavailable.";
    }
    |at| {
        if total.is_some() && when_spent == Action::Defer {
            at.note_option("when_spent", "= \"defer\" needs `window` or `per`: what is spent in total never frees");
        }
        Some(Budget {
            name: name?,
            selection: selection(channel, category, campaign),
            scope: each,
            limit: limit?,
            span: window.or(per).or(total)?,
            best_effort,
            when_spent,
            on_unavailable,
        })
    }
}

fn rolling(length_ms: i64, at: &ValueAt<'_>) -> Parsed<BudgetSpan> {
    Ok(BudgetSpan::Rolling { length_ms, text: value::text(at.node)?.into() })
}

fn in_total(is_total: bool, _: &ValueAt<'_>) -> Parsed<BudgetSpan> {
    if is_total { Ok(BudgetSpan::Total) } else { Err("must be true, or left out".into()) }
}
