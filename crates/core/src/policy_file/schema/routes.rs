//! The schema of `[[routes]]`.

use schemars::JsonSchema;

use super::{Duration, Names};

/// One route: weir approves its intents no faster than delivery takes them. Without channel, category and campaign, it takes all
/// intents.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("anyOf" = [{"required": ["consumer_group"]}, {"required": ["rate"]}, {"required": ["service"]}])
)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct Route {
    /// Its name, unique in the policy; part of the name of its topic of waiting intents.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    name: String,
    /// Only intents of these channels.
    channel: Option<Names>,
    /// Only intents of these categories.
    category: Option<Names>,
    /// Only intents of these campaigns.
    campaign: Option<Names>,
    /// The group that consumes the approved topic: weir approves by its lag.
    #[schemars(length(min = 1, max = 256))]
    consumer_group: Option<String>,
    /// weir approves no more than delivery takes in this time: "30s" (the default), from "5s" to "1h". At least twice what lies
    /// between two commits of the consumer group.
    ahead: Option<Duration>,
    /// The most intents per second, over all instances.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    rate: Option<u64>,
    /// The service whose instances register what they take: no more is approved.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    service: Option<String>,
    /// The time on the network to the service, one way: "50ms" (the default), at most "1m".
    network: Option<Duration>,
    /// A share of the capacity that is kept for some intents.
    reserved: Option<Reserved>,
    /// The action for intents that the route cannot take now. wait (default): on the route's topic, in fair order; needs
    /// kafka.waiting. suppress: suppressed as capacity.
    when_full: Option<WhenFull>,
    /// What waiting intents take turns by. Default: campaign.
    fair_by: Option<FairBy>,
    /// How often a delivery is tried. Default: 5.
    #[schemars(range(min = 1, max = 100))]
    max_attempts: Option<u32>,
}

/// A share of a route. At least one of channel, category and campaign; an intent must fit all that are given.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("anyOf" = [{"required": ["channel"]}, {"required": ["category"]}, {"required": ["campaign"]}])
)]
#[expect(dead_code, reason = "only its schema is used")]
struct Reserved {
    /// The channels.
    channel: Option<Names>,
    /// The categories.
    category: Option<Names>,
    /// The campaigns.
    campaign: Option<Names>,
    /// The share: 0.001 to 0.999.
    #[schemars(range(min = 0.001, max = 0.999))]
    share: f64,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum WhenFull {
    Wait,
    Suppress,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum FairBy {
    Campaign,
    Category,
    Channel,
    User,
}
