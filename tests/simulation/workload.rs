//! The intents of a run, and the policy that they are judged by.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use weir::{
    domain::{
        class::Filter,
        decide::Scope,
        fields::FieldMap,
        policy::{Bypass, Cap, CapWindow, Caps, Counts, Mode, OnUnavailable, Period, Policy, Unavailable},
        segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
        zone::Zone,
    },
    worker::{desk::Desk, refresh::Refreshed},
};

use super::{broker::Intent, env::Env};

pub const TOPIC: &str = "intents";
pub const PARTITIONS: u64 = 4;
/// Intents keep coming for so long.
pub const BUSY: Duration = Duration::from_secs(40);
/// More users than this are never asked for.
const USERS: u64 = 28;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// What an intent is, and so what the policy makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of no channel: capped, and waits while its history is away.
    Plain,
    /// Capped; approved while its history is away.
    Push,
    /// Capped; suppressed while its history is away.
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
}

/// What the intent asks for, as the checker needs it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub id: String,
    pub user: String,
    pub kind: Kind,
}

/// What a cap looks back over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// So many milliseconds.
    Last(i64),
    /// The day, in UTC.
    Day,
}

impl Over {
    /// The first millisecond that counts at a time.
    pub fn first(self, at: i64) -> i64 {
        match self {
            Self::Last(length_ms) => at - length_ms + 1,
            Self::Day => at - at.rem_euclid(DAY_MS),
        }
    }
}

/// A cap, as the checker needs it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub name: &'static str,
    pub over: Over,
    pub limit: u32,
    /// Whether only pushes count.
    pub push: bool,
}

const fn limit(name: &'static str, over: Over, limit: u32) -> Limit {
    Limit { name, over, limit, push: false }
}

/// The caps of who is in no segment. Windows are short, so that sends leave them; a day ends in the middle of each run.
const DEFAULT: &[Limit] = &[
    limit("short", Over::Last(8_000), 2),
    limit("long", Over::Last(60_000), 5),
    Limit { push: true, ..limit("push", Over::Last(15_000), 1) },
];
const FEW: &[Limit] = &[limit("few", Over::Last(5_000), 1), limit("today", Over::Day, 2)];

/// The segments: name, who is in it, and its caps.
type Rule = (&'static str, fn(u64) -> bool, Option<&'static [Limit]>);
const SEGMENTS: [Rule; 2] = [("few", |user| user % 4 == 1, Some(FEW)), ("free", |user| user % 8 == 3, None)];

/// What a user is held to, none where nothing is.
pub fn limits_of(user: &str) -> &'static [Limit] {
    let user: u64 = user.parse().expect("users are numbers");
    match SEGMENTS.iter().find(|(_, is_in, _)| is_in(user)) {
        Some((.., limits)) => limits.unwrap_or_default(),
        None => DEFAULT,
    }
}

/// How a run is set up, beside its intents and faults.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub mode: Mode,
    pub unavailable_after: Option<Duration>,
    /// What the sends that a lane owes may take in memory.
    pub owed_bytes: usize,
}

impl Setting {
    pub fn draw(env: &Env) -> Self {
        Self {
            mode: if env.chance(80) { Mode::Shadow } else { Mode::Enforce },
            unavailable_after: env.chance(400).then(|| env.millis(100, 3_000)),
            owed_bytes: [600, 1 << 20][env.index(2)],
        }
    }
}

/// The intents of each partition.
pub type Logs = Vec<Vec<Arc<Intent>>>;
/// What the intent at a partition and offset asks for.
pub type Asks = BTreeMap<(i32, i64), Ask>;

