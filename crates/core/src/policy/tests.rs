use jiff::{civil, tz::TimeZoneDatabase};
use proptest::prelude::*;

use super::*;
use crate::{
    basis::{
        document::Format,
        time::Time,
        window::{DAY_MS, Window, local, next_start},
    },
    history::admit::CapQuery,
    policy::file::parse_policy,
};

const MINUTE_MS: i64 = 60_000;
const QUARTER_MS: i64 = 15 * MINUTE_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

impl Policy {
    /// What this says.
    pub(crate) fn of(text: &str) -> Self {
        parse_policy("p.toml", text, Format::Toml, 40 * DAY_MS).unwrap()
    }

    /// Without caps, and with so much more.
    pub(crate) fn uncapped(more: &str) -> Self {
        Self::of(&format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n{more}"))
    }

    /// Of one per user and hour, and with so much more.
    pub(crate) fn once(more: &str) -> Self {
        let caps = "[{ name = \"once\", limit = 1, window = \"1h\" }]";
        Self::of(&format!("version = \"1\"\ndefault = {{ caps = {caps} }}\n{more}"))
    }
}

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap_or_else(|| panic!("no zone {name}"))
}

fn time(text: &str) -> Time {
    Time::from_rfc3339(text).unwrap_or_else(|| panic!("no time {text}"))
}

fn clock(text: &str) -> civil::Time {
    text.parse().unwrap()
}

