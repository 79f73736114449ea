//! A model of `POLICY` that shares no code with weir: it recomputes each verdict from its `decided_at`.

use std::collections::{BTreeMap, HashMap};

use super::{Decision, SEGMENTS, outcome::time_ms};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Asia/Singapore is eight hours ahead of UTC and has no summer time.
const ZONE_MS: i64 = 8 * HOUR_MS;

/// An intent as it was published.
#[derive(Debug, Clone)]
pub struct Sent {
    pub id: String,
    pub user: u64,
    pub channel: Option<&'static str>,
    pub category: Option<&'static str>,
    pub campaign: Option<String>,
    pub cost: u64,
    /// From when on it may be sent, in milliseconds since 1970.
    pub not_before_ms: Option<i64>,
}

impl Sent {
    pub fn json(&self) -> String {
        self.json_padded(0)
    }

    /// The same with so many bytes more payload.
    pub fn json_padded(&self, padding: usize) -> String {
        let text = format!("{{\"[\"{}", "x".repeat(padding));
        let mut object = serde_json::json!({"id": self.id, "user_id": self.user, "payload": {"text": text}});
        let fields = [("channel", self.channel), ("category", self.category), ("campaign", self.campaign.as_deref())];
        for (name, value) in fields {
            if let Some(value) = value {
                object[name] = value.into();
            }
        }
        if let Some(not_before_ms) = self.not_before_ms {
            object["not_before"] = not_before_ms.into();
        }
        if self.cost != 1 {
            object["cost"] = self.cost.into();
        }
        object.to_string()
    }

    pub fn segment(&self) -> Option<&'static str> {
        segment_of(self.user)
    }
}

pub fn segment_of(user: u64) -> Option<&'static str> {
    SEGMENTS.iter().find(|(_, users)| users.contains(&user)).map(|(name, _)| *name)
}

#[derive(Debug)]
enum Window {
    Sliding(i64),
    Day,
}

#[derive(Debug)]
struct Cap {
    name: &'static str,
    limit: u64,
    window: Window,
    channel: Option<&'static str>,
    categories: &'static [&'static str],
    each_campaign: bool,
}

const fn cap(name: &'static str, limit: u64, window: Window) -> Cap {
    Cap { name, limit, window, channel: None, categories: &[], each_campaign: false }
}

fn caps(segment: Option<&str>) -> Vec<Cap> {
    let daily = |limit| cap("daily", limit, Window::Sliding(DAY_MS));
    match segment {
        Some("new") => vec![daily(2), cap("weekly", 5, Window::Sliding(7 * DAY_MS))],
        Some("active") => vec![
            daily(4),
            Cap { channel: Some("push"), ..cap("push-today", 2, Window::Day) },
            Cap { categories: &["promo", "partner"], ..cap("promo-week", 3, Window::Sliding(7 * DAY_MS)) },
            Cap { each_campaign: true, ..cap("once", 1, Window::Sliding(HOUR_MS)) },
        ],
        Some("staff") => vec![],
        _ => vec![daily(1)],
    }
}

impl Cap {
    fn speaks_of(&self, sent: &Sent) -> bool {
        self.channel.is_none_or(|channel| sent.channel == Some(channel))
            && (self.categories.is_empty() || sent.category.is_some_and(|category| self.categories.contains(&category)))
    }

    fn first_ms(&self, at_ms: i64) -> i64 {
        match self.window {
            Window::Sliding(length_ms) => at_ms - length_ms + 1,
            Window::Day => (at_ms + ZONE_MS).div_euclid(DAY_MS) * DAY_MS - ZONE_MS,
        }
    }

    fn freed_ms(&self, entry_ms: i64) -> i64 {
        match self.window {
            Window::Sliding(length_ms) => entry_ms + length_ms,
            Window::Day => ((entry_ms + ZONE_MS).div_euclid(DAY_MS) + 1) * DAY_MS - ZONE_MS,
        }
    }
}

