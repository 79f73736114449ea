//! What a query answers, in the shapes that programs read: docs/records.md and docs/http.md.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use weir_core::{
    basis::time::Time,
    decision::{
        envelope::SCHEMA,
        explain::{CampaignUse, CapUse, Next},
        verdict::{self, CapSpan, DenyingBudget, DenyingCap, SuppressReason, Suppressed},
    },
    history::{Entry, decide::Scope, named::NamedHistory},
    intent::{
        Intent,
        class::{Campaign, Filter},
    },
    policy::{CapWindow, Policy},
};

use crate::limits::LimitView;

/// What Redis still holds of a user once the history is deleted: the log of activity (`lua/sync.lua`) has the hashes of many users in
/// an entry, and removes entries by their age alone, when it gets others. If it gets none any more, all expire with the last one.
pub const STAYS_IN_REDIS: &str = "With [pressure] in the policy, a hash of the user id stays in the log of activity for its \
                                  window, and at most for twice that and 6 minutes.";

/// What was deleted of a user, and what stays. Records in Kafka stay until retention deletes them; until then weir rebuild brings
/// the sends of the approved topics back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Forgotten {
    /// The user, as asked for.
    pub user_id: String,
    /// How many sends were in the history.
    pub deleted: u64,
    /// What stays in Redis for a while, in words.
    pub stays_in_redis: String,
    /// The topics that may have records of the user. A name that ends in `-*` stands for one topic per route.
    pub kafka_topics: Vec<String>,
}

impl Forgotten {
    pub fn new(user_id: &str, deleted: u64, kafka_topics: &[String]) -> Self {
        Self {
            user_id: user_id.to_owned(),
            deleted,
            stays_in_redis: STAYS_IN_REDIS.to_owned(),
            kafka_topics: kafka_topics.to_vec(),
        }
    }
}

/// A user: segment, history, caps, and when the next send is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UserView {
    /// The user, as asked for.
    pub user_id: String,
    /// The segment that counts; null for a user in none.
    pub segment: Option<String>,
    /// All segments that the user is in, in the set's order; the first one counts. There should be one at most.
    pub segments: Vec<String>,
    /// The part of the policy that the user is held to: `segments.NAME`, or `default`.
    pub held_to: String,
    /// Whether that part counts nothing against the user.
    pub unlimited: bool,
    /// What was sent, oldest first.
    pub sends: Vec<SendView>,
    /// The caps, in the policy's order; none for an unlimited segment.
    pub caps: Vec<CapView>,
    /// The time from which all caps allow every intent of cost 1, of any channel, category and campaign, if nothing else is
    /// approved. Not before `asked_at`; null if a cap's limit is 0. It does not include quiet hours.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eligible_at: Option<Time>,
    /// The time from which the caps allow some intent of cost 1: one that only caps without a filter match. Not before
    /// `asked_at`, not after `eligible_at`; null for never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub soonest_at: Option<Time>,
    /// The end of the quiet hours of `timezone`; absent where it is not quiet now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub quiet_until: Option<Time>,
    /// The clock.
    #[schema(value_type = String, format = DateTime)]
    pub asked_at: Time,
    /// The time by which a send now would be judged: the clock, or the newest send where that is later.
    #[schema(value_type = String, format = DateTime)]
    pub judged_at: Time,
    /// Whether a send is more than five minutes ahead of the clock: the clock of a worker was wrong.
    pub ahead: bool,
    /// Why the clock, and with it each time here that is reckoned from it, is not to be relied on; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_trouble: Option<String>,
    /// The IANA name of the time zone of calendar windows.
    pub timezone: String,
    /// Whether the policy only reports, and everything is sent.
    pub shadow: bool,
    /// The policy in force.
    pub policy_version: String,
    /// The set of segments in force.
    pub segments_version: String,
}

/// One send of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SendView {
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub at: Time,
    /// Its channel; null where it had none.
    pub channel: Option<String>,
    /// Its category; null where it had none.
    pub category: Option<String>,
    /// Its campaign; null where it had none.
    pub campaign: Option<String>,
    /// What it takes from caps.
    pub cost: u8,
    /// The 48 bits of its id's XXH3 by which the history knows it, in hexadecimal.
    #[schema(min_length = 12, max_length = 12)]
    pub id_hash: String,
}

