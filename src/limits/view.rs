//! How limits stand, in the shapes that programs read: docs/http.md.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{
    basis::{document::value::in_words, time::Time},
    limit::{
        budget::{Budget, BudgetId, BudgetSpan, ledger::TakeAnswer},
        pressure::PressureRule,
        route::Route,
    },
};

use super::LimitKind;

/// What a limit counts over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitSpan {
    /// The length of a rolling window, as a policy writes it: `1h`.
    Window(String),
    /// A calendar period: `day`, `week` or `month`; or any `second`.
    Per(String),
    /// `true`: all time.
    Total(bool),
}

/// How a limit that instances share stands: the same words for each of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LimitView {
    /// What is limited.
    pub kind: LimitKind,
    /// Its name.
    pub name: String,
    /// The campaign of a budget; absent where the budget is one for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// What it counts over.
    #[serde(flatten)]
    pub span: LimitSpan,
    /// The most; null: it has no limit of its own.
    pub limit: Option<u64>,
    /// What all instances have used; null: not known.
    pub used: Option<u64>,
    /// What is left; null: not known.
    pub left: Option<u64>,
    /// What this instance may use without asking: of budgets and pressure what is left of it, of routes and services all that its last turn
    /// gave; null: not known.
    pub held: Option<u64>,
    /// What all instances hold, as if none of it were used; null: not known.
    pub leased: Option<u64>,
    /// The instances that share it, this one included; null: not known.
    pub members: Option<u64>,
    /// From when on it gives again; null: it does now, or never, or it is not known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub free_at: Option<Time>,
    /// Why it gives nothing now, or less than its limit; null: it does not.
    pub why: Option<String>,
    /// Whether what it is kept in answers; else the figures are the last that are known, and `why` says why.
    pub available: bool,
}

/// In words: `in any 1h`, `per day`, `in total`.
impl fmt::Display for LimitSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(length) => write!(f, "in any {length}"),
            Self::Per(period) => write!(f, "per {period}"),
            Self::Total(_) => write!(f, "in total"),
        }
    }
}

impl LimitSpan {
    fn of(span: &BudgetSpan) -> Self {
        match span {
            BudgetSpan::Rolling { text, .. } => Self::Window(text.to_string()),
            BudgetSpan::Per(period) => Self::Per(period.as_str().to_owned()),
            BudgetSpan::Total => Self::Total(true),
        }
    }

    fn minutes(minutes: u8) -> Self {
        Self::Window(in_words(i64::from(minutes) * 60_000))
    }

    pub(super) fn second() -> Self {
        Self::Per("second".to_owned())
    }
}

impl LimitView {
    /// Nothing is known of it but its limit.
    pub(super) fn bare(kind: LimitKind, name: &str, limit: Option<u64>, span: LimitSpan) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            campaign: None,
            span,
            limit,
            used: None,
            left: None,
            held: None,
            leased: None,
            members: None,
            free_at: None,
            why: None,
            available: false,
        }
    }

    /// The same where so much is used.
    pub(super) fn used(self, used: Option<u64>) -> Self {
        let left = self.limit.zip(used).map(|(limit, used)| limit.saturating_sub(used));
        Self { used, left, ..self }
    }

    /// A budget, as the ledger answered whether it has the tokens that it was asked for.
    #[must_use]
    pub fn of_budget(budget: &Budget, id: &BudgetId, answer: &TakeAnswer, now: Time) -> Self {
        let TakeAnswer { used, leased, free_in_ms, .. } = *answer;
        let why = match free_in_ms {
            Some(..=0) => None,
            Some(_) => Some("too little is left"),
            None => Some("too little is left, and it never frees"),
        };
        let free_at = free_in_ms.filter(|wait_ms| *wait_ms > 0).map(|wait_ms| now.plus(wait_ms));
        let why = why.map(str::to_owned);
        Self { leased: Some(leased), free_at, why, available: true, ..Self::of_id(budget, id, Some(used)) }
    }

    /// A budget whose ledger does not answer. `used`: what it answered last when this process took a lease.
    #[must_use]
    pub fn of_silent(budget: &Budget, id: &BudgetId, used: Option<u64>) -> Self {
        Self { why: Some("cannot be read from Redis".to_owned()), ..Self::of_id(budget, id, used) }
    }

    fn of_id(budget: &Budget, id: &BudgetId, used: Option<u64>) -> Self {
        let bare = Self::bare(LimitKind::Budget, &id.name, Some(budget.limit), LimitSpan::of(&budget.span));
        Self { campaign: id.campaign.as_deref().map(str::to_owned), ..bare.used(used) }
    }

    pub(super) fn of_pressure(most: u64, window_minutes: u8) -> Self {
        Self::bare(LimitKind::Pressure, "active users", Some(most), LimitSpan::minutes(window_minutes))
    }

    /// The policy's pressure, where nobody knows who is active.
    #[must_use]
    pub fn of_rule(rule: &PressureRule) -> Self {
        Self::of_pressure(rule.max_active_users, rule.window_minutes).not_looked_at("/v1/pressure")
    }

    /// A route, where nobody knows what it takes.
    #[must_use]
    pub fn of_route(route: &Route) -> Self {
        Self::bare(LimitKind::Route, &route.name, route.rate, LimitSpan::second()).not_looked_at("/v1/routes")
    }

    /// A service whose instances have registered so many admissions per second.
    #[must_use]
    pub fn of_service(service: &str, per_s: u64) -> Self {
        Self { available: true, ..Self::bare(LimitKind::Service, service, Some(per_s), LimitSpan::second()) }
    }

    /// The same where only a running instance knows how it stands: under this path.
    pub(super) fn not_looked_at(self, path: &str) -> Self {
        Self { why: Some(format!("not looked at here; ask GET {path} of a running instance")), ..self }
    }
}

#[cfg(test)]
mod tests;