#[test]
fn periods_begin_and_end_where_the_users_clock_says() {
    use Period::{Day, Month, Week};
    let cases = [
        // zone, period, now, start, next, after; in UTC
        ("UTC", Day, "2026-11-21T13:00:00", "2026-11-21T00:00", "2026-11-22T00:00", "2026-11-23T00:00"),
        // Saturday: the week began on Monday.
        ("UTC", Week, "2026-11-21T13:00:00", "2026-11-16T00:00", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("UTC", Week, "2026-11-23T00:00:00", "2026-11-23T00:00", "2026-11-30T00:00", "2026-12-07T00:00"),
        ("UTC", Month, "2026-12-31T23:59:59", "2026-12-01T00:00", "2027-01-01T00:00", "2027-02-01T00:00"),
        ("Asia/Singapore", Day, "2026-11-20T16:00:00", "2026-11-20T16:00", "2026-11-21T16:00", "2026-11-22T16:00"),
        // Clocks forward, 23 h; clocks back, 25 h.
        ("America/New_York", Day, "2026-03-08T12:00:00", "2026-03-08T05:00", "2026-03-09T04:00", "2026-03-10T04:00"),
        ("America/New_York", Day, "2026-11-01T12:00:00", "2026-11-01T04:00", "2026-11-02T05:00", "2026-11-03T05:00"),
        ("America/New_York", Month, "2026-03-20T00:00:00", "2026-03-01T05:00", "2026-04-01T04:00", "2026-05-01T04:00"),
        // Clocks moved by half an hour.
        ("Australia/Lord_Howe", Day, "2026-04-04T14:00:00", "2026-04-04T13:00", "2026-04-05T13:30", "2026-04-06T13:30"),
        // No midnight on 4 November 2018: the day began at 01:00.
        ("America/Sao_Paulo", Day, "2018-11-04T12:00:00", "2018-11-04T03:00", "2018-11-05T02:00", "2018-11-06T02:00"),
        // Two midnights on 1 November 2026: the day began at the first.
        ("America/Havana", Day, "2026-11-01T05:30:00", "2026-11-01T04:00", "2026-11-02T05:00", "2026-11-03T05:00"),
        // 23:30 was followed by 00:30: the day began with the jump.
        ("America/Toronto", Day, "1919-03-31T12:00:00", "1919-03-31T04:30", "1919-04-01T04:00", "1919-04-02T04:00"),
        // No 30 December 2011: the 29th is followed by the 31st.
        ("Pacific/Apia", Day, "2011-12-30T09:00:00", "2011-12-29T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
        // 00:01 on 7 November 2010 was followed by 23:01 on the 6th: the 7th had begun.
        ("America/St_Johns", Day, "2010-11-07T02:40:00", "2010-11-07T02:30", "2010-11-08T03:30", "2010-11-09T03:30"),
    ];
    for (name, period, now, start, next, after) in cases {
        let window = period.window(&zone(name), time(&format!("{now}Z")));
        let [start, next, after] = [start, next, after].map(|at| time(&format!("{at}:00Z")));
        assert_eq!(window, Window::Calendar { start, next, after }, "{name} {period:?} {now}");
    }
}

const ZONES: [&str; 9] = [
    "UTC",
    "America/New_York",
    "Asia/Singapore",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Africa/Cairo",
    "America/Havana",
    "Asia/Kathmandu",
];

fn zones() -> impl Strategy<Value = Zone> {
    proptest::sample::select(ZONES.to_vec()).prop_map(zone)
}

/// A moment between 1995 and 2035, half of them near a change of the zone's clocks.
fn moments(zone: &Zone) -> BoxedStrategy<Time> {
    let (first, last) = (time("1995-01-01T00:00:00Z"), time("2035-01-01T00:00:00Z"));
    let anywhere = (first.millis()..last.millis()).prop_map(|ms| Time::from_millis(ms).unwrap()).boxed();
    let changes = zone.time_zone().following(first.timestamp()).map(|change| Time::from(change.timestamp()));
    let changes: Vec<Time> = changes.take_while(|&at| at < last).collect();
    if changes.is_empty() {
        return anywhere;
    }
    let near = (proptest::sample::select(changes), -2 * DAY_MS..2 * DAY_MS).prop_map(|(at, ms)| at.plus(ms)).boxed();
    prop_oneof![anywhere, near].boxed()
}

fn zoned_moments() -> impl Strategy<Value = (Zone, Time)> {
    zones().prop_flat_map(|zone| moments(&zone).prop_map(move |at| (zone.clone(), at)))
}

/// Which period a zone's clocks show; later ones are larger.
fn shown(period: Period, zone: &Zone, at: Time) -> i64 {
    let date = local(zone, at).date();
    let day = date.duration_since(civil::date(1970, 1, 1)).as_hours() / 24;
    match period {
        Period::Day => day,
        Period::Week => (day + 3).div_euclid(7), // 1970-01-01 was a Thursday
        Period::Month => i64::from(date.year()) * 12 + i64::from(date.month()),
    }
}

/// The next start by looking at the clock every quarter of an hour.
fn next_by_looking(period: Period, zone: &Zone, at: Time) -> Time {
    let quarter = at.millis().div_euclid(QUARTER_MS) * QUARTER_MS;
    let at = |quarters: i64| Time::from_millis(quarter + quarters * QUARTER_MS).unwrap();
    let reached = (-12..=0).map(|quarters| shown(period, zone, at(quarters))).max().unwrap();
    (1..).map(at).find(|&later| shown(period, zone, later) > reached).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn windows_follow_each_other_without_gap_and_end_where_a_look_at_the_clock_finds_it((zone, now) in zoned_moments()) {
        for period in Period::ALL {
            let Window::Calendar { start, next, after } = period.window(&zone, now) else { unreachable!() };
            prop_assert_eq!(next, next_by_looking(period, &zone, now), "{} {:?} {}", zone.name(), period, now);
            prop_assert!(start <= now && now < next && next < after, "{} {period:?} {now}", zone.name());
            prop_assert_eq!(next_start(period, &zone, start), next);
            prop_assert_eq!(next_start(period, &zone, start.plus(-1)), start);
            prop_assert_eq!(next_start(period, &zone, next), after);
        }
    }

    #[test]
    fn quiet_hours_end_where_a_look_at_the_clock_finds_it(
        (zone, now) in zoned_moments(),
        from in 0..96_i64,
        quarters in 1..96_i64,
    ) {
        let of_day = |quarters: i64| civil::Time::midnight().wrapping_add(jiff::SignedDuration::from_mins(quarters * 15));
        let quiet = QuietHours::new(of_day(from), of_day(from + quarters), Filter::default()).unwrap();
        let is_quiet = |at: Time| quiet.cover(local(&zone, at).time());
        let quarter = now.millis().div_euclid(QUARTER_MS) * QUARTER_MS;
        let later = (1..).map(|quarters| Time::from_millis(quarter + quarters * QUARTER_MS).unwrap());
        let expected = is_quiet(now).then(|| later.clone().find(|&at| !is_quiet(at)).unwrap());
        prop_assert_eq!(quiet.end(&zone, now), expected, "{} {} {:?}", zone.name(), now, quiet);
    }
}

#[test]
fn no_zone_has_a_longer_period_than_the_history_is_asked_for() {
    let (first, last) = (time("2022-01-01T00:00:00Z"), time("2037-01-01T00:00:00Z"));
    let database = TimeZoneDatabase::bundled();
    // Research stations move their clocks by two hours and three, and nobody sends them marketing messages.
    for name in database.available().filter(|name| !name.as_str().starts_with("Antarctica/")) {
        let zone = zone(name.as_str());
        let changes = zone.time_zone().following(first.timestamp()).map(|change| Time::from(change.timestamp()));
        for change in changes.take_while(|&at| at < last) {
            for period in Period::ALL {
                let Window::Calendar { start, next, .. } = period.window(&zone, change) else { unreachable!() };
                assert!(next.millis() - start.millis() <= period.longest_ms(), "{} {period:?} {change}", zone.name());
            }
        }
    }
}

#[test]
fn quiet_hours_are_what_the_users_clock_shows() {
    let cases = [
        // zone, from, to, now, end
        ("UTC", "22:00", "08:00", "2026-11-21T21:59:59.999Z", None),
        ("UTC", "22:00", "08:00", "2026-11-21T22:00:00Z", Some("2026-11-22T08:00:00Z")),
        ("UTC", "22:00", "08:00", "2026-11-22T07:59:59.999Z", Some("2026-11-22T08:00:00Z")),
        ("UTC", "22:00", "08:00", "2026-11-22T08:00:00Z", None),
        ("UTC", "12:00", "14:00", "2026-11-22T13:00:00Z", Some("2026-11-22T14:00:00Z")),
        ("Asia/Singapore", "22:00", "08:00", "2026-11-21T15:00:00Z", Some("2026-11-22T00:00:00Z")),
        // Over a night of 9 hours, and one of 11.
        ("America/New_York", "22:00", "08:00", "2026-03-08T04:00:00Z", Some("2026-03-08T12:00:00Z")),
        ("America/New_York", "22:00", "08:00", "2026-11-01T03:00:00Z", Some("2026-11-01T13:00:00Z")),
        // 02:30 is jumped over: they end with the jump.
        ("America/New_York", "22:00", "02:30", "2026-03-08T06:00:00Z", Some("2026-03-08T07:00:00Z")),
        // 01:30 comes twice: they end at the first, begin again with the hour, and end at the second.
        ("America/New_York", "22:00", "01:30", "2026-11-01T05:00:00Z", Some("2026-11-01T05:30:00Z")),
        ("America/New_York", "22:00", "01:30", "2026-11-01T05:45:00Z", None),
        ("America/New_York", "22:00", "01:30", "2026-11-01T06:10:00Z", Some("2026-11-01T06:30:00Z")),
        // Put back to before they begin: over with the change.
        ("America/New_York", "01:15", "06:00", "2026-11-01T05:59:00Z", Some("2026-11-01T06:00:00Z")),
    ];
    for (name, from, to, now, end) in cases {
        let quiet = QuietHours::new(clock(from), clock(to), Filter::default()).unwrap();
        assert_eq!(quiet.end(&zone(name), time(now)), end.map(time), "{name} {from} to {to} at {now}");
    }
    assert_eq!(QuietHours::new(clock("08:00"), clock("08:00"), Filter::default()), None);
}

fn policy() -> Policy {
    Policy::of(
        r#"
        version = "1"
        timezone = "Asia/Singapore"
        max_age = "1h"
        default.caps = [{ name = "daily", limit = 1, window = "24h" }]
        segments.active.caps = [
          { name = "daily", limit = 4, window = "24h" },
          { name = "push-today", limit = 2, per = "day", channel = "push" },
          { name = "weekly", limit = 9, window = "7d" },
        ]
        segments.staff.caps = "unlimited"
        bypass = [{ category = "transactional", counts = false }, { channel = "push", campaign = "alarm" }]
        quiet_hours = { from = "22:00", to = "08:00", category = "marketing", action = "suppress" }
    "#,
    )
}

const SET: [&str; 3] = ["active", "staff", "unheard-of"];

fn eval(now: Time) -> PolicyEval {
    PolicyEval::new(Arc::new(policy()), SET.map(Box::<str>::from).into(), now)
}

fn class<'a>(channel: &'a str, category: &'a str, campaign: &'a str) -> ClassNames<'a> {
    let some = |name: &'a str| (!name.is_empty()).then_some(name);
    ClassNames { channel: some(channel), category: some(category), campaign: some(campaign) }
}

