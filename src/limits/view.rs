//! How limits stand, in the shapes that programs read: docs/http.md.

use std::{fmt, time::Duration};

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
use weir_worker::{pressure::PressureSeen, routes::RouteSeen};

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// What may be approved, in costs.
    Budget,
    /// The users who are active.
    Pressure,
    /// Intents per second, as delivery takes them.
    Route,
    /// Admissions per second, as the instances of a service have registered.
    Service,
}

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

/// Budgets of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"budgets": [{
    "kind": "budget", "name": "spring", "total": true, "limit": 1_000_000, "used": 640_000, "left": 360_000, "held": 1_000,
    "leased": 3_000, "members": null, "free_at": null, "why": null, "available": true
}], "omitted": 0}))]
pub struct BudgetList {
    /// In the policy's order; of a budget per campaign, one for each campaign that this instance has decided for lately.
    pub budgets: Vec<LimitView>,
    /// How many more there are: an answer has 1,000 at most.
    pub omitted: usize,
}

/// How pressure stands, over all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "kind": "pressure", "name": "active users", "window": "30m", "limit": 1_000_000, "used": 812_345, "left": 187_655,
    "held": 46_913, "leased": null, "members": 4, "free_at": null, "why": null, "available": true,
    "exempt_users": 4_210, "throttling": false, "sync_age_s": 0.4
}))]
pub struct PressureView {
    /// `used`: the users who are active in the window, estimated within 2%. `held`: how many more may become active by this
    /// instance's approvals before it asks again, once a second.
    #[serde(flatten)]
    pub shared: LimitView,
    /// How many of the active users became so in the window through this instance, by approved intents that the policy's pressure
    /// does not apply to. The limit does not bound these. Counted since this instance started, or took up another maximum or window.
    pub exempt_users: u64,
    /// Whether intents of inactive users are denied: starts at 99% of the limit, ends below 95%.
    pub throttling: bool,
    /// The age of what this instance knows of others: seconds since the log of activity last answered.
    #[schema(minimum = 0)]
    pub sync_age_s: f64,
}

/// How a route stands, over all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "kind": "route", "name": "email", "per": "second", "limit": 500, "used": null, "left": null, "held": 210, "leased": 470,
    "members": 2, "free_at": null, "why": "delivery takes no more", "available": true, "drain_per_s": 480.0,
    "registered_per_s": null, "reserved": 40, "lag": 14_200, "waiting": 81_000, "waiting_by_partition": [40_500, 0, 40_500],
    "oldest_waiting_s": 95.0, "expected_wait_s": 168.7
}))]
pub struct RouteView {
    /// `limit`: of the route's rate and what its service has registered the smaller one. `held`: the permits that this instance was
    /// granted by its last turn, about twice a second. `leased`: those of all instances, and those that others have just used.
    #[serde(flatten)]
    pub shared: LimitView,
    /// What delivery takes per second, as weir reckons.
    #[schema(minimum = 0)]
    pub drain_per_s: f64,
    /// What the service's instances have registered per second; null: the route has no service.
    pub registered_per_s: Option<u64>,
    /// The permits of this instance that only reserved intents may take.
    pub reserved: u64,
    /// Approved intents that the consumer group has not committed; null: not known, or the route has no group.
    pub lag: Option<u64>,
    /// Intents that wait for the route at the most: transactions take up offsets, too.
    pub waiting: u64,
    /// The same by partition of the route's topic.
    pub waiting_by_partition: Vec<u64>,
    /// How long the oldest of them has waited, at the least; null: none waits, or it is not known.
    #[schema(minimum = 0)]
    pub oldest_waiting_s: Option<f64>,
    /// How long an intent waits that comes now.
    #[schema(minimum = 0)]
    pub expected_wait_s: f64,
}

impl LimitKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Pressure => "pressure",
            Self::Route => "route",
            Self::Service => "service",
        }
    }
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

    fn second() -> Self {
        Self::Per("second".to_owned())
    }
}

impl LimitView {
    /// Nothing is known of it but its limit.
    fn bare(kind: LimitKind, name: &str, limit: Option<u64>, span: LimitSpan) -> Self {
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
    fn used(self, used: Option<u64>) -> Self {
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

    /// A budget whose ledger does not answer: as it answered `before`, else as far as the leases of this process know what is used.
    #[must_use]
    pub fn of_silent(budget: &Budget, id: &BudgetId, before: Option<TakeAnswer>, used: Option<u64>) -> Self {
        let why = Some("cannot be read from Redis".to_owned());
        let leased = before.map(|answer| answer.leased);
        Self { leased, why, ..Self::of_id(budget, id, before.map(|answer| answer.used).or(used)) }
    }

    fn of_id(budget: &Budget, id: &BudgetId, used: Option<u64>) -> Self {
        let bare = Self::bare(LimitKind::Budget, &id.name, Some(budget.limit), LimitSpan::of(&budget.span));
        Self { campaign: id.campaign.as_deref().map(str::to_owned), ..bare.used(used) }
    }

    fn of_pressure(most: u64, window_minutes: u8) -> Self {
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

    fn not_looked_at(self, path: &str) -> Self {
        Self { why: Some(format!("not looked at here; ask GET {path} of a running instance")), ..self }
    }
}

impl PressureView {
    /// When so much has passed by the monotonic clock.
    pub(super) fn new(seen: &PressureSeen, passed: Duration) -> Self {
        let throttled =
            seen.throttling.then_some("throttling: intents that it applies to are approved for active users only");
        let silent = seen.unsynced.as_ref().map(|silence| silence.why.clone());
        let bare = LimitView::of_pressure(seen.max_active_users, seen.window_minutes).used(Some(seen.active_users));
        let shared = LimitView {
            held: Some(seen.places),
            members: Some(seen.members),
            available: silent.is_none(),
            why: silent.or(throttled.map(str::to_owned)),
            ..bare
        };
        let sync_age_s = passed.saturating_sub(seen.synced_at).as_secs_f64();
        Self { shared, exempt_users: seen.exempt_users, throttling: seen.throttling, sync_age_s }
    }
}

impl RouteView {
    pub(super) fn new(name: &str, seen: &RouteSeen) -> Self {
        let RouteSeen {
            known,
            ceiling_per_s,
            permits,
            reserved,
            held_by_others,
            members,
            throttle: _,
            trouble,
            silent_since: _,
            behind,
        } = seen;
        let shared = LimitView {
            held: Some(*permits),
            leased: Some(permits + held_by_others),
            members: Some(*members),
            why: trouble.as_ref().or(behind.as_ref()).or(known.why.as_ref()).cloned(),
            available: trouble.is_none(),
            ..LimitView::bare(LimitKind::Route, name, *ceiling_per_s, LimitSpan::second())
        };
        Self {
            shared,
            drain_per_s: known.drain_per_s,
            registered_per_s: known.registered_per_s,
            reserved: *reserved,
            lag: known.lag,
            waiting: known.waiting(),
            waiting_by_partition: known.waiting.clone(),
            oldest_waiting_s: known.oldest_waiting_ms.map(seconds),
            expected_wait_s: seconds(known.expected_wait_ms()),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

#[cfg(test)]
mod tests;
