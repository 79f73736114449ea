use serde_json::value::RawValue;
use weir_core::{basis::document::Format, intent::class::ClassNames, policy::file::parse_policy};

use super::*;
use crate::{
    limits::{LimitSpan, LimitedIntent, not_looked_at},
    query::DecisionOrigin,
};

/// 2026-11-20T09:00:00.500Z.
const NOW_MS: i64 = 1_795_165_200_500;

fn at(moved_ms: i64) -> Time {
    Time::default().plus(NOW_MS + moved_ms)
}

fn user() -> UserView {
    UserView {
        user_id: "42".to_owned(),
        segment: Some("new".to_owned()),
        segments: vec!["new".to_owned()],
        held_to: "segments.new".to_owned(),
        unlimited: false,
        sends: Vec::new(),
        caps: Vec::new(),
        eligible_at: Some(at(0)),
        soonest_at: Some(at(0)),
        quiet_until: None,
        asked_at: at(0),
        judged_at: at(0),
        ahead: false,
        clock_trouble: None,
        timezone: "Asia/Singapore".to_owned(),
        shadow: false,
        policy_version: "p".to_owned(),
        segments_version: "s".to_owned(),
    }
}

fn cap(next_at: Option<Time>) -> CapView {
    CapView {
        name: "daily".to_owned(),
        limit: 2,
        used: 2,
        window: None,
        per: Some("day".to_owned()),
        next_at,
        channels: None,
        categories: None,
        each: None,
        campaigns: None,
    }
}

#[track_caller]
fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part:?}: {page}");
    }
    assert!(page.lines().all(|line| line == line.trim_end()), "{page}");
}

#[track_caller]
fn says(user: &UserView, parts: &[&str]) {
    has(&page(user, None, false), parts);
}

#[test]
fn a_time_is_shown_in_the_zone_and_never_before_it_comes() {
    let cases = [
        (1, "2026-11-20 17:00:01  in 1s"),
        (500, "2026-11-20 17:00:01  in 1s"),
        (501, "2026-11-20 17:00:02  in 1s"),
        (59_999, "2026-11-20 17:01:01  in 1m"),
        (HOUR_MS - 1000, "2026-11-20 18:00:00  in 59m 59s"),
        (3 * HOUR_MS + 11 * MINUTE_MS + 1, "2026-11-20 20:11:01  in 3h 12m"),
        (24 * HOUR_MS, "2026-11-21 17:00:01  in 1d"),
        (51 * HOUR_MS + 1, "2026-11-22 20:00:01  in 2d 4h"),
    ];
    for (moved_ms, shown) in cases {
        says(&UserView { caps: vec![cap(Some(at(moved_ms)))], ..user() }, &["per day  everything", shown]);
    }
    says(&UserView { caps: vec![cap(None)], ..user() }, &["everything  never"]);
    let free = UserView { caps: vec![cap(Some(at(0)))], ..user() };
    says(&free, &["everything  now", "The caps allow the next send now."]);
}

#[test]
fn what_is_out_of_the_ordinary_is_said() {
    let both = vec!["new".to_owned(), "active".to_owned()];
    says(&UserView { segments: both, ..user() }, &["User 42 is in segment new (set s).", "Also in active"]);
    let default = || "default".to_owned();
    let unnamed = UserView { held_to: default(), ..user() };
    says(&unnamed, &["Held to [default] of policy p, because the policy does not name this segment"]);
    let nowhere = UserView { segment: None, segments: Vec::new(), held_to: default(), ..user() };
    says(&nowhere, &["User 42 is in no segment", "Held to [default] of policy p.\n"]);
    says(&UserView { shadow: true, ..user() }, &["shadow mode"]);
    says(&UserView { ahead: true, ..user() }, &["more than 5 minutes in the future"]);
    let wrong = Some("this machine's clock shows the year 1970".to_owned());
    says(&UserView { clock_trouble: wrong, ..user() }, &["WARNING: this machine's clock shows the year 1970"]);
    says(&UserView { unlimited: true, ..user() }, &["Unlimited"]);
    says(&UserView { quiet_until: Some(at(HOUR_MS)), ..user() }, &["quiet hours", "2026-11-20 18:00:01 on (in 1h)"]);
    let never = UserView { eligible_at: None, ..user() };
    says(&never, &["allow some sends now; of any channel, category and campaign never."]);
}