#[test]
fn the_gate_suppresses_in_the_documented_order() {
    let now = time("2026-11-21T23:00:00Z"); // 07:00 in Singapore: quiet
    let (past, future) = (now.plus(-1), now.plus(1));
    let plain = IntentFacts::default();
    let of = |class| IntentFacts { class, ..plain };
    let marketing = of(class("push", "marketing", ""));
    let late = IntentFacts { kafka_timestamp: Some(now.plus(-HOUR_MS - 1)), ..plain };
    let early = IntentFacts { not_before: Some(future), ..plain };
    let (utc, new_york) = (Zone::utc(), zone("America/New_York"));
    let quiet = |end: &str| Some((GateReason::QuietHours, Some(time(end))));
    let expired = Some((GateReason::Expired, None));
    let too_early = Some((GateReason::TooEarly, Some(future)));
    let cases = [
        ("nothing against it", plain, None),
        ("expires in a moment", IntentFacts { expires_at: Some(future), ..plain }, None),
        ("expires now", IntentFacts { expires_at: Some(now), ..plain }, expired),
        ("has expired, and is too early", IntentFacts { expires_at: Some(past), ..early }, expired),
        ("as old as may be", IntentFacts { created_at: Some(now.plus(-HOUR_MS)), ..plain }, None),
        ("too old", IntentFacts { created_at: Some(now.plus(-HOUR_MS - 1)), ..plain }, expired),
        ("too old by Kafka's time", late, expired),
        ("its own time goes before Kafka's", IntentFacts { created_at: Some(now), ..late }, None),
        ("made tomorrow", IntentFacts { created_at: Some(now.plus(DAY_MS)), ..plain }, None),
        ("due now", IntentFacts { not_before: Some(now), ..plain }, None),
        ("too early", early, too_early),
        ("too early, and quiet", IntentFacts { not_before: Some(future), ..marketing }, too_early),
        ("quiet in the policy's zone", marketing, quiet("2026-11-22T00:00:00Z")),
        ("quiet in the user's", IntentFacts { zone: Some(&utc), ..marketing }, quiet("2026-11-22T08:00:00Z")),
        ("not quiet in the user's", IntentFacts { zone: Some(&new_york), ..marketing }, None),
        ("quiet, past caps by a bypass", of(class("push", "marketing", "alarm")), quiet("2026-11-22T00:00:00Z")),
        ("expired, by a bypass", IntentFacts { expires_at: Some(now), ..of(class("", "transactional", "")) }, expired),
    ];
    let mut eval = eval(now);
    for (case, intent, expected) in cases {
        assert_eq!(eval.denial(&intent), expected, "{case}");
    }
}

