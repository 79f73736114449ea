//! How budgets stand, in the shapes that programs read: docs/http.md.

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{
    budget::{Budget, BudgetId, BudgetSpan},
    ledger::TakeAnswer,
    time::Time,
};

/// All budgets of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"budgets": [{
    "name": "spring", "limit": 1_000_000, "used": 640_000, "left": 360_000, "leased": 3_000, "held": 1_000, "total": true,
    "free_at": null, "available": true
}], "omitted": 0}))]
pub struct BudgetList {
    /// In the policy's order; of a budget per campaign, one for each campaign that this instance has decided for lately.
    pub budgets: Vec<BudgetView>,
    /// How many more there are: an answer has 1,000 at most.
    pub omitted: usize,
}

/// How a budget stands, over all instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BudgetView {
    /// Its name in the policy.
    pub name: String,
    /// The campaign; absent where the budget is one for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// The most that may be approved in its window, in costs.
    pub limit: u64,
    /// The tokens granted in its window, those in leases included; null where the ledger has never answered.
    pub used: Option<u64>,
    /// The tokens that can still be granted; null where the ledger has never answered.
    pub left: Option<u64>,
    /// The granted tokens that are in leases of all instances, as if none of them were spent; null where it is not known.
    pub leased: Option<u64>,
    /// The tokens that this instance holds and has not spent; absent in `weir explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// The length of a rolling window, as the policy writes it: `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// A calendar period: `day`, `week` or `month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// `true` where it looks back over all time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<bool>,
    /// From when on tokens can be granted; null where they can now, for never, and where it is not known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub free_at: Option<Time>,
    /// Whether the ledger answered; else the figures are the last that are known.
    pub available: bool,
}

/// A budget that each campaign has for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CampaignBudgets {
    /// Its name in the policy.
    pub name: String,
    /// The most that may be approved of a campaign in its window, in costs.
    pub limit: u64,
    /// The length of a rolling window, as the policy writes it: `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// A calendar period: `day`, `week` or `month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// `true` where it looks back over all time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<bool>,
    /// `campaign`.
    pub each: &'static str,
    /// The campaigns that this instance has decided for lately, by name.
    pub campaigns: Vec<BudgetView>,
    /// How many more there are: an answer has 1,000 at most.
    pub omitted: usize,
}

/// The budget of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneBudget {
    /// It is one for all campaigns.
    Every(BudgetView),
    /// Each campaign has one.
    Campaigns(CampaignBudgets),
}

/// The members `window`, `per` and `total`: one of them is there.
fn span(budget: &Budget) -> (Option<String>, Option<String>, Option<bool>) {
    match &budget.span {
        BudgetSpan::Rolling { text, .. } => (Some(text.to_string()), None, None),
        BudgetSpan::Per(period) => (None, Some(period.name().to_owned()), None),
        BudgetSpan::Total => (None, None, Some(true)),
    }
}

impl BudgetView {
    /// As the ledger answered.
    #[must_use]
    pub fn new(budget: &Budget, id: &BudgetId, answer: &TakeAnswer, now: Time) -> Self {
        let TakeAnswer { used, leased, free_in_ms, .. } = *answer;
        let free_at = free_in_ms.filter(|wait_ms| *wait_ms > 0).map(|wait_ms| now.plus(wait_ms));
        Self { leased: Some(leased), free_at, available: true, ..Self::bare(budget, id, Some(used)) }
    }

    /// Where the ledger does not answer: as it answered `before`, else as far as the leases of this process know what is used.
    #[must_use]
    pub fn unavailable(budget: &Budget, id: &BudgetId, before: Option<TakeAnswer>, used: Option<u64>) -> Self {
        let leased = before.map(|answer| answer.leased);
        Self { leased, ..Self::bare(budget, id, before.map(|answer| answer.used).or(used)) }
    }

    fn bare(budget: &Budget, id: &BudgetId, used: Option<u64>) -> Self {
        let (window, per, total) = span(budget);
        Self {
            name: id.name.to_string(),
            campaign: id.campaign.as_deref().map(str::to_owned),
            limit: budget.limit,
            used,
            left: used.map(|used| budget.limit.saturating_sub(used)),
            leased: None,
            held: None,
            window,
            per,
            total,
            free_at: None,
            available: false,
        }
    }
}

impl CampaignBudgets {
    pub(super) fn new(budget: &Budget, campaigns: Vec<BudgetView>, omitted: usize) -> Self {
        let (window, per, total) = span(budget);
        let (name, limit) = (budget.name.to_string(), budget.limit);
        Self { name, limit, window, per, total, each: "campaign", campaigns, omitted }
    }
}
