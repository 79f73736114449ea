//! Policies with pressure: how many users would have been active at a time, and how many intents would have waited.

use serde_json::{Value, json};

use super::runs::{ARGS, Folder, HOUR_MS, MINUTE_MS, UNLIMITED, approved_hourly, intent, totals};
use crate::support::contains_all;

fn pressure(max: u64, rest: &str) -> String {
    format!("{UNLIMITED}[pressure]\nmax_active_users = {max}\nwindow = \"30m\"\n{rest}\n")
}

/// 6,000 users within ten minutes, each with an intent, and 50 s later the first 1,000 with another one.
fn blast() -> impl Iterator<Item = Value> {
    let one = |id: String, at_ms: i64, user: i64| intent(&id, at_ms, json!({"user_id": user, "channel": "push"}));
    let first = (0..6_000).map(move |user| one(format!("a{user}"), user * 100, user));
    first.chain((0..1_000).map(move |user| one(format!("b{user}"), 11 * MINUTE_MS + user, user)))
}

#[track_caller]
fn is_near(found: &Value, wanted: u64) {
    let found = found.as_u64().unwrap();
    assert!(found.abs_diff(wanted) <= wanted * 3 / 100, "{found} is not near {wanted}");
}

#[test]
fn no_more_users_are_active_than_the_maximum_and_active_ones_pass() {
    let folder = Folder::with(&pressure(3_000, "action = \"suppress\""), blast());
    let report = folder.replay(&[]);
    let found = &report["policies"][0]["pressure"];
    assert_eq!((&found["max_active_users"], &found["window"]), (&json!(3_000), &json!("30m")));
    is_near(&found["peak_active_users"], 3_000);
    // Of the first 6,000 intents half are approved, and all of the others.
    let [approved, suppressed, deferred, _] = totals(&report, 0);
    is_near(&json!(approved), 4_000);
    assert_eq!((approved + suppressed, deferred), (7_000, 0));
    assert_eq!((&found["suppressed"], &found["deferred"]), (&json!(suppressed), &json!(0)));
    assert_eq!(report["reasons"], json!([{"reason": "pressure", "suppressed": [suppressed]}]));
    let peak_at = found["peak_at"].as_str().unwrap();
    assert!(peak_at > "2026-11-16T00:04" && peak_at < "2026-11-16T00:06", "{peak_at}");
    assert_eq!(report, folder.replay(&[]), "it is the same each time");

    let words = ["Pressure, in one instance", "3000 in 30m", "most users that were active", "2026-11-16T00:0"];
    contains_all(&folder.says(&ARGS), &words);
}

#[test]
fn who_has_to_wait_is_approved_once_others_have_left() {
    let last = intent("last", 5 * HOUR_MS, json!({"user_id": 99_999}));
    let folder = Folder::with(&pressure(3_000, "channel = \"push\"\naction = \"defer\""), blast().chain([last]));
    let report = folder.replay(&[]);
    let found = &report["policies"][0]["pressure"];
    let [approved, suppressed, deferred, waiting] = totals(&report, 0);
    assert_eq!([approved, suppressed, waiting], [7_001, 0, 0]);
    assert_eq!(found["deferred"], deferred);
    is_near(&found["deferred"], 3_000);
    is_near(&found["peak_active_users"], 3_000);
    // The first leave half an hour after their last intent, and with them those who came then.
    let hours = approved_hourly(&report);
    assert!(hours[0] > 4_500, "{hours:?}");
}

#[test]
fn shadow_mode_and_other_channels_make_users_active_and_keep_nobody_out() {
    let shadow = format!("shadow = true\n{}", pressure(3_000, "action = \"suppress\""));
    let shadowed = Folder::with(&shadow, blast()).replay(&[]);
    let found = &shadowed["policies"][0]["pressure"];
    is_near(&found["peak_active_users"], 6_000);
    is_near(&found["suppressed"], 3_000);
    assert_eq!(totals(&shadowed, 0), [7_000 - found["suppressed"].as_u64().unwrap(), 0, 0, 0]);

    let other = Folder::with(&pressure(3_000, "channel = \"email\"\naction = \"suppress\""), blast()).replay(&[]);
    let found = &other["policies"][0]["pressure"];
    assert_eq!((totals(&other, 0), &found["suppressed"]), ([7_000, 0, 0, 0], &json!(0)));
    is_near(&found["peak_active_users"], 6_000);

    let none = Folder::with(UNLIMITED, blast());
    assert_eq!(none.replay(&[])["policies"][0]["pressure"], Value::Null);
    assert!(!none.says(&ARGS).to_lowercase().contains("pressure"));
}

#[test]
fn a_budget_that_denies_makes_nobody_active_and_two_policies_are_side_by_side() {
    let budget = "[[budgets]]\nname = \"b\"\nlimit = 1_000\ntotal = true\n";
    let folder = Folder::with(&format!("{}{budget}", pressure(3_000, "action = \"suppress\"")), blast());
    folder.write("none.toml", &format!("version = \"v\"\n{UNLIMITED}"));
    let report = folder.replay(&["--against", "none.toml"]);
    let [with, without] = [0, 1].map(|policy| &report["policies"][policy]["pressure"]);
    is_near(&with["peak_active_users"], 1_000);
    assert_eq!((&with["suppressed"], without), (&json!(0), &Value::Null));
    assert_eq!(totals(&report, 0)[0], 1_000);
    let text = folder.says(&[&ARGS[..], &["--against", "none.toml"]].concat());
    let line = text.lines().find(|line| line.contains("intents suppressed")).unwrap();
    assert!(line.contains('-'), "{line}");
}

#[test]
fn approvals_before_the_first_intent_count_while_they_are_in_the_window() {
    let past = |user: i64, at_ms: i64| intent(&format!("p{user}"), at_ms, json!({"user_id": user, "channel": "push"}));
    // 1,000 in the window, and 1,000 that left it.
    let approved = (0..1_000)
        .map(|user| past(user, -29 * MINUTE_MS))
        .chain((5_000..6_000).map(|user| past(user, -90 * MINUTE_MS)));
    let folder = Folder::with(&pressure(1_000, "action = \"suppress\""), blast());
    folder.write_lines("approved", approved);
    let report = folder.replay(&["--approved", "approved"]);
    // The first 1,000 users pass, twice.
    let [approved, suppressed, ..] = totals(&report, 0);
    is_near(&json!(approved), 2_000);
    is_near(&json!(suppressed), 5_000);
}

#[test]
fn a_place_that_a_user_takes_in_vain_goes_to_another_one_in_the_same_minute() {
    let capped = UNLIMITED.replace("\"unlimited\"", "[{ name = \"once\", limit = 1, window = \"24h\" }]");
    let policy = pressure(1_000, "action = \"suppress\"").replace(UNLIMITED, &capped);
    let one = |id: String, at_ms: i64, user: i64| intent(&id, at_ms, json!({"user_id": user}));
    // The first 1,000 users come in, have left an hour later, and come again before 1,000 others.
    let first = (0..1_000).map(|user| one(format!("a{user}"), user, user));
    let again = (0..2_000).map(|user| one(format!("b{user}"), HOUR_MS + user, user));
    let report = Folder::with(&policy, first.chain(again)).replay(&[]);
    let [approved, suppressed, ..] = totals(&report, 0);
    is_near(&json!(approved), 2_000);
    is_near(&report["caps"][0]["suppressed"][0], 1_000);
    assert_eq!(approved + suppressed, 3_000);
}