/// The intents of a run, and what each asks for.
pub fn intents(env: &Env) -> (Logs, Asks) {
    let users = 4 + env.below(USERS - 4);
    let count = 100 + env.below(200);
    let mut logs: Logs = (0..PARTITIONS).map(|_| Vec::new()).collect();
    let mut asks = BTreeMap::new();
    let mut at = Duration::ZERO;
    for number in 0..count {
        at += env.millis(0, 2 * u64::try_from(BUSY.as_millis()).unwrap() / count);
        let user = env.below(users);
        // Some sends are asked for twice; a user's intents are in one partition, but not all users'.
        let id = if env.chance(30) { format!("i-{}", env.below(number + 1)) } else { format!("i-{number}") };
        let partition = if user == 0 { env.below(PARTITIONS) } else { user % PARTITIONS };
        let kind = Kind::draw(env);
        let mut value = json!({"id": id, "user_id": user});
        match kind {
            Kind::Plain => {}
            Kind::Push => value["channel"] = "push".into(),
            Kind::Email => {
                value["channel"] = "email".into();
                value["campaign"] = format!("c-{}", env.below(5)).into();
            }
            Kind::Receipt => value["category"] = "receipt".into(),
            Kind::Alert => value["category"] = "alert".into(),
        }
        let log = &mut logs[usize::try_from(partition).unwrap()];
        // Gaps, as control records and compaction leave them.
        let gap = if env.chance(50) { 3 } else { 0 };
        let offset = log.last().map_or(0, |last| last.offset + 1) + gap;
        let partition = i32::try_from(partition).unwrap();
        let user = user.to_string();
        asks.insert((partition, offset), Ask { id, user: user.clone(), kind });
        log.push(Arc::new(Intent { partition, offset, key: user, value: value.to_string(), at }));
    }
    (logs, asks)
}

fn cap(limit: &Limit) -> Cap {
    let window = match limit.over {
        Over::Last(length_ms) => CapWindow::Sliding { length_ms, text: format!("{length_ms}ms").into() },
        Over::Day => CapWindow::Per(Period::Day),
    };
    Cap {
        name: limit.name.into(),
        limit: limit.limit,
        window,
        filter: Arc::new(if limit.push { on_channel("push") } else { Filter::default() }),
        scope: Scope::Every,
    }
}

fn on_channel(name: &str) -> Filter {
    Filter { channels: Some(BTreeSet::from([name.to_owned()])), ..Filter::default() }
}

fn of_category(name: &str) -> Filter {
    Filter { categories: Some(BTreeSet::from([name.to_owned()])), ..Filter::default() }
}

fn policy(setting: &Setting) -> Policy {
    let caps = |limits: Option<&[Limit]>| {
        Arc::new(limits.map_or(Caps::Unlimited, |limits| Caps::Limited(limits.iter().map(cap).collect())))
    };
    let bypass = |category, counts| Bypass { filter: of_category(category), campaigns: None, counts };
    Policy {
        version: "simulated".to_owned(),
        timezone: Zone::utc(),
        segments: SEGMENTS.iter().map(|(name, _, limits)| ((*name).to_owned(), caps(*limits))).collect(),
        default: caps(Some(DEFAULT)),
        bypass: vec![bypass("receipt", Counts::No), bypass("alert", Counts::Yes)],
        on_unavailable: vec![
            OnUnavailable { filter: on_channel("push"), action: Unavailable::Approve },
            OnUnavailable { filter: on_channel("email"), action: Unavailable::Suppress },
        ],
        quiet_hours: None,
        max_age_ms: None,
        mode: setting.mode,
    }
}

pub fn desk(setting: &Setting) -> Desk {
    let segment = |(name, is_in, _): &Rule| Segment {
        name: (*name).to_owned(),
        sha256: Sha256([0; 32]),
        bytes: 0,
        members: Arc::new(Members::U32((0..USERS).filter(|user| is_in(*user)).map(|user| user as u32).collect())),
    };
    let segments = SEGMENTS.iter().map(segment).collect();
    let set = SegmentSet::new("simulated".to_owned(), UserIds::new(UserIdKind::U32, ""), segments);
    Desk {
        topic: TOPIC.into(),
        fields: Arc::new(FieldMap::default()),
        segments: Refreshed::new(Arc::new(set)),
        policy: Refreshed::new(Arc::new(policy(setting))),
        limits: Arc::default(),
    }
}
