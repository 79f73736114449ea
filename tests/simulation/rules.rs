//! The policy of a run: as plain numbers for the checker, and as text for weir.

use jiff::civil;
use weir_core::{
    basis::document::Format,
    policy::{Bypass, Cap, CapWindow, Caps, Counts, OnUnavailable, QuietHours, Unavailable, file::parse_policy},
    segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};

use super::{budgets, growth::Growth, prelude::*, pressure, retries::Failing, services::Served};

/// A bound on histories that is reached soon: one above the highest limit.
pub const MOST: u32 = 6;

pub const TOPIC: &str = "intents";
const UNCAPPED: &str = "version = \"simulated\"\ndefault = { caps = \"unlimited\" }";
pub const USERS: u64 = 28;
const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// So many milliseconds.
    Last(i64),
    /// The day in the user's time zone.
    Day,
}

impl Over {
    /// The first millisecond that counts at a time, for a user at this offset from UTC.
    pub fn first(self, at: i64, east_ms: i64) -> i64 {
        match self {
            Self::Last(length_ms) => at - length_ms + 1,
            Self::Day => at - (at + east_ms).rem_euclid(DAY_MS),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Everything,
    Pushes,
    Campaign,
}

/// A cap, as the checker needs it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub name: &'static str,
    pub over: Over,
    pub limit: u32,
    pub of: Of,
}

const fn limit(name: &'static str, over: Over, limit: u32) -> Limit {
    Limit { name, over, limit, of: Of::Everything }
}

/// The caps of users in no segment. Windows are short, so that entries leave them; a day ends during each run.
const DEFAULT: &[Limit] = &[
    limit("short", Over::Last(8_000), 2),
    limit("long", Over::Last(60_000), 5),
    Limit { of: Of::Pushes, ..limit("push", Over::Last(15_000), 1) },
];
const FEW: &[Limit] = &[limit("few", Over::Last(5_000), 1), limit("today", Over::Day, 2)];
const EACH: &[Limit] =
    &[limit("rush", Over::Last(2_000), 4), Limit { of: Of::Campaign, ..limit("once", Over::Last(300_000), 1) }];

/// The segments: name, users, caps.
type CappedSegment = (&'static str, fn(u64) -> bool, Option<&'static [Limit]>);
const SEGMENTS: [CappedSegment; 3] = [
    ("few", |user| user % 4 == 1, Some(FEW)),
    ("free", |user| user % 8 == 3, None),
    ("each", |user| user % 4 == 2, Some(EACH)),
];

fn number_of(user: &str) -> u64 {
    user.parse().expect("users are numbers")
}

pub fn limits_of(user: &str) -> &'static [Limit] {
    let user = number_of(user);
    match SEGMENTS.iter().find(|(_, is_in, _)| is_in(user)) {
        Some((.., limits)) => limits.unwrap_or_default(),
        None => DEFAULT,
    }
}

/// Users without caps, who can have long histories.
pub fn is_free(user: u64) -> bool {
    SEGMENTS.iter().any(|(_, is_in, limits)| limits.is_none() && is_in(user))
}

/// A user's time zone, if it is not the policy's, and its offset from UTC.
pub fn zone_of(user: &str) -> Option<(&'static str, i64)> {
    (number_of(user) % 5 == 2).then_some(("Asia/Singapore", 8 * HOUR_MS))
}

pub fn east_of(user: &str) -> i64 {
    zone_of(user).map_or(0, |(_, east_ms)| east_ms)
}

/// Quiet hours, by the user's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    from: i64,
    to: i64,
    pub emails_only: bool,
}

impl Quiet {
    /// Each begins or ends at midnight UTC for some users, during the run.
    fn draw(env: &Env) -> Self {
        let (from, to) = [(22, 24), (0, 8), (22, 8)][env.index(3)];
        Self { from, to, emails_only: env.chance(300) }
    }

    /// Whether a time is in quiet hours, for a user at this offset from UTC.
    pub fn covers(self, at: i64, east_ms: i64) -> bool {
        let hour = (at + east_ms).rem_euclid(DAY_MS) / HOUR_MS;
        if self.from < self.to { (self.from..self.to).contains(&hour) } else { hour >= self.from || hour < self.to }
    }

    fn to_weir(self, spread_ms: Option<i64>) -> Option<QuietHours> {
        let time = |hour: i64| civil::time(i8::try_from(hour % 24).unwrap(), 0, 0, 0);
        let filter = if self.emails_only { on_channel("email") } else { Filter::default() };
        let quiet = QuietHours::new(time(self.from), time(self.to), filter)?;
        Some(match spread_ms {
            Some(spread_ms) => quiet.deferring(spread_ms),
            None => quiet,
        })
    }
}