/// The names of the caps that an intent is held to; `None` for a bypass.
fn asked(eval: &mut PolicyEval, segment: Option<usize>, class: ClassNames<'_>) -> Option<Vec<String>> {
    let facts = IntentFacts { segment, class, ..IntentFacts::default() };
    assert_eq!(eval.denial(&facts), None);
    let cap_set = eval.route(&facts)?;
    let names = |cap| eval.denied(cap_set, cap, None).map(|denied| denied.cap.name.to_string());
    Some((0..=255).map_while(names).collect())
}

#[test]
fn an_intent_is_held_to_the_caps_of_its_segment_and_class() {
    type Names = Option<&'static [&'static str]>;
    let cases: [(Option<usize>, ClassNames<'_>, Names); 9] = [
        (None, class("", "", ""), Some(&["daily"])),
        (Some(2), class("push", "", ""), Some(&["daily"])), // not in the policy: the default's
        (Some(9), class("push", "", ""), Some(&["daily"])),
        (Some(0), class("push", "promo", ""), Some(&["daily", "push-today", "weekly"])),
        (Some(0), class("email", "promo", ""), Some(&["daily", "weekly"])),
        (Some(0), class("", "", ""), Some(&["daily", "weekly"])),
        (Some(1), class("push", "promo", ""), Some(&[])),
        (Some(0), class("email", "transactional", "alarm"), None),
        (Some(0), class("push", "promo", "alarm"), Some(&[])),
    ];
    let mut eval = eval(time("2026-11-21T12:00:00Z"));
    for (segment, class, expected) in cases {
        let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(asked(&mut eval, segment, class), expected, "{segment:?} {class:?}");
    }
}

