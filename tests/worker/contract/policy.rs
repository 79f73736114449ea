//! Section 5: policies that change while the worker works. One worker goes through them one after the other.

use std::sync::LazyLock;

use serde_json::{Value, json};
use testkit::wait_until;
use weir_core::ports::Clock;
use weir_worker::clock::SystemClock;

use crate::{
    contract::run::{DAY_MS, HOUR_MS, words},
    support::{
        DEADLINE, Scene,
        http::{metric, wait_version},
        outcome::{OutcomeKind, Outcomes, intent, time_ms},
    },
};

fn policy(version: &str, limit: u32, more: &str) -> String {
    format!(
        "version = \"{version}\"\n{more}\n[default]\ncaps = [ {{ name = \"daily\", limit = {limit}, window = \"24h\" }} ]\n"
    )
}

/// The times of day, in UTC, between which the test lies in the middle.
fn quiet_hours(now_ms: i64) -> (String, String, i64) {
    let clock = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap().strftime("%H:%M").to_string();
    let end_ms = (now_ms + 2 * HOUR_MS).div_euclid(60_000) * 60_000;
    (clock(now_ms - 2 * HOUR_MS), clock(end_ms), end_ms)
}

struct Reloads {
    log: String,
    outcomes: Outcomes,
    refused: Vec<(&'static str, f64)>,
    quiet_until_ms: i64,
}

static RELOADS: LazyLock<Reloads> = LazyLock::new(|| {
    let scene = Scene::new("reload", 2, &policy("p1", 2, ""));
    let worker = std::cell::RefCell::new(scene.worker("reload"));
    let send = |prefix: &str, count: usize, more: &Value| {
        let one = |number| intent(&format!("{prefix}{number}"), "someone", more.clone());
        scene.decide_by(&mut worker.borrow_mut(), (0..count).map(one));
    };
    let take_up = |version: &str, text: &str| {
        scene.write_policy(text);
        wait_version(&worker.borrow(), "policy", version);
    };
    let plain = json!({});
    send("two a day ", 3, &plain);
    take_up("p2", &policy("p2", 3, ""));
    send("three a day ", 2, &plain);

    let mut refused = Vec::new();
    for (name, text) in [
        ("syntax", "version = \n".to_owned()),
        ("no default", "version = \"p3\"\n".to_owned()),
        ("beyond the history", policy("p3", 9, "").replace("24h", "9d")),
    ] {
        let failures = || metric(&worker.borrow(), "weir_refresh_failures_total", "policy").unwrap_or(0.0);
        let before = failures();
        scene.write_policy(&text);
        wait_until(DEADLINE, "the policy is refused", || failures() > before);
        send(&format!("while refused, {name} "), 1, &plain);
        refused.push((name, failures() - before));
    }

    take_up("p4", &policy("p4", 1, "shadow = true"));
    send("shadow ", 2, &plain);
    let early = json!({"not_before": SystemClock.now().millis() + HOUR_MS});
    send("shadow early ", 1, &early);
    take_up("p5", &policy("p5", 6, ""));
    send("after shadow ", 1, &plain);

    let (from, to, quiet_until_ms) = quiet_hours(SystemClock.now().millis());
    let quiet = format!(
        "timezone = \"UTC\"\n[quiet_hours]\nfrom = \"{from}\"\nto = \"{to}\"\naction = \"suppress\"\ncategory = [\"promo\"]\n"
    );
    take_up("p6", &policy("p6", 100, &quiet));
    send("quiet ", 1, &json!({"category": "promo"}));
    send("quiet elsewhere ", 1, &json!({"category": "promo", "timezone": "Etc/GMT-12"}));
    send("quiet for promo alone ", 1, &json!({"category": "news"}));
    Reloads { log: worker.borrow().log(), outcomes: scene.outcomes(), refused, quiet_until_ms }
});

#[track_caller]
fn series_is(prefix: &str, expected: &[&str]) {
    assert_eq!(RELOADS.outcomes.series(prefix), words(expected), "{prefix}");
}

pub fn a_new_policy_is_taken_up_without_a_restart_and_applies_to_what_was_sent_before() {
    series_is("two a day ", &["approved", "approved", "cap daily 2/2"]);
    series_is("three a day ", &["approved", "cap daily 3/3"]);
    let outcome = RELOADS.outcomes.of("three a day 1");
    assert_eq!(outcome.envelope()["policy_version"], "p2");
    let first_ms = RELOADS.outcomes.of("two a day 0").decided_ms();
    assert_eq!(time_ms(&outcome.envelope()["eligible_at"]), Some(first_ms + DAY_MS));
}

pub fn an_invalid_policy_is_refused_and_the_last_good_one_stays() {
    for (name, failures) in &RELOADS.refused {
        assert!(*failures >= 1.0, "{name}");
        let outcome = RELOADS.outcomes.of(&format!("while refused, {name} 0"));
        assert_eq!(outcome.verdict(), "cap daily 3/3", "{name}");
        assert_eq!(outcome.envelope()["policy_version"], "p2", "{name}");
    }
}

pub fn a_refusal_is_logged_with_file_place_and_reason() {
    let refusals: Vec<Value> = RELOADS
        .log
        .lines()
        .filter(|line| line.contains("refused; the last good one stays"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(refusals.len(), 3, "each reason once: {refusals:?}");
    for (refusal, reason) in refusals.iter().zip(["policy.toml:1:", "default", "policy.toml:4:"]) {
        let error = refusal["error"].as_str().unwrap();
        assert!(error.contains("policy.toml") && error.contains(reason), "{error} should say {reason}");
        assert_eq!((&refusal["level"], &refusal["version"]), (&json!("ERROR"), &json!("p2")));
    }
}

pub fn in_shadow_mode_everything_is_sent_and_says_what_it_would_have_been() {
    series_is("shadow ", &["shadow-suppressed"; 2]);
    let early = RELOADS.outcomes.of("shadow early 0").approval();
    assert_eq!((&early["reason"], early.get("cap")), (&json!("too_early"), None), "{early}");
    assert!(time_ms(&early["eligible_at"]).is_some(), "{early}");
    let capped = RELOADS.outcomes.of("shadow 0").approval();
    assert_eq!((&capped["reason"], &capped["verdict"]), (&json!("cap"), &json!("shadow-suppressed")), "{capped}");
    assert_eq!(capped["cap"]["name"], "daily", "{capped}");
    assert!(time_ms(&capped["eligible_at"]).is_some(), "{capped}");
}

pub fn what_is_sent_in_shadow_mode_is_recorded_and_counts() {
    // Three were sent before, and three in shadow mode.
    series_is("after shadow ", &["cap daily 6/6"]);
}

pub fn in_quiet_hours_intents_are_suppressed_until_their_end_in_the_users_zone() {
    let outcome = RELOADS.outcomes.of("quiet 0");
    assert_eq!(outcome.verdict(), "quiet_hours");
    assert_eq!(time_ms(&outcome.envelope()["eligible_at"]), Some(RELOADS.quiet_until_ms));
    assert_eq!(RELOADS.outcomes.of("quiet elsewhere 0").kind, OutcomeKind::Approved, "there it is twelve hours later");
    assert_eq!(RELOADS.outcomes.of("quiet for promo alone 0").kind, OutcomeKind::Approved);
}
