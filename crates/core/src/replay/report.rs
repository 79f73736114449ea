//! The report of a simulation: the shape of `--output json`, from which text and page are written too.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    counts::{CountsByName, VerdictCounts},
    outcome::ReplayOutcome,
    pressure::PressureTotals,
    routes::RouteTotals,
    tally::{BudgetTally, CapTally, PerPolicy, ReplayTally},
};
use crate::{
    basis::{document::value::in_words, time::Time},
    decision::verdict::SuppressReason,
    history::decide::Scope,
    intent::dead_letter::DeadLetterReason,
    limit::budget::Budget,
    policy::{Mode, Policy},
};

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

impl DeferralCounts {
    pub(super) fn add(&mut self, outcome: &ReplayOutcome) {
        self.intents += u64::from(outcome.deferred);
        self.waiting += u64::from(outcome.ruling.is_none());
    }
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

/// What a budget looks back over, in words: `in any 1h`, `per day of each campaign`.
fn budget_window(budget: &Budget) -> String {
    match budget.scope {
        Scope::Every => budget.span.to_string(),
        Scope::SameCampaign => format!("{} of each campaign", budget.span),
    }
}

impl ReplayTally {
    /// The report. `names` are the policies', as they were asked for; at most `shown` users are listed.
    pub fn report(&self, source: ReplaySource, names: &[String], shown: usize) -> Report {
        let policy = |(number, (policy, name)): (usize, (&Arc<Policy>, &String))| Totals {
            policy: name.clone(),
            version: policy.version.clone(),
            shadow: policy.mode == Mode::Shadow,
            counts: self.totals[number],
            deferred: self.deferrals[number],
            pressure: self.pressure(number, policy),
            routes: self.routes[number].clone(),
        };
        Report {
            schema: Shape::V1,
            source,
            from: self.span.map(|(first, _)| first),
            to: self.span.map(|(_, last)| last),
            timezone: self.zone.name(),
            policies: self.policies.iter().zip(names).enumerate().map(policy).collect(),
            segments: self.names(&self.segments),
            caps: self.caps.iter().flat_map(|(name, caps)| caps.iter().map(move |cap| self.cap(name, cap))).collect(),
            budgets: self.budgets.iter().map(|(name, tally)| self.budget(name, tally)).collect(),
            reasons: self.reasons.iter().map(|(reason, counts)| self.reason(*reason, counts)).collect(),
            channels: self.names(&self.channels),
            categories: self.names(&self.categories),
            hours: self
                .hours
                .iter()
                .map(|(begin, counts)| HourRow { begin: *begin, outcomes: self.each(counts) })
                .collect(),
            hours_of_day: self.hours_of_day.iter().map(|counts| self.each(counts)).collect(),
            users: self.users(shown),
        }
    }

    fn pressure(&self, number: usize, policy: &Policy) -> Option<PressureTotals> {
        let (rule, peak) = (policy.pressure.as_ref()?, self.peaks[number]);
        Some(PressureTotals {
            max_active_users: rule.max_active_users,
            window: in_words(rule.window_ms()),
            peak_active_users: peak.active_users,
            peak_at: peak.at,
            suppressed: self.reasons.get(&SuppressReason::Pressure).map_or(0, |counts| counts[number]),
            deferred: peak.deferred,
        })
    }

    fn each(&self, counts: &PerPolicy<VerdictCounts>) -> Vec<VerdictCounts> {
        counts[..self.policies.len()].to_vec()
    }

    /// How many more in the first of two.
    fn difference(&self, counts: &PerPolicy<u64>) -> Option<i64> {
        (self.policies.len() > 1).then(|| counts[0].cast_signed().saturating_sub(counts[1].cast_signed()))
    }

    fn names(&self, names: &CountsByName<PerPolicy<VerdictCounts>>) -> Vec<NameRow> {
        let row = |(name, counts): (Option<&str>, &PerPolicy<VerdictCounts>)| NameRow {
            name: name.map(str::to_owned),
            outcomes: self.each(counts),
            difference: self.difference(&counts.map(|counts| counts.sent())),
        };
        names.iter().map(row).collect()
    }

    fn cap(&self, segment: Option<&str>, (name, tally): (&String, &CapTally)) -> CapRow {
        let policies = self.policies.len();
        let caps = tally.caps.iter().take(policies);
        CapRow {
            segment: segment.map(str::to_owned),
            cap: name.clone(),
            limits: caps.clone().map(|cap| cap.as_ref().map(|cap| cap.limit)).collect(),
            windows: caps.map(|cap| cap.as_ref().map(|cap| cap.window.to_string())).collect(),
            suppressed: tally.suppressed[..policies].to_vec(),
            difference: self.difference(&tally.suppressed),
        }
    }

    fn budget(&self, name: &str, tally: &BudgetTally) -> BudgetRow {
        let policies = self.policies.len();
        let budgets = tally.budgets.iter().take(policies);
        BudgetRow {
            budget: name.to_owned(),
            limits: budgets.clone().map(|budget| budget.as_ref().map(|budget| budget.limit)).collect(),
            windows: budgets.map(|budget| budget.as_ref().map(budget_window)).collect(),
            suppressed: tally.suppressed[..policies].to_vec(),
            first_spent: tally.first_spent[..policies].to_vec(),
            difference: self.difference(&tally.suppressed),
        }
    }

    fn reason(&self, reason: SuppressReason, counts: &PerPolicy<u64>) -> ReasonRow {
        ReasonRow { reason, suppressed: counts[..self.policies.len()].to_vec(), difference: self.difference(counts) }
    }

    fn users(&self, shown: usize) -> Users {
        let policies = self.policies.len();
        let spread = self
            .users
            .spread()
            .into_iter()
            .map(|(approved, users)| Spread { approved, users: users[..policies].to_vec() });
        let spread = spread.filter(|row| row.users.iter().any(|&users| users > 0)).collect();
        let changed = (policies > 1).then(|| {
            let (mut more, mut fewer, mut first) = (0, 0, Vec::new());
            for (user, segment) in self.changed_users() {
                more += u64::from(user.approved[0] > user.approved[1]);
                fewer += u64::from(user.approved[0] < user.approved[1]);
                if first.len() < shown {
                    first.push(ChangedUser {
                        user_id: user.user_id.to_string(),
                        segment: segment.map(str::to_owned),
                        approved: user.approved.to_vec(),
                    });
                }
            }
            Changes { more, fewer, first, intents: self.intents }
        });
        Users { seen: self.users.len(), approved_per_user: spread, changed }
    }
}
