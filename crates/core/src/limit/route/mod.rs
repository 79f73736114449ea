//! Routes: where approved intents are delivered, and how fast a policy lets weir approve them there.

pub mod delivery_signals;
pub mod pace;
pub mod permits;
pub mod routes;
mod rule;

use std::sync::Arc;

use crate::{
    basis::time::Time,
    intent::{Intent, class::ClassNames, selection::Selection},
};

pub const MAX_ROUTES: usize = 64;
/// [`Route::ahead_ms`] where the policy has none.
pub const DEFAULT_AHEAD_MS: i64 = 30_000;
/// The bounds of [`Route::ahead_ms`].
pub const AHEAD_MS: std::ops::RangeInclusive<i64> = 5_000..=3_600_000;
/// [`Route::network_ms`] where the policy has none.
pub const DEFAULT_NETWORK_MS: i64 = 50;
/// [`Route::max_attempts`] where the policy has none.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 5;
/// How long an intent waits for its route at the most, in milliseconds: 72 h. Then it is suppressed, long before Kafka deletes it.
pub const MAX_WAIT_MS: i64 = 72 * 3_600_000;

/// Whether a record of a topic of waiting intents, of this timestamp, has waited for so long that its intent is suppressed, whatever the
/// route takes. It goes by the record's timestamp, as Kafka's retention does.
pub fn is_overdue(timestamp: Option<Time>, now: Time) -> bool {
    timestamp.is_some_and(|at| at.plus(MAX_WAIT_MS) <= now)
}

/// How far a partition's records wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// The first offset that waits.
    pub from: u64,
    /// The offset behind the last one.
    pub end: u64,
}

impl Waiting {
    /// How many wait at the most.
    pub const fn count(self) -> u64 {
        self.end.saturating_sub(self.from)
    }
}

/// One of `[[routes]]`. It has a consumer group, a rate or a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name, unlike that of any other route; part of its waiting topic's name.
    pub name: Arc<str>,
    /// Its intents. An intent takes the first route that matches.
    pub filter: Selection,
    /// The group that consumes its approved topic.
    pub consumer_group: Option<Arc<str>>,
    /// Approve no more than delivery takes in this time, in milliseconds.
    pub ahead_ms: i64,
    /// The most intents per second.
    pub rate: Option<u64>,
    /// The service whose instances register their capacity.
    pub service: Option<Arc<str>>,
    /// What a request takes on the network one way, in milliseconds.
    pub network_ms: i64,
    pub reserved: Option<Reserved>,
    pub when_full: WhenFull,
    /// What its waiting topic is partitioned by.
    pub fair_by: FairBy,
    pub max_attempts: u32,
}

impl Route {
    pub fn matches(&self, class: &ClassNames<'_>) -> bool {
        self.filter.matches(class)
    }

    /// A number for the delivery that paces the route: its group, its service and its channels. What is known of one says nothing of
    /// another one.
    pub fn delivery(&self) -> u64 {
        let by = [&self.consumer_group, &self.service].map(|name| name.as_deref().unwrap_or_default());
        let channels = self.filter.filter.channels.iter().flatten().map(String::as_str);
        let parts: Vec<&str> = by.into_iter().chain(channels).collect();
        xxhash_rust::xxh3::xxh3_64(parts.join("\0").as_bytes())
    }

    pub fn reserves(&self, class: &ClassNames<'_>) -> bool {
        self.reserved.as_ref().is_some_and(|reserved| reserved.filter.matches(class))
    }
}

/// The share of a route's capacity that only some intents take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub filter: Selection,
    /// The share, in thousandths: 1 to 999.
    pub share_permille: u32,
}

/// What becomes of an intent of a route that has no permit for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// It waits on the route's topic.
    #[default]
    Wait,
    Suppress,
}

/// What intents of a route take turns by while they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FairBy {
    #[default]
    Campaign,
    Category,
    Channel,
    User,
}

impl FairBy {
    pub fn hash_of(self, intent: &Intent<'_>) -> u64 {
        let class = intent.class();
        let name = match self {
            Self::Campaign => class.campaign,
            Self::Category => class.category,
            Self::Channel => class.channel,
            Self::User => return (intent.user.0 >> 64) as u64,
        };
        xxhash_rust::xxh3::xxh3_64(name.unwrap_or_default().as_bytes())
    }
}
