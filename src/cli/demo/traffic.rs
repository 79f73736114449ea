//! The demo's users, segments and intents: made up, the same at each run.

use std::sync::Arc;

use weir_core::{
    basis::time::Time,
    segment::{Blocks, Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Users that the demo writes to, numbered from 0.
pub const USERS: u32 = 20_000;
/// Segments by the users in them. Users from 16,000 on are in none.
const SEGMENTS: [(&str, std::ops::Range<u32>); 4] =
    [("new", 0..4_000), ("active", 4_000..12_000), ("dormant", 12_000..15_500), ("staff", 15_500..16_000)];
/// Campaigns: name, channel, category, and how many of a hundred intents are theirs.
const CAMPAIGNS: [(&str, &str, &str, u32); 6] = [
    ("summer-sale", "push", "promo", 38),
    ("summer-sale-text", "sms", "promo", 2),
    ("summer-sale-mail", "email", "promo", 25),
    ("back-in-stock", "push", "reminder", 20),
    ("newsletter", "email", "news", 12),
    ("receipt", "email", "transactional", 3),
];
/// How many hours from now some intents may be sent at the earliest.
const HOURS_AHEAD: [i64; 4] = [2, 3, 5, 8];
const SEED: u64 = 42;

pub fn segments() -> SegmentSet {
    let segments = SEGMENTS.iter().map(|(name, users)| {
        let ids: Blocks = users.clone().collect();
        let bytes = ids.to_bitmap().serialized_size() as u64;
        Segment { name: (*name).to_owned(), sha256: Sha256([0; 32]), bytes, members: Arc::new(Members::U32(ids)) }
    });
    SegmentSet::new("demo-1".to_owned(), UserIds::new(UserIdKind::U32, ""), segments.collect())
}

#[derive(Debug, Clone)]
pub struct Published {
    /// Key: the user id.
    pub key: String,
    /// Value: the intent, or what a broken tool took for one.
    pub value: String,
}

/// Intents in the order of publishing, without an end. Every thousandth is not JSON, every five hundredth is published twice, and one
/// of a thousand has a `not_before` some hours from `now`.
pub fn intents(now: fn() -> Time) -> impl Iterator<Item = Published> {
    let mut hours_ahead = HOURS_AHEAD.into_iter().cycle();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut last: Option<Published> = None;
    (0_u64..).map(move |number| {
        if number % 500 == 499
            && let Some(again) = last.clone()
        {
            return again;
        }
        let user = random.u32(0..USERS);
        let mut share = random.u32(0..100);
        let (campaign, channel, category, _) = CAMPAIGNS
            .into_iter()
            .find(|(.., weight)| {
                let hit = share < *weight;
                share = share.saturating_sub(*weight);
                hit
            })
            .unwrap_or(CAMPAIGNS[0]);
        let value = if number % 1000 == 500 {
            format!(r#"{{"id": "demo-{number}", "user_id": {user}, "#)
        } else {
            let not_before = if number % 1000 == 250
                && let Some(hours) = hours_ahead.next()
            {
                format!(r#","not_before":"{}""#, now().plus(hours * HOUR_MS))
            } else {
                String::new()
            };
            format!(
                r#"{{"id":"demo-{number}","user_id":{user},"channel":"{channel}","category":"{category}","campaign":"{campaign}"{not_before},"payload":{{"template":"{campaign}-1","title":"Hello"}}}}"#
            )
        };
        let published = Published { key: user.to_string(), value };
        last = Some(published.clone());
        published
    })
}