/// What is deferred, and until when at most.
#[derive(Debug, Clone, Copy)]
pub struct Deferring {
    /// Lanes of a process that decide what is due.
    pub due_lanes: usize,
    pub max_ms: i64,
    /// How many of 1,000 intents may be sent from one of some later times on.
    pub ahead: u32,
    /// These times, in milliseconds after the beginning of the run.
    pub dues: [i64; 3],
    /// Quiet hours defer, and spread what they defer over so many milliseconds.
    pub quiet: Option<i64>,
    pub cap: Option<&'static str>,
    /// Faults are injected again when deferred intents are due.
    pub storms: usize,
}

impl Deferring {
    fn draw(env: &Env) -> Self {
        let minutes = |from: u64, to: u64| i64::try_from(env.millis(60_000 * from, 60_000 * to).as_millis()).unwrap();
        Self {
            due_lanes: 1 + env.index(2),
            max_ms: [30, 6 * 60, 30 * 60][env.index(3)] * 60_000,
            ahead: [20, 100, 300][env.index(3)],
            dues: [minutes(0, 2), minutes(2, 70), minutes(60, 300)],
            quiet: env.chance(700).then(|| [0, 100_000][env.index(2)]),
            cap: [None, Some("push"), Some("long"), Some("today"), Some("once")][env.index(5)],
            storms: env.index(3),
        }
    }
}

/// Intents that are not sent any more from some moment on.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    pub at: Duration,
    /// All emails, or else the campaigns whose number is below this one.
    pub below: Option<u64>,
}

impl Stop {
    fn draw(env: &Env) -> Self {
        let at = [env.millis(1_000, 45_000), env.millis(60_000, 7_200_000)][env.index(2)];
        Self { at, below: env.chance(500).then(|| 1 + env.below(40)) }
    }

    /// Whether it stops the intents of this channel or campaign.
    pub fn stops(self, email: bool, campaign: Option<&str>) -> bool {
        match self.below {
            None => email,
            Some(below) => campaign.is_some_and(|name| Self::names(below).any(|stopped| stopped == name)),
        }
    }

    fn names(below: u64) -> impl Iterator<Item = String> {
        (0..below).map(|number| format!("c-{number}"))
    }

    fn to_weir(self) -> Selection {
        match self.below {
            None => Selection { filter: on_channel("email"), campaigns: None },
            Some(below) => Selection { filter: Filter::default(), campaigns: Some(Self::names(below).collect()) },
        }
    }
}

/// The settings of a run, besides its intents and faults.
#[derive(Debug)]
pub struct Setting {
    pub mode: Mode,
    pub unavailable_after: Option<Duration>,
    /// Memory for a lane's deferred writes.
    pub deferred_bytes: usize,
    pub quiet: Option<Quiet>,
    pub max_age_ms: Option<i64>,
    /// How many of 1,000 intents expire soon.
    pub expiring: u32,
    pub most_cost: u8,
    /// How many of 1,000 sends are refunded.
    pub refunds: u32,
    /// Whether some users get many more intents than others.
    pub long: bool,
    pub max_entries: u32,
    /// Whether intents without a channel wait while their history is unavailable.
    pub patient: bool,
    pub deferring: Option<Deferring>,
    pub stop: Option<Stop>,
    pub budgets: Vec<Budget>,
    pub max_totals: u32,
    /// How many users may be active.
    pub load: Option<PressureRule>,
    pub paced: Option<Paced>,
    pub failing: Option<Failing>,
    /// Refunds come as reports of deliveries that failed for good: in every second run, but in none of planted bugs.
    pub reports: bool,
    pub served: Option<Served>,
    pub growth: Option<Growth>,
}

impl Setting {
    pub fn draw(env: &Env) -> Self {
        let deferring = if env.sabotage().is_about(About::Retries) { 1_000 } else { 500 };
        let mut setting = Self {
            mode: if env.chance(80) { Mode::Shadow } else { Mode::Enforce },
            unavailable_after: env.chance(400).then(|| env.millis(100, 3_000)),
            deferred_bytes: [600, 1 << 20][env.index(2)],
            quiet: env.chance(200).then(|| Quiet::draw(env)),
            max_age_ms: env.chance(150).then(|| [6_000, 400_000][env.index(2)]),
            expiring: [0, 0, 100, 400][env.index(4)],
            most_cost: [1, 1, 3][env.index(3)],
            refunds: [0, 100, 300][env.index(3)],
            long: env.chance(250),
            max_entries: [MOST, 10_000][env.index(2)],
            patient: env.chance(700),
            deferring: env.chance(deferring).then(|| Deferring::draw(env)),
            stop: env.chance(200).then(|| Stop::draw(env)),
            budgets: Vec::new(),
            max_totals: budgets::draw_max_totals(env),
            load: None,
            paced: None,
            failing: None,
            reports: env.sabotage() == Sabotage::None && env.dice("report", 0).bool(),
            served: Served::draw(env),
            growth: Growth::draw(env),
        };
        setting.budgets = budgets::draw(env, setting.deferring.is_some());
        setting.load = pressure::draw(env, setting.deferring.is_some());
        setting.paced = Paced::draw(env);
        setting.failing = Failing::draw(env, setting.deferring.is_some());
        setting
    }
}