/// How a cap should stand: its name, limit, what is used, and when the next intent fits.
pub type Standing = (String, u64, u64, i64);

/// How the caps of a user should stand after these sends that count, none of which is later. Where a cap counts each campaign by itself, the
/// fullest one's use, and when an intent of any fits.
pub fn standing(user: u64, sent: &[(i64, Sent)], now_ms: i64) -> Vec<Standing> {
    let one = |cap: Cap| {
        let (mut most, mut next_ms) = (0, now_ms);
        for campaign in sent.iter().map(|(_, sent)| &sent.campaign).chain([&None]) {
            let counts =
                |(_, sent): &&(i64, Sent)| cap.speaks_of(sent) && (!cap.each_campaign || sent.campaign == *campaign);
            let counted = sent.iter().filter(counts).map(|(at_ms, sent)| (cap.freed_ms(*at_ms), sent.cost));
            let counted: Vec<(i64, u64)> = counted.collect();
            let used_at = |at_ms: i64| -> u64 {
                counted.iter().filter(|(freed_ms, _)| *freed_ms > at_ms).map(|(_, cost)| cost).sum()
            };
            most = most.max(used_at(now_ms));
            let moments = counted.iter().map(|(freed_ms, _)| *freed_ms).chain([now_ms]);
            let fits_ms = moments.filter(|at_ms| *at_ms >= now_ms && used_at(*at_ms) < cap.limit).min();
            next_ms = next_ms.max(fits_ms.unwrap());
        }
        (cap.name.to_owned(), cap.limit, most, next_ms)
    };
    caps(segment_of(user)).into_iter().map(one).collect()
}

/// The model's verdict: approved, or the denying cap with its use and the time at which it frees.
type Verdict<'n> = Option<(&'n str, u64, Option<i64>)>;

fn judge(sent: &Sent, at_ms: i64, history: &[(i64, &Sent)]) -> Verdict<'static> {
    let mut worst: Verdict<'static> = None;
    for cap in caps(sent.segment()).iter().filter(|cap| cap.speaks_of(sent)) {
        let counted: Vec<(i64, u64)> = history
            .iter()
            .filter(|(entry_ms, _)| *entry_ms >= cap.first_ms(at_ms) && *entry_ms <= at_ms)
            .filter(|(_, other)| cap.speaks_of(other) && (!cap.each_campaign || other.campaign == sent.campaign))
            .map(|(entry_ms, other)| (*entry_ms, other.cost))
            .collect();
        let used: u64 = counted.iter().map(|(_, cost)| cost).sum();
        if used + sent.cost <= cap.limit {
            continue;
        }
        let mut left = used;
        let freed = counted.iter().find_map(|(entry_ms, cost)| {
            left -= cost;
            (left + sent.cost <= cap.limit).then(|| cap.freed_ms(*entry_ms))
        });
        let later = match (&worst, freed) {
            (None, _) => true,
            (Some((_, _, None)), _) => false,
            (Some((_, _, Some(_))), None) => true,
            (Some((_, _, Some(worst))), Some(freed)) => freed > *worst,
        };
        if later {
            worst = Some((cap.name, used, freed));
        }
    }
    worst
}

/// Fails if a decision differs from the model; returns how many were approved.
pub fn check(sent: &[Sent], decisions: &BTreeMap<String, Decision>) -> usize {
    assert_eq!(sent.len(), decisions.len(), "each intent has one record");
    if let Some(lost) = sent.iter().find(|sent| !decisions.contains_key(&sent.id)) {
        panic!("intent {} has no record", lost.id);
    }
    let wrong = differences(sent, decisions);
    assert!(wrong.is_empty(), "{} verdicts are not the model's; the first: {}", wrong.len(), wrong[0]);
    decisions.values().filter(|decision| decision.approved()).count()
}

/// The decided intents of one user, with their place in the order of publishing.
struct User<'a> {
    decided: Vec<(usize, &'a Sent, &'a Decision)>,
    /// Approved intents that count, by time.
    entries: Vec<(i64, usize, &'a Sent)>,
}

