//! The JSON Schema of a policy, from types that have the shape of the file. Editors complete and check by it;
//! weir itself goes by `check`, which says more. A test keeps the two to the same keys and verdicts.

mod routes;

use std::collections::BTreeMap;

use schemars::{JsonSchema, schema_for};

use self::routes::Route;
use crate::{
    activity::MAX_ACTIVE_USERS,
    admit::MAX_CAPS,
    budget::{MAX_BUDGETS, MAX_LIMIT},
    document::value::{DURATION_PATTERN, MAX_TEXT_BYTES},
};

/// The schema as it is checked in at `schemas/policy.schema.json`.
#[must_use]
pub fn schema_text() -> String {
    let schema = schema_for!(PolicyFile);
    format!("{:#}\n", schema.as_value())
}

/// A policy: each segment's caps, bypasses, and quiet hours.
#[derive(JsonSchema)]
#[schemars(title = "weir policy", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct PolicyFile {
    /// This schema, for editors.
    #[schemars(rename = "$schema")]
    schema: Option<String>,
    /// The policy's version; every decision names it.
    #[schemars(length(min = 1, max = MAX_TEXT_BYTES))]
    version: String,
    /// IANA time zone for intents that name none, for calendar windows and quiet hours. Default: UTC.
    timezone: Option<String>,
    /// Each segment's caps, by the segment's name.
    #[schemars(default)]
    segments: BTreeMap<String, Segment>,
    /// Users in no segment, or in one that is not named here.
    default: Segment,
    /// Intents that are never capped; the first matching rule decides whether they count.
    #[schemars(default)]
    bypass: Vec<BypassRule>,
    /// Actions for intents whose history is unavailable for longer than redis.unavailable_after. The first matching rule
    /// decides; intents without one wait.
    #[schemars(default)]
    on_unavailable: Vec<UnavailableRule>,
    /// Hours without messages, by the user's clock.
    quiet_hours: Option<QuietHours>,
    /// Intents that are not sent any more: they are suppressed as stopped, deferred intents at the latest when they are due.
    #[schemars(default)]
    stop: Vec<StopRule>,
    /// The most that may be approved in a window, over all users and instances.
    #[schemars(default, length(max = MAX_BUDGETS))]
    budgets: Vec<Budget>,
    /// The most users that may be active at a time.
    pressure: Option<Pressure>,
    /// Where approved intents are delivered, and how fast; the first matching route counts. Intents without one are not paced.
    #[schemars(default, length(max = 64))]
    routes: Vec<Route>,
    /// Bounds of deferral.
    defer: Option<Defer>,
    /// Older intents (by created_at, else Kafka's time) are suppressed as expired: "6h".
    max_age: Option<Duration>,
    /// true: decide and report, but approve every intent. Default: false.
    #[schemars(default)]
    shadow: bool,
}

/// One segment.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Segment {
    caps: Caps,
}

/// The caps, which must all allow an intent; or "unlimited": nothing is counted against its users.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Caps {
    Limited(#[schemars(length(min = 1, max = MAX_CAPS))] Vec<Cap>),
    Unlimited(Unlimited),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum Unlimited {
    Unlimited,
}

/// One cap.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("oneOf" = [{"required": ["window"]}, {"required": ["per"]}]))]
#[expect(dead_code, reason = "only its schema is used")]
struct Cap {
    /// Its name, unique in the segment; decisions name the cap that denied.
    #[schemars(length(min = 1, max = MAX_TEXT_BYTES))]
    name: String,
    /// The largest sum of costs in the window (an intent's cost is 1 by default). 0: never.
    #[schemars(range(max = u32::MAX))]
    limit: u32,
    /// Sliding window: "24h". Not longer than redis.history.
    window: Option<Duration>,
    /// Calendar window in the user's time zone; weeks begin on Monday.
    per: Option<Period>,
    /// The cap applies only to intents of these channels, and only these count.
    channel: Option<Names>,
    /// The cap applies only to intents of these categories, and only these count.
    category: Option<Names>,
    /// "campaign": only approved intents of the same campaign count.
    each: Option<Each>,
    /// The action for intents that the cap denies. Default: suppress.
    action: Option<Action>,
}

/// suppress: suppressed, with eligible_at. defer: decided again when it may be sent; needs kafka.deferred.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum Action {
    Suppress,
    Defer,
}

/// Intents that are not sent any more. At least one of channel, category and campaign; an intent must fit all that are given.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("anyOf" = [{"required": ["channel"]}, {"required": ["category"]}, {"required": ["campaign"]}])
)]
#[expect(dead_code, reason = "only its schema is used")]
struct StopRule {
    /// The channels.
    channel: Option<Names>,
    /// The categories.
    category: Option<Names>,
    /// The campaigns.
    campaign: Option<Names>,
}

