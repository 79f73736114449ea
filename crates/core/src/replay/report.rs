//! The report of a simulation: the shape of `--output json`, from which text and page are written too.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{counts::VerdictCounts, pressure::PressureTotals, routes::RouteTotals};
use crate::{basis::time::Time, decision::verdict::SuppressReason, intent::dead_letter::DeadLetterReason};

/// Name and version of the report's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Shape {
    /// The only version.
    #[serde(rename = "weir.simulation/1")]
    V1,
}

/// The replayed intents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Source")]
pub struct ReplaySource {
    /// The file or topic of the intents.
    pub intents: String,
    /// Records read in the requested time.
    pub records: u64,
    /// Invalid records, by reason.
    pub dead_letters: BTreeMap<&'static str, u64>,
    /// Intents that were skipped because they have no time.
    pub without_time: u64,
    /// Source of the approvals before the first intent; null if every history began empty.
    pub history: Option<String>,
    /// Number of past approvals in the histories at the start.
    pub history_sends: u64,
    /// Version of the segments; null without segments.
    pub segments_version: Option<String>,
    /// Warnings about the figures.
    pub notes: Vec<String>,
}

impl ReplaySource {
    pub fn dead_letter(&mut self, reason: DeadLetterReason) {
        *self.dead_letters.entry(reason.as_str()).or_default() += 1;
    }
}

/// A policy and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Where it was read from.
    pub policy: String,
    /// Its version.
    pub version: String,
    /// Whether it is in shadow mode.
    pub shadow: bool,
    /// The verdicts on all intents that got one.
    #[serde(flatten)]
    pub counts: VerdictCounts,
    /// Its deferrals.
    pub deferred: DeferralCounts,
    /// Its pressure; null where it has none.
    pub pressure: Option<PressureTotals>,
    /// Its routes.
    pub routes: Vec<RouteTotals>,
}

/// How many intents a policy deferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeferralCounts {
    /// Deferred, once or more often.
    pub intents: u64,
    /// Still deferred at the end, so without a verdict.
    pub waiting: u64,
}

/// A segment, channel or category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NameRow {
    /// Its name; null for intents without one.
    pub name: Option<String>,
    /// The verdicts on its intents, one entry per policy, in their order.
    pub outcomes: Vec<VerdictCounts>,
    /// With two policies: how many more the first approves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
}

/// A cap of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CapRow {
    /// The segment; null for users in none.
    pub segment: Option<String>,
    /// The cap's name.
    pub cap: String,
    /// Its limit, one entry per policy; null in a policy without this cap.
    pub limits: Vec<Option<u32>>,
    /// Its window, in words, one entry per policy.
    pub windows: Vec<Option<String>>,
    /// How many intents it suppressed, one entry per policy.
    pub suppressed: Vec<u64>,
    /// With two policies: how many more under the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
}

/// A budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BudgetRow {
    /// The budget's name.
    pub budget: String,
    /// Its limit, one entry per policy; null in a policy without this budget.
    pub limits: Vec<Option<u64>>,
    /// Its window, in words, one entry per policy.
    pub windows: Vec<Option<String>>,
    /// How many intents it suppressed, one entry per policy; of all campaigns, where each has one.
    pub suppressed: Vec<u64>,
    /// When it first had too little left for an intent, one entry per policy; null where it never had.
    pub first_spent: Vec<Option<Time>>,
    /// With two policies: how many more it suppressed under the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
}

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReasonRow {
    /// The reason.
    pub reason: SuppressReason,
    /// How many intents it suppressed (or would have, in shadow mode), one entry per policy.
    pub suppressed: Vec<u64>,
    /// With two policies: how many more under the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
}

/// An hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HourRow {
    /// When it began.
    pub begin: Time,
    /// The verdicts given in it, one entry per policy.
    pub outcomes: Vec<VerdictCounts>,
}

/// How many users got a number of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spread {
    /// The number of messages.
    pub approved: u32,
    /// How many users, one entry per policy.
    pub users: Vec<u64>,
}

/// A user for whom the policies differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedUser {
    /// The user.
    pub user_id: String,
    /// The user's segment; null in none.
    pub segment: Option<String>,
    /// How many messages were approved, one entry per policy.
    pub approved: Vec<u32>,
}

/// Intents on which two policies differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedIntents {
    /// Approved under the first only.
    pub newly_approved: u64,
    /// Approved under the second only.
    pub newly_suppressed: u64,
}

/// Users for whom two policies differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changes {
    /// How many users get more under the first.
    pub more: u64,
    /// How many users get fewer under the first.
    pub fewer: u64,
    /// Those with the largest difference.
    pub first: Vec<ChangedUser>,
    /// The intents.
    pub intents: ChangedIntents,
}

/// Users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Users {
    /// How many had an intent.
    pub seen: u64,
    /// How many users got each number of messages, ascending.
    pub approved_per_user: Vec<Spread>,
    /// With two policies: users who get another number of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changes>,
}

/// The result of a replay of past intents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "weir simulation", extend("$id" = "weir.simulation/1"))]
pub struct Report {
    /// Name and version of this format.
    pub schema: Shape,
    /// The replayed intents.
    pub source: ReplaySource,
    /// The first intent's time; null without intents.
    pub from: Option<Time>,
    /// The last one's.
    pub to: Option<Time>,
    /// The zone of the hours: the first policy's.
    pub timezone: &'static str,
    /// The policies: the simulated one, then the one it is compared with.
    pub policies: Vec<Totals>,
    /// By segment.
    pub segments: Vec<NameRow>,
    /// By cap, also caps that suppressed nothing.
    pub caps: Vec<CapRow>,
    /// By budget, also budgets that suppressed nothing.
    pub budgets: Vec<BudgetRow>,
    /// By reason.
    pub reasons: Vec<ReasonRow>,
    /// By channel.
    pub channels: Vec<NameRow>,
    /// By category.
    pub categories: Vec<NameRow>,
    /// By hour with a verdict.
    pub hours: Vec<HourRow>,
    /// By hour of the day, 0 to 23: the verdicts given in it, one entry per policy.
    pub hours_of_day: Vec<Vec<VerdictCounts>>,
    /// Users.
    pub users: Users,
}