impl<'a> User<'a> {
    /// Earlier decisions, by time: after a crash or a rebalance an intent may be decided after later ones of its user.
    fn history(&self, at_ms: i64, order: usize, ties: Ties) -> Vec<(i64, &'a Sent)> {
        let before = |(time, place, _): &&(i64, usize, &Sent)| {
            *time < at_ms || (*time == at_ms && (*place < order || (ties == Ties::Both && *place > order)))
        };
        self.entries.iter().filter(before).map(|(time, _, sent)| (*time, *sent)).collect()
    }
}

/// Which entries of the same millisecond come before an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ties {
    Earlier,
    Both,
}

fn users<'a>(sent: &'a [Sent], decisions: &'a BTreeMap<String, Decision>) -> Vec<User<'a>> {
    let mut users: HashMap<u64, User<'a>> = HashMap::new();
    for (order, sent) in sent.iter().enumerate() {
        let user = users.entry(sent.user).or_insert_with(|| User { decided: Vec::new(), entries: Vec::new() });
        let Some(decision) = decisions.get(&sent.id) else { continue };
        user.decided.push((order, sent, decision));
        // Nobody asks for those of a user without caps, who may have had any number.
        if decision.approved() && !is_free(sent) && !caps(sent.segment()).is_empty() {
            user.entries.push((decision.at_ms, order, sent));
        }
    }
    let mut users: Vec<User<'a>> = users.into_values().collect();
    for user in &mut users {
        user.entries.sort_by_key(|(at_ms, order, _)| (*at_ms, *order));
    }
    users
}

/// Whether it bypasses the policy uncounted.
fn is_free(sent: &Sent) -> bool {
    sent.category == Some("transactional")
}

/// Decisions that differ from the model, which knows caps alone: what a budget denies is left out. `sent` is in the order of
/// publishing; where times are equal, both orders are accepted.
pub fn differences(sent: &[Sent], decisions: &BTreeMap<String, Decision>) -> Vec<String> {
    let mut wrong = Vec::new();
    for user in users(sent, decisions) {
        for (order, sent, decision) in &user.decided {
            if decision.reason() == "budget" {
                continue;
            }
            if is_free(sent) {
                if !decision.approved() {
                    wrong.push(format!("{sent:?} is never capped"));
                }
                continue;
            }
            let at_ms = decision.at_ms;
            let history = user.history(at_ms, *order, Ties::Earlier);
            let expected = judge(sent, at_ms, &history);
            let told = told(decision);
            let agreed = told.as_ref().is_ok_and(|told| {
                *told == expected || *told == judge(sent, at_ms, &user.history(at_ms, *order, Ties::Both))
            });
            if !agreed {
                wrong.push(format!(
                    "{sent:?} at {at_ms}: weir says {told:?}, the model {expected:?}; history {history:?}"
                ));
            }
        }
    }
    wrong
}

/// Intents approved over a full cap, whatever the reason.
pub fn exceeded(sent: &[Sent], decisions: &BTreeMap<String, Decision>) -> Vec<String> {
    let mut over = Vec::new();
    for user in users(sent, decisions) {
        for (at_ms, order, sent) in &user.entries {
            if let Some((cap, used, _)) = judge(sent, *at_ms, &user.history(*at_ms, *order, Ties::Earlier)) {
                over.push(format!("{sent:?} went out at {at_ms} though {used} of {cap} were used"));
            }
        }
    }
    over
}

/// weir's decision; an error if it suppressed for another reason than a cap.
fn told(decision: &Decision) -> Result<Verdict<'_>, &str> {
    let Some(envelope) = &decision.envelope else { return Ok(None) };
    if envelope["reason"] != "cap" {
        return Err(decision.reason());
    }
    let cap = &envelope["cap"];
    let eligible_ms = time_ms(&envelope["eligible_at"]);
    Ok(Some((cap["name"].as_str().unwrap(), cap["used"].as_u64().unwrap(), eligible_ms)))
}