/// What one cap stands at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CapView {
    /// Its name in the policy.
    pub name: String,
    /// The most that may be sent in its window, in costs.
    pub limit: u32,
    /// What the sends in its window cost; with `each`, that of the campaign with most.
    pub used: u32,
    /// The length of a sliding window, as the policy writes it: `24h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// A calendar window: `day`, `week` or `month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// The time from which it allows an intent of cost 1, if nothing else is approved. Not before `asked_at`; null for never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Time>,
    /// The channels that it matches; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// The categories that it matches; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
    /// `campaign` where it counts each campaign by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// With `each`: the campaigns with a send in its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaigns: Option<Vec<CampaignView>>,
}

/// What one campaign takes of a cap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CampaignView {
    /// The campaign; null for sends without one.
    pub campaign: Option<String>,
    /// What its sends in the window cost.
    pub used: u32,
    /// The time from which the cap allows an intent of this campaign. Not before `asked_at`; null for never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Time>,
}

/// A decision on one intent: the envelope `weir.decision/2`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Decision {
    /// Name and version of this shape: `weir.decision/2`.
    pub schema: String,
    /// `approved`, `suppressed`, or `shadow-suppressed`: sent because the policy only reports.
    pub verdict: String,
    /// Why it is not sent; absent where it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<SuppressReason>,
    /// The intent's id.
    pub intent_id: String,
    /// The user. A string, also where the intent has a number.
    pub user_id: String,
    /// The user's segment; null for a user in none.
    pub segment: Option<String>,
    /// The cap that denied; there for reason `cap` alone. Where several denied, the one that frees last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<DecisionCap>,
    /// The budget that denied; there for reason `budget` alone. Where several denied, the one that frees last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<DecisionBudget>,
    /// The first moment at which this reason would let the same intent through, if nothing else is sent; null where
    /// there is none.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eligible_at: Option<Time>,
    /// The time by which it was judged; for one that was approved before, when that was.
    #[schema(value_type = String, format = DateTime)]
    pub decided_at: Time,
    /// Which policy decided.
    pub policy_version: String,
    /// By which segments.
    pub segments_version: String,
    /// Where the intent came from: no record, but the way it was asked about.
    pub origin: DecisionOrigin,
    /// The intent as it came.
    #[schema(value_type = Object)]
    pub intent: Box<RawValue>,
    /// Whether a bypass of the policy matches it, so that no cap is asked. Not part of the envelope.
    #[serde(skip)]
    pub bypassed: bool,
    /// Until when a worker defers it that has topics to defer intents to; `None` where the verdict stands. Not part of the
    /// envelope.
    #[serde(skip)]
    pub deferred_until: Option<Time>,
    /// The limits that instances share and that it takes from, as far as they were looked at. Not part of the envelope.
    #[serde(skip)]
    pub limits: Vec<LimitView>,
}

/// The cap that denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecisionCap {
    /// Its name in the policy.
    pub name: String,
    /// The most that may be sent in its window, in costs.
    pub limit: u32,
    /// The length of a sliding window, as the policy writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// A calendar window: `day`, `week` or `month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// What the window holds already, in costs.
    pub used: u32,
}

/// The budget that denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecisionBudget {
    /// Its name in the policy.
    pub name: String,
    /// The most that may be approved in its window, in costs.
    pub limit: u64,
    /// What the window holds already, in costs, with the tokens that instances hold.
    pub used: u64,
}

/// Where an intent came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecisionOrigin {
    /// `/v1/decisions` instead of a topic: no topic can have this name.
    #[schema(example = "/v1/decisions")]
    pub topic: String,
    /// 0.
    pub partition: i32,
    /// 0.
    pub offset: i64,
}

