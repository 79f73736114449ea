//! The caps of `crate::support::POLICY`, counted by hand: no code of weir's is used.

use crate::redis_support::DAY_MS;

const HOUR_MS: i64 = DAY_MS / 24;

/// One send, as the test that made it knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub at_ms: i64,
    pub id: String,
    pub channel: Option<&'static str>,
    pub category: Option<&'static str>,
    pub campaign: Option<&'static str>,
    pub cost: u32,
}

/// A cap: its name, limit, what it counts, and when a send leaves its window.
struct Rule {
    name: &'static str,
    limit: u32,
    counts: fn(&Sent) -> bool,
    leaves_ms: fn(i64) -> i64,
    each_campaign: bool,
}

const fn everything(_: &Sent) -> bool {
    true
}

const fn after_a_day(at_ms: i64) -> i64 {
    at_ms + DAY_MS
}

const fn after_a_week(at_ms: i64) -> i64 {
    at_ms + 7 * DAY_MS
}

const fn after_an_hour(at_ms: i64) -> i64 {
    at_ms + HOUR_MS
}

/// Singapore is 8 hours ahead of UTC, all year.
const fn at_midnight_in_singapore(at_ms: i64) -> i64 {
    ((at_ms + 8 * HOUR_MS).div_euclid(DAY_MS) + 1) * DAY_MS - 8 * HOUR_MS
}

fn is_push(sent: &Sent) -> bool {
    sent.channel == Some("push")
}

fn is_promo(sent: &Sent) -> bool {
    matches!(sent.category, Some("promo" | "partner"))
}

const fn rule(name: &'static str, limit: u32, counts: fn(&Sent) -> bool, leaves_ms: fn(i64) -> i64) -> Rule {
    Rule { name, limit, counts, leaves_ms, each_campaign: false }
}

fn rules(user: u32) -> Vec<Rule> {
    match user {
        0..1000 => vec![rule("daily", 2, everything, after_a_day), rule("weekly", 5, everything, after_a_week)],
        1000..3000 => vec![
            rule("daily", 4, everything, after_a_day),
            rule("push-today", 2, is_push, at_midnight_in_singapore),
            rule("promo-week", 3, is_promo, after_a_week),
            Rule { each_campaign: true, ..rule("once", 1, everything, after_an_hour) },
        ],
        3000..4000 => vec![],
        _ => vec![rule("daily", 1, everything, after_a_day)],
    }
}

/// A cap's expected state: name, limit, used, and when the next intent fits.
pub type Expected = (String, u32, u32, i64);

/// What the caps of a user should stand at. `now_ms` is the clock, no send is later.
pub fn caps(user: u32, sent: &[Sent], now_ms: i64) -> Vec<Expected> {
    let one = |rule: Rule| {
        let mut campaigns: Vec<Option<&str>> = sent.iter().map(|sent| sent.campaign).collect();
        campaigns.dedup();
        if !rule.each_campaign || campaigns.is_empty() {
            campaigns = vec![None];
        }
        let counted = |campaign| {
            let ours = move |sent: &&Sent| !rule.each_campaign || sent.campaign == campaign;
            let mut counted: Vec<(i64, u32)> = sent
                .iter()
                .filter(|sent| (rule.counts)(sent))
                .filter(ours)
                .map(|sent| ((rule.leaves_ms)(sent.at_ms), sent.cost))
                .collect();
            counted.sort_unstable();
            counted
        };
        let used_at = |counted: &[(i64, u32)], at_ms| -> u32 {
            counted.iter().filter(|(leaves_ms, _)| *leaves_ms > at_ms).map(|(_, cost)| cost).sum()
        };
        let (mut most, mut latest) = (0, now_ms);
        for campaign in campaigns {
            let counted = counted(campaign);
            most = most.max(used_at(&counted, now_ms));
            let mut moments = std::iter::once(now_ms).chain(counted.iter().map(|(leaves_ms, _)| *leaves_ms));
            let fits = moments.find(|at_ms| *at_ms >= now_ms && used_at(&counted, *at_ms) < rule.limit);
            latest = latest.max(fits.unwrap());
        }
        (rule.name.to_owned(), rule.limit, most, latest)
    };
    rules(user).into_iter().map(one).collect()
}