#[test]
fn a_batch_shares_its_sets_of_caps() {
    let mut eval = eval(time("2026-11-21T12:00:00Z"));
    let zones: Vec<Zone> = ZONES.iter().map(|name| zone(name)).collect();
    let mut routes = Vec::new();
    for round in 0..3 {
        for (number, zone) in zones.iter().enumerate() {
            let campaign = format!("campaign-{round}-{number}");
            for class in [class("push", "a", &campaign), class("email", "b", &campaign), class("sms", "c", &campaign)] {
                let facts = IntentFacts { segment: Some(0), class, zone: Some(zone), ..IntentFacts::default() };
                routes.push(eval.route(&facts));
            }
        }
    }
    // Without caps; push in each zone; everything else, which asks for no zone.
    let sets = eval.take_cap_sets();
    assert_eq!(sets.len(), 1 + ZONES.len() + 1);
    assert_eq!(routes[0], routes[3 * ZONES.len()]);
    let set = &sets[routes[0].unwrap()];
    let [start, next, after] = [21, 22, 23].map(|day| time(&format!("2026-11-{day}T00:00:00Z")));
    let filter = Filter { channels: Some(["push".to_owned()].into()), categories: None }.into();
    let push = CapQuery { window: Window::Calendar { start, next, after }, limit: 2, filter, scope: Scope::Every };
    assert_eq!(set[1], push);
    assert_eq!(set[2].window, Window::Sliding { length_ms: 168 * HOUR_MS });
}

#[test]
fn a_denial_says_when_its_window_frees() {
    let mut eval = eval(time("2026-11-21T12:00:00Z"));
    let utc = Zone::utc();
    let intent = IntentFacts { segment: Some(0), class: class("push", "", ""), zone: Some(&utc), ..Default::default() };
    let cap_set = eval.route(&intent).unwrap();
    drop(eval.take_cap_sets());
    let cases = [
        (0, Some("2026-11-21T08:00:00.123Z"), "daily", Some("2026-11-22T08:00:00.123Z")),
        (0, None, "daily", None),
        (1, Some("2026-11-21T08:00:00.123Z"), "push-today", Some("2026-11-22T00:00:00Z")),
        // An entry of a worker whose clock was wrong: the period after the one it lies in.
        (1, Some("2026-11-29T08:00:00Z"), "push-today", Some("2026-11-30T00:00:00Z")),
    ];
    for (cap, blocking, name, eligible_at) in cases {
        let denied = eval.denied(cap_set, cap, blocking.map(time)).unwrap();
        assert_eq!((&*denied.cap.name, denied.eligible_at), (name, eligible_at.map(time)), "{cap} {blocking:?}");
    }
    assert_eq!(eval.denied(cap_set, 3, None), None);
    assert_eq!(eval.denied(99, 0, None), None);
}

#[test]
fn a_policy_and_a_set_are_compared_by_name() {
    let policy = policy();
    assert_eq!(policy.unnamed(&SET), ["unheard-of"]);
    assert_eq!(policy.absent(&["staff"]), ["active"]);
    assert_eq!(policy.longest_window_ms(), 7 * DAY_MS);
}

#[test]
fn the_campaigns_that_a_policy_names_are_those_of_all_its_rules() {
    let policy = Policy::uncapped(
        r#"
        bypass = [{ campaign = "a" }]
        stop = [{ campaign = ["b", "c"] }]
        budgets = [{ name = "money", campaign = "d", limit = 1, total = true }]
        routes = [{ name = "email", campaign = "e", rate = 5, reserved = { campaign = "f", share = 0.2 } }]
    "#,
    );
    assert_eq!(policy.campaigns().collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
}