/// A budget with so much left; one without anything never frees.
fn budget(name: &str, left: Option<u64>) -> LimitView {
    let why = match left {
        None => Some("cannot be read from Redis"),
        Some(0) => Some("too little is left, and it never frees"),
        Some(1..) => None,
    };
    LimitView {
        kind: LimitKind::Budget,
        name: name.to_owned(),
        campaign: None,
        span: LimitSpan::Window("1h".to_owned()),
        limit: Some(50),
        used: left.map(|left| 50 - left),
        left,
        held: None,
        leased: left.map(|_| 0),
        members: None,
        free_at: None,
        why: why.map(str::to_owned),
        available: left.is_some(),
    }
}

/// A decision on an intent that takes from these budgets; the last one denies it, until then.
fn denied(limits: Vec<LimitView>, eligible_at: Option<Time>) -> Decision {
    let last = limits.last().unwrap();
    let denying = DecisionBudget { name: last.name.clone(), limit: last.limit.unwrap(), used: last.used.unwrap() };
    Decision {
        schema: String::new(),
        verdict: "suppressed".to_owned(),
        reason: Some(SuppressReason::Budget),
        intent_id: "i".to_owned(),
        user_id: "42".to_owned(),
        segment: None,
        cap: None,
        budget: Some(denying),
        eligible_at,
        decided_at: at(0),
        policy_version: String::new(),
        segments_version: String::new(),
        origin: DecisionOrigin { topic: String::new(), partition: 0, offset: 0 },
        intent: RawValue::from_string("{}".to_owned()).unwrap(),
        bypassed: false,
        deferred_until: None,
        limits,
    }
}

#[track_caller]
fn decided(decision: &Decision, parts: &[&str]) {
    has(&page(&user(), Some(decision), false), parts);
}

#[test]
fn a_budget_that_denies_is_named_with_its_limit_and_when_it_frees() {
    let (campaign, span) = (Some("may".to_owned()), LimitSpan::Per("day".to_owned()));
    let spent = LimitView { campaign, span, ..budget("spring", Some(0)) };
    let why = "reason budget: 50 of the 50 that budget spring allows for campaign may per day are used.";
    let until = "are used. This reason holds until 2026-11-20 18:00:01 (in 1h).";
    decided(&denied(vec![budget("other", Some(7)), spent], Some(at(HOUR_MS))), &[why, until]);
}

#[test]
fn the_budgets_of_an_intent_are_listed_with_what_is_left_and_one_that_cannot_be_read_is_told() {
    let decision = denied(vec![budget("a", None), budget("b", Some(7)), budget("c", Some(0))], None);
    let lines = [
        "LIMIT   NAME  USED  MOST  LEFT  OVER       CAMPAIGN  ALLOWS IT",
        "budget  a     ?     50    ?     in any 1h  all       unknown: cannot be read from Redis",
        "budget  b     43    50    7     in any 1h  all       now",
        "budget  c     50    50    0     in any 1h  all       never",
        "WARNING: a budget cannot be read from Redis",
    ];
    decided(&decision, &lines);
}

#[test]
fn limits_that_only_running_instances_know_are_listed_and_are_said_to_be_not_looked_at() {
    let policy = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n[pressure]\nmax_active_users = 70\nwindow = \"30m\"\nchannel = [\"push\"]\n\
                  action = \"suppress\"\n[[routes]]\nname = \"app\"\nchannel = \"push\"\nrate = 5\nwhen_full = \"suppress\"\n";
    let policy = parse_policy("policy.toml", policy, Format::Toml, 24 * HOUR_MS).unwrap();
    let takes_from = |channel| {
        let class = ClassNames { channel: Some(channel), category: None, campaign: None };
        not_looked_at(&policy, &LimitedIntent { class, segment: None })
    };
    assert!(takes_from("sms").is_empty());
    let pressed = Decision {
        reason: Some(SuppressReason::Pressure),
        budget: None,
        limits: takes_from("push"),
        ..denied(vec![budget("b", Some(7))], Some(at(MINUTE_MS)))
    };
    let lines = [
        "Intent i would be suppressed now, reason pressure: as many users are active as the policy's [pressure] allows, and this one \
         is not.",
        "pressure  active users  ?     70    ?     in any 30m  all       unknown: not looked at here; ask GET /v1/pressure of a \
         running instance",
        "route     app           ?     5     ?     per second  all       unknown: not looked at here; ask GET /v1/routes of a \
         running instance",
    ];
    decided(&pressed, &lines);
    assert!(!page(&user(), Some(&pressed), false).contains("leases"), "no budget is in it");
}