impl SendView {
    pub(super) fn new(entry: &Entry, history: &NamedHistory) -> Self {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        Self {
            at: entry.at,
            channel: owned(history.channel(entry.kind)),
            category: owned(history.category(entry.kind)),
            campaign: owned(history.campaign(entry.campaign)),
            cost: entry.cost,
            id_hash: format!("{:012x}", entry.id.0),
        }
    }
}

impl CapView {
    pub(super) fn new(cap_use: &CapUse<'_>, history: &NamedHistory, now: Time) -> Self {
        let CapUse { cap, used, next, next_new: _, campaigns } = cap_use;
        let (window, per) = match &cap.window {
            CapWindow::Sliding { text, .. } => (Some(text.to_string()), None),
            CapWindow::Per(period) => (None, Some(period.as_str().to_owned())),
        };
        let campaign = |one: &CampaignUse| CampaignView::new(one, history, now);
        let (each, campaigns) = match cap.scope {
            Scope::Every => (None, None),
            Scope::SameCampaign => (Some("campaign".to_owned()), Some(campaigns.iter().map(campaign).collect())),
        };
        let Filter { channels, categories } = &*cap.filter;
        let names = |set: &Option<std::collections::BTreeSet<String>>| {
            set.as_ref().map(|names| names.iter().cloned().collect())
        };
        Self {
            name: cap.name.to_string(),
            limit: cap.limit,
            used: *used,
            window,
            per,
            next_at: next.time(now),
            channels: names(channels),
            categories: names(categories),
            each,
            campaigns,
        }
    }
}

impl CampaignView {
    fn new(one: &CampaignUse, history: &NamedHistory, now: Time) -> Self {
        let CampaignUse { campaign, used, next } = *one;
        debug_assert!(campaign != Campaign::OVERFLOW, "what could be any campaign is in all of them");
        Self { campaign: history.campaign(campaign).map(str::to_owned), used, next_at: Next::time(next, now) }
    }
}

impl Decision {
    /// The same as [`weir_core::decision::envelope::envelope`] writes, to be kept.
    pub(super) fn new(decision: &verdict::Decision<'_>, intent: &Intent<'_>, policy: &Policy) -> Self {
        let suppressed = decision.verdict.suppressed();
        let cap = suppressed.and_then(|suppressed| suppressed.cause.cap()).map(DecisionCap::new);
        let budget = suppressed.and_then(|suppressed| suppressed.cause.budget()).map(DecisionBudget::new);
        let value = RawValue::from_string(intent.value().json().unwrap_or("null").to_owned());
        Self {
            schema: SCHEMA.to_owned(),
            verdict: decision.verdict.as_str().to_owned(),
            reason: suppressed.map(Suppressed::reason),
            intent_id: intent.id.to_string(),
            user_id: intent.user_id.to_string(),
            segment: decision.segment.map(str::to_owned),
            cap,
            budget,
            eligible_at: suppressed.and_then(|suppressed| suppressed.eligible_at),
            decided_at: decision.decided_at,
            policy_version: decision.policy_version.to_owned(),
            segments_version: decision.segments_version.to_owned(),
            origin: DecisionOrigin {
                topic: decision.origin.topic.to_owned(),
                partition: decision.origin.partition,
                offset: decision.origin.offset,
            },
            intent: value.expect("an intent's value was decoded, so it is JSON"),
            bypassed: policy.bypass.iter().any(|rule| rule.selection.matches(&intent.class())),
            deferred_until: None,
            limits: Vec::new(),
        }
    }
}

impl DecisionBudget {
    fn new(budget: &DenyingBudget<'_>) -> Self {
        let DenyingBudget { name, limit, used } = *budget;
        Self { name: name.to_owned(), limit, used }
    }
}

impl DecisionCap {
    fn new(cap: &DenyingCap<'_>) -> Self {
        let (window, per) = match cap.span {
            CapSpan::Window(text) => (Some(text.to_owned()), None),
            CapSpan::Per(period) => (None, Some(period.to_owned())),
        };
        Self { name: cap.name.to_owned(), limit: cap.limit, window, per, used: cap.used }
    }
}

#[cfg(test)]
mod tests;