fn cap(limit: &Limit, defers: bool) -> Cap {
    let window = match limit.over {
        Over::Last(length_ms) => CapWindow::Sliding { length_ms, text: format!("{length_ms}ms").into() },
        Over::Day => CapWindow::Per(Period::Day),
    };
    let (filter, scope) = match limit.of {
        Of::Everything => (Filter::default(), Scope::Every),
        Of::Pushes => (on_channel("push"), Scope::Every),
        Of::Campaign => (Filter::default(), Scope::SameCampaign),
    };
    Cap {
        name: limit.name.into(),
        limit: limit.limit,
        window,
        filter: Arc::new(filter),
        scope,
        action: if defers { Action::Defer } else { Action::Suppress },
    }
}

pub fn on_channel(name: &str) -> Filter {
    Filter { channels: Some(BTreeSet::from([name.to_owned()])), ..Filter::default() }
}

pub fn of_category(name: &str) -> Filter {
    Filter { categories: Some(BTreeSet::from([name.to_owned()])), ..Filter::default() }
}

/// The policy, with its stop or before it, and with this rule of its route.
pub fn policy(setting: &Setting, stop: Option<Stop>, rule: Rule) -> Policy {
    let defers = |limit: &Limit| setting.deferring.is_some_and(|deferring| deferring.cap == Some(limit.name));
    let cap = |limit: &Limit| cap(limit, defers(limit));
    let caps = |limits: Option<&[Limit]>| {
        Arc::new(limits.map_or(Caps::Unlimited, |limits| Caps::Limited(limits.iter().map(cap).collect())))
    };
    let bypass =
        |category, counts| Bypass { selection: Selection { filter: of_category(category), campaigns: None }, counts };
    let mut on_unavailable = vec![
        OnUnavailable { filter: on_channel("push"), action: Unavailable::Approve },
        OnUnavailable { filter: on_channel("email"), action: Unavailable::Suppress },
    ];
    if !setting.patient {
        on_unavailable.push(OnUnavailable { filter: Filter::default(), action: Unavailable::Approve });
    }
    let spread_ms = setting.deferring.and_then(|deferring| deferring.quiet);
    Policy {
        segments: SEGMENTS.iter().map(|(name, _, limits)| ((*name).to_owned(), caps(*limits))).collect(),
        default: caps(Some(DEFAULT)),
        bypass: vec![bypass("receipt", Counts::No), bypass("alert", Counts::Yes)],
        on_unavailable,
        quiet_hours: setting.quiet.and_then(|quiet| quiet.to_weir(spread_ms)),
        stops: stop.map(Stop::to_weir).into_iter().collect(),
        pressure: setting.load.clone(),
        budgets: setting.budgets.clone(),
        routes: setting.paced.and_then(|paced| paced.to_weir(rule)).into_iter().collect(),
        defer_max_ms: setting.deferring.map_or(0, |deferring| deferring.max_ms),
        max_age_ms: setting.max_age_ms,
        mode: setting.mode,
        ..parse_policy("p.toml", UNCAPPED, Format::Toml, DAY_MS).unwrap()
    }
}

pub fn decider(setting: &Setting) -> Decider {
    let segment = |(name, is_in, _): &CappedSegment| Segment {
        name: (*name).to_owned(),
        sha256: Sha256([0; 32]),
        bytes: 0,
        members: Arc::new(Members::U32((0..USERS).filter(|user| is_in(*user)).map(|user| user as u32).collect())),
    };
    let segments = SEGMENTS.iter().map(segment).collect();
    let set = SegmentSet::new("simulated".to_owned(), UserIds::new(UserIdKind::U32, ""), segments);
    let policy = policy(setting, None, Rule::First);
    Decider {
        wheel: setting.deferring.map(|_| Wheel { shares: SHARES }),
        approved_by_channel: setting.paced.map(|paced| paced.by_channel()).unwrap_or_default(),
        ..Decider::new(TOPIC, Current::new(Arc::new(set)), Current::new(Arc::new(policy)))
    }
}
