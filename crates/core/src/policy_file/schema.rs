//! The JSON Schema of a policy, from types that have the shape of the file. Editors complete and check by it;
//! weir itself goes by `check`, which says more. A test keeps the two to the same keys and verdicts.

use std::collections::BTreeMap;

use schemars::{JsonSchema, schema_for};

/// The schema as it is checked in at `schemas/policy.schema.json`.
#[must_use]
pub fn schema_text() -> String {
    let schema = schema_for!(PolicyFile);
    format!("{:#}\n", schema.as_value())
}

/// What weir caps: each segment's caps, who is never capped, when nothing is sent.
#[derive(JsonSchema)]
#[schemars(title = "weir policy", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct PolicyFile {
    /// This schema, for editors.
    #[schemars(rename = "$schema")]
    schema: Option<String>,
    /// What this version is called; every decision names it.
    #[schemars(length(min = 1, max = 256))]
    version: String,
    /// IANA name of the zone of users whose intents name none, for calendar windows and quiet hours. UTC unless set.
    timezone: Option<String>,
    /// Each segment's caps, by the segment's name.
    #[schemars(default)]
    segments: BTreeMap<String, Segment>,
    /// Users who are in no segment, or in one that is not named here.
    default: Segment,
    /// What is never capped; the first rule that matches says whether it counts.
    #[schemars(default)]
    bypass: Vec<BypassRule>,
    /// What becomes of intents whose history is away for longer than redis.unavailable_after; the first rule that
    /// matches counts, and what none matches waits.
    #[schemars(default)]
    on_unavailable: Vec<UnavailableRule>,
    /// When nothing is sent, by the user's clock.
    quiet_hours: Option<QuietHours>,
    /// An intent that is older (by its created_at, else Kafka's time) is suppressed as expired: "6h".
    max_age: Option<Duration>,
    /// true: decide and report, but approve all the same. false unless set.
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

/// The caps, all of which must allow; or "unlimited": nothing is counted against its users.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Caps {
    Limited(#[schemars(length(min = 1, max = 255))] Vec<Cap>),
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
    /// Its name, unlike that of any other cap of the segment; decisions name the cap that denied.
    #[schemars(length(min = 1, max = 256))]
    name: String,
    /// The most that may be sent in the window, in costs (an intent's cost is 1 unless it says). 0: never.
    limit: u32,
    /// Sliding window: "24h". Not longer than redis.history.
    window: Option<Duration>,
    /// Calendar window in the user's time zone; weeks begin on Monday.
    per: Option<Period>,
    /// Only intents of these channels are asked, and count.
    channel: Option<Names>,
    /// Only intents of these categories are asked, and count.
    category: Option<Names>,
    /// "campaign": count only sends of the intent's own campaign.
    each: Option<Each>,
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
struct Duration(#[schemars(regex(pattern = r"^[0-9]+ ?[A-Za-z]+( ?[0-9]+ ?[A-Za-z]+)*$"))] String);

/// A name, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Names {
    One(#[schemars(length(min = 1, max = 256))] String),
    Several(#[schemars(length(min = 1))] Vec<String>),
}

/// What is never capped. At least one of channel, category and campaign; what is named must all fit.
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
    /// true (unless set): recorded, and counts against later sends. false: not recorded, no duplicate check.
    counts: Option<bool>,
}

/// What becomes of intents while Redis is away: what is named must all fit; all of them where nothing is.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct UnavailableRule {
    /// The channels.
    channel: Option<Names>,
    /// The categories.
    category: Option<Names>,
    /// wait: until Redis is back, and with it all behind it in its partition. approve: sent without asking a cap, and
    /// recorded once Redis is back. suppress: not sent.
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

/// From one time of day until before another, over midnight where the second is earlier.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct QuietHours {
    /// When they begin: "22:00".
    from: TimeOfDay,
    /// When they have ended: "08:00".
    to: TimeOfDay,
    /// What becomes of intents in them.
    action: QuietAction,
    /// Only for intents of these channels.
    channel: Option<Names>,
    /// Only for intents of these categories. A bypass does not exempt from quiet hours; this does.
    category: Option<Names>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct TimeOfDay(#[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))] String);

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum QuietAction {
    Suppress,
}