/// One budget: all intents that it matches take their cost from it. Without channel, category and campaign, all intents do.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("oneOf" = [{"required": ["window"]}, {"required": ["per"]}, {"required": ["total"]}])
)]
#[expect(dead_code, reason = "only its schema is used")]
struct Budget {
    /// Its name, unique in the policy; decisions name the budget that denied, and the budgets that an intent took from.
    #[schemars(length(min = 1, max = MAX_TEXT_BYTES))]
    name: String,
    /// Only intents of these channels take from it.
    channel: Option<Names>,
    /// Only intents of these categories take from it.
    category: Option<Names>,
    /// Only intents of these campaigns take from it.
    campaign: Option<Names>,
    /// "campaign": each campaign has a budget of its own; intents without one take nothing.
    each: Option<Each>,
    /// The largest sum of costs in the window (an intent's cost is 1 by default). 0: never.
    #[schemars(range(max = MAX_LIMIT))]
    limit: u64,
    /// Rolling window: "1h". From "10s" to "366d".
    window: Option<Duration>,
    /// Calendar period in the policy's time zone; weeks begin on Monday.
    per: Option<Period>,
    /// true: a budget that never frees.
    #[schemars(extend("enum" = [true, null]))]
    total: Option<bool>,
    /// true: tokens are granted one by one, so that the last of them are used, too. Default: false.
    best_effort: Option<bool>,
    /// The action for intents when the budget is spent. Default: suppress.
    when_spent: Option<Action>,
    /// The action while Redis is unavailable and the tokens that this instance holds are spent. wait (default): until Redis is
    /// available. suppress: suppressed as unavailable.
    on_unavailable: Option<BudgetUnavailable>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum BudgetUnavailable {
    Wait,
    Suppress,
}

/// Pressure: active users still get messages, and others only while fewer than the maximum are active. A user is active who had
/// an approved intent of any kind in the window, or was reported as active. Without channel and category, it applies to all intents.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Pressure {
    /// The most users that may be active. weir takes 24 bytes of memory for each.
    #[schemars(range(min = 1, max = MAX_ACTIVE_USERS))]
    max_active_users: u64,
    /// For how long a user is active: whole minutes, "30m" (the default), at most "2h".
    window: Option<Duration>,
    /// Only intents of these channels.
    channel: Option<Names>,
    /// Only intents of these categories.
    category: Option<Names>,
    /// The action for intents of users who may not become active now. Default: suppress.
    action: Option<Action>,
}

/// Bounds of deferral.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Defer {
    /// The longest time that an intent is deferred: "72h" (the default), at most "94h" and redis.history. What may be sent
    /// only later is suppressed.
    max: Duration,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum Period {
    Day,
    Week,
    Month,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum Each {
    Campaign,
}

/// A length of time above 0: "24h", "7d", "90m", "1h 30m".
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Duration(#[schemars(regex(pattern = DURATION_PATTERN))] String);

/// A name or a list of names.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Names {
    One(#[schemars(length(min = 1, max = MAX_TEXT_BYTES))] String),
    Several(#[schemars(length(min = 1), inner(length(min = 1, max = MAX_TEXT_BYTES)))] Vec<String>),
}

/// Intents that are never capped. At least one of channel, category and campaign; an intent must fit all that are given.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("anyOf" = [{"required": ["channel"]}, {"required": ["category"]}, {"required": ["campaign"]}])
)]
#[expect(dead_code, reason = "only its schema is used")]
struct BypassRule {
    /// The channels.
    channel: Option<Names>,
    /// The categories.
    category: Option<Names>,
    /// The campaigns.
    campaign: Option<Names>,
    /// true (default): recorded, and counts against later intents. false: not recorded, no duplicate check.
    counts: Option<bool>,
}

/// The action for intents whose history is unavailable. An intent must fit all that is given; without channel and category, every intent does.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct UnavailableRule {
    /// The channels.
    channel: Option<Names>,
    /// The categories.
    category: Option<Names>,
    /// wait: until the shard is available; intents of other shards continue. approve: approved without evaluating a cap, and
    /// recorded once the shard is available. suppress: suppressed as unavailable.
    action: UnavailableAction,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum UnavailableAction {
    Wait,
    Approve,
    Suppress,
}

/// From one time of day until before another, over midnight if the second is earlier.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct QuietHours {
    /// Their begin: "22:00".
    from: TimeOfDay,
    /// Their end: "08:00".
    to: TimeOfDay,
    /// The action for intents in quiet hours.
    action: Action,
    /// Deferred intents return within this time after the end, spread by user: "30m". At most "12h".
    spread: Option<Duration>,
    /// Only for intents of these channels.
    channel: Option<Names>,
    /// Only for intents of these categories. A bypass does not exempt from quiet hours; this does.
    category: Option<Names>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct TimeOfDay(#[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))] String);
