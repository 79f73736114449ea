//! The intents of a run, and what each asks for.

use serde_json::{Value, json};

use super::{
    prelude::*,
    rules::{Quiet, USERS, is_free, zone_of},
};

pub const PARTITIONS: u64 = 4;
/// How long intents arrive.
pub const BUSY: Duration = Duration::from_secs(40);

/// The class of an intent, as the policy treats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Without a channel: capped, and waits while its history is unavailable.
    Plain,
    /// Capped; approved while its history is unavailable.
    Push,
    /// Capped; suppressed while its history is unavailable.
    Email,
    /// Never capped, not counted.
    Receipt,
    /// Never capped, and counted.
    Alert,
}

impl Kind {
    fn draw(env: &Env) -> Self {
        match env.below(100) {
            0..40 => Self::Plain,
            40..68 => Self::Push,
            68..88 => Self::Email,
            88..94 => Self::Receipt,
            _ => Self::Alert,
        }
    }

    fn write(self, value: &mut Value) {
        match self {
            Self::Plain => {}
            Self::Push => value["channel"] = "push".into(),
            Self::Email => value["channel"] = "email".into(),
            Self::Receipt => value["category"] = "receipt".into(),
            Self::Alert => value["category"] = "alert".into(),
        }
    }
}

/// Why an intent's time suppresses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shut {
    Expired,
    TooEarly,
    Quiet,
}

/// An intent, as the checker needs it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub id: String,
    pub user: String,
    pub kind: Kind,
    pub cost: u8,
    pub campaign: Option<String>,
    /// The first millisecond at which it has expired.
    pub expires: Option<i64>,
    pub not_before: Option<i64>,
    pub quiet: Option<Quiet>,
    /// It carries the time at which it was made; else it is as old as its record.
    pub says_when_made: bool,
}

impl Ask {
    /// Whether quiet hours hold for it at this time of a clock.
    pub fn is_quiet(&self, clock: i64) -> bool {
        self.quiet.is_some_and(|quiet| quiet.covers(clock, east_of(&self.user)))
    }

    /// Why this time of a clock suppresses it, if it does.
    pub fn shut(&self, clock: i64) -> Option<Shut> {
        if self.expires.is_some_and(|expires| clock >= expires) {
            Some(Shut::Expired)
        } else if self.not_before.is_some_and(|due| clock < due) {
            Some(Shut::TooEarly)
        } else {
            self.is_quiet(clock).then_some(Shut::Quiet)
        }
    }

    /// The times near the run at which that suppression changes.
    pub fn edges(&self) -> Vec<i64> {
        const HOUR_MS: i64 = 3600 * 1000;
        // What is deferred comes back for days.
        let hours = (-2..=100).map(|hours| wall_ms(BUSY) - wall_ms(BUSY) % HOUR_MS + hours * HOUR_MS);
        hours.chain(self.expires).chain(self.not_before).collect()
    }
}

pub type Logs = Vec<Vec<Arc<Intent>>>;
pub type Asks = BTreeMap<(i32, i64), Ask>;

/// The user of an intent. For long histories, most intents are for few users without caps.
fn user_of(env: &Env, setting: &Setting, users: u64) -> u64 {
    let user = env.below(users);
    let free = user - user % 8 + 3;
    if setting.long && env.chance(500) && is_free(free) { free } else { user }
}

/// The time fields of an intent that arrives `at`, drawn: JSON fields, and their meaning.
fn time_it(env: &Env, setting: &Setting, at: Duration, value: &mut Value, ask: &mut Ask) {
    let came = wall_ms(at);
    let later = |env: &Env, from, to| came + i64::try_from(env.millis(from, to).as_millis()).unwrap();
    if env.chance(setting.expiring) {
        let expires = later(env, 500, 9_000);
        value["expires_at"] = expires.into();
        ask.expires = Some(expires);
    }
    if env.chance(setting.expiring / 8) {
        let due = later(env, 0, 6_000) - 3_000;
        value["not_before"] = due.into();
        ask.not_before = Some(due);
    }
    if let Some(deferring) = setting.deferring.filter(|deferring| env.chance(deferring.ahead)) {
        let due = wall_ms(Duration::ZERO) + deferring.dues[env.index(3)] + i64::try_from(env.below(30_000)).unwrap();
        value["not_before"] = due.into();
        ask.not_before = Some(due);
    }
    let mut made = came;
    if env.chance(200) {
        made -= i64::try_from(env.below(4_000)).unwrap();
        ask.says_when_made = true;
        value["created_at"] = made.into();
    }
    if let Some(max_age_ms) = setting.max_age_ms {
        let too_old = made + max_age_ms + 1;
        ask.expires = Some(ask.expires.map_or(too_old, |expires| expires.min(too_old)));
    }
}

pub fn intents(env: &Env, setting: &Setting) -> (Logs, Asks) {
    let users = 4 + env.below(USERS - 4);
    let count = 100 + env.below(200);
    // New campaigns begin all the time.
    let pace = 1 + env.below(20);
    let mut logs: Logs = (0..PARTITIONS).map(|_| Vec::new()).collect();
    let mut asks: Asks = BTreeMap::new();
    let mut before: Vec<(String, u64)> = Vec::new();
    let mut at = Duration::ZERO;
    for number in 0..count {
        at += env.millis(0, 2 * u64::try_from(BUSY.as_millis()).unwrap() / count);
        // Some sends are asked for twice; a user's intents are in one partition, but not all users'.
        let (id, user) = match (env.below(100), before.is_empty()) {
            (0..2, false) => before[env.index(before.len())].clone(),
            (2..4, false) => (before[env.index(before.len())].0.clone(), user_of(env, setting, users)),
            _ => (format!("i-{number}"), user_of(env, setting, users)),
        };
        before.push((id.clone(), user));
        let partition = if user == 0 { env.below(PARTITIONS) } else { user % PARTITIONS };
        let kind = Kind::draw(env);
        let mut value = json!({"id": id, "user_id": user});
        kind.write(&mut value);
        let user = user.to_string();
        let cost = if env.chance(300) { 1 + u8::try_from(env.below(u64::from(setting.most_cost))).unwrap() } else { 1 };
        if cost > 1 {
            value["cost"] = cost.into();
        }
        let campaign = env.chance(500).then(|| format!("c-{}", number / pace + env.below(3)));
        if let Some(campaign) = &campaign {
            value["campaign"] = campaign.as_str().into();
        }
        if let Some((zone, _)) = zone_of(&user) {
            value["timezone"] = zone.into();
        }
        let quiet = setting.quiet.filter(|quiet| kind == Kind::Email || !quiet.emails_only);
        let mut ask =
            Ask { id, user, kind, cost, campaign, expires: None, not_before: None, quiet, says_when_made: false };
        // Of a partition that is added later, what was to come before comes then.
        let comes = at.max(setting.growth.map_or(Duration::ZERO, |growth| growth.appears(partition)));
        time_it(env, setting, comes, &mut value, &mut ask);
        let log = &mut logs[usize::try_from(partition).unwrap()];
        // Gaps, as control records and compaction leave them.
        let gap = if env.chance(50) { 3 } else { 0 };
        let offset = log.last().map_or(0, |last| last.offset + 1) + gap;
        let partition = i32::try_from(partition).unwrap();
        log.push(Arc::new(Intent::new((partition, offset), ask.user.clone(), value.to_string(), comes)));
        asks.insert((partition, offset), ask);
    }
    (logs, asks)
}
