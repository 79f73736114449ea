//! Policies that defer: an intent is decided again when it is due.

use serde_json::{Value, json};

use super::runs::{ARGS, Folder, HOUR_MS, MINUTE_MS, intent, totals};
use crate::support::{SMALLEST, contains_all};

const CAPS: &str = "[default]\ncaps = [{ name = \"c\", limit = 9, window = \"24h\" }]\n";
const QUIET: &str = "[quiet_hours]\nfrom = \"22:00\"\nto = \"08:00\"\naction = \"defer\"\n";

/// When intents were approved: the hours with their counts.
fn approved(report: &Value) -> Vec<(String, u64)> {
    let hours = report["hours"].as_array().unwrap().iter();
    let hour = |row: &Value| (row["begin"].as_str().unwrap()[..16].to_owned(), row["outcomes"][0]["approved"].as_u64());
    hours.map(hour).map(|(begin, count)| (begin, count.unwrap())).filter(|(_, count)| *count > 0).collect()
}

fn hours<const HOURS: usize>(hours: [(&str, u64); HOURS]) -> Vec<(String, u64)> {
    hours.into_iter().map(|(hour, count)| (hour.to_owned(), count)).collect()
}

/// Six users, of three zones, with an intent in the night of each; the last intent is in nobody's night.
fn night() -> Vec<Value> {
    let zones = ["Asia/Singapore", "America/New_York", "Europe/Berlin"];
    let night = |user: usize| {
        // 23:10 where the user is, 06:20 for the other half.
        let local = [23 * 60 + 10, 24 * 60 + 6 * 60 + 20][user / 3];
        let behind_utc = [-8, 5, -1][user % 3];
        let more = json!({"user_id": user, "timezone": zones[user % 3]});
        intent(&format!("n{user}"), local * MINUTE_MS + behind_utc * HOUR_MS, more)
    };
    (0..6).map(night).chain([intent("last", 40 * HOUR_MS, json!({"user_id": 99}))]).collect()
}

#[test]
fn intents_of_the_night_are_approved_in_the_morning_of_their_users() {
    let folder = Folder::with(&format!("{CAPS}{QUIET}"), night());
    let report = folder.replay(&[]);
    assert_eq!(totals(&report, 0), [7, 0, 6, 0]);
    // 08:00 in Singapore, Berlin and New York, each with two users; then the last intent.
    let mornings = [("2026-11-17T00:00", 2), ("2026-11-17T07:00", 2), ("2026-11-17T13:00", 2), ("2026-11-17T16:00", 1)];
    assert_eq!(approved(&report), hours(mornings));
    let text = folder.says(&ARGS);
    contains_all(&text, &["7 approved, 0 suppressed; 6 deferred, all of them decided."]);
    contains_all(&text, &["deferred, once or more often", "Deferrals"]);
    folder.says(&[&ARGS[..], &["--html", "page.html"]].concat());
    let page = std::fs::read_to_string(folder.path("page.html")).unwrap();
    contains_all(&page, &["suppressed; 6 deferred, all of them decided</li>", "<caption>Deferrals</caption>"]);
}

#[test]
fn a_spread_moves_users_behind_the_end_of_the_quiet_hours() {
    let intents = (0..200).map(|user| intent(&format!("i{user}"), HOUR_MS, json!({"user_id": user})));
    let end = intent("last", 10 * HOUR_MS, json!({"user_id": 999}));
    let report = Folder::with(&format!("{CAPS}{QUIET}spread = \"90m\"\n"), intents.chain([end])).replay(&[]);
    assert_eq!(totals(&report, 0), [201, 0, 200, 0]);
    let approved = approved(&report);
    assert_eq!(approved.iter().map(|(hour, _)| &hour[11..]).collect::<Vec<_>>(), ["08:00", "09:00", "10:00"]);
    assert!(approved[0].1 > approved[1].1 && approved[1].1 > 20, "{approved:?}");
}

#[test]
fn a_cap_defers_until_it_has_room_in_order_with_the_intents_that_follow() {
    let policy = "[default]\ncaps = [{ name = \"c\", limit = 1, window = \"2h\", action = \"defer\" }]\n";
    // The second one is due at 02:00, the third finds it there at 03:00, and is due at 04:00.
    let at = |id: &str, minutes: i64| intent(id, minutes * MINUTE_MS, json!({}));
    let folder = Folder::with(policy, [at("a", 0), at("b", 30), at("c", 180), at("d", 300)]);
    let report = folder.replay(&[]);
    assert_eq!(totals(&report, 0), [3, 0, 3, 1], "the fourth is deferred until 06:00, after the end");
    assert_eq!(approved(&report), hours([("2026-11-16T00:00", 1), ("2026-11-16T02:00", 1), ("2026-11-16T04:00", 1)]));
    assert!(report["source"]["notes"][1].as_str().unwrap().contains("1 intents are still deferred"), "{report:#}");
    // Without deferral, two of them are lost.
    folder.write("against.toml", &format!("version = \"w\"\n{}", policy.replace("\"defer\"", "\"suppress\"")));
    let report = folder.replay(&["--against", "against.toml", "--until", "2026-11-17T00:00:00Z"]);
    assert_eq!([totals(&report, 0), totals(&report, 1)], [[4, 0, 3, 0], [3, 1, 0, 0]]);
    assert_eq!(report["users"]["changed"]["intents"], json!({"newly_approved": 1, "newly_suppressed": 0}));
}

#[test]
fn a_not_before_is_waited_for_unless_it_is_beyond_the_longest_deferral() {
    let early = |id: &str, not_before: &str| intent(id, 0, json!({"not_before": not_before}));
    let intents = [
        early("soon", "2026-11-16T02:30:01Z"),
        early("at-max", "2026-11-16T03:00:00Z"),
        early("beyond", "2026-11-16T03:00:01Z"),
        intent("again", 3 * HOUR_MS, json!({"id": "soon"})),
        intent("last", 4 * HOUR_MS, json!({})),
    ];
    let report = Folder::with(&format!("{CAPS}[defer]\nmax = \"3h\"\n"), intents).replay(&[]);
    assert_eq!(totals(&report, 0), [3, 2, 2, 0]);
    let reasons =
        [("duplicate", 1), ("too_early", 1)].map(|(reason, count)| json!({"reason": reason, "suppressed": [count]}));
    assert_eq!(report["reasons"], json!(reasons), "an intent that was approved late is a duplicate's first");
    assert_eq!(approved(&report), hours([("2026-11-16T02:00", 1), ("2026-11-16T03:00", 1), ("2026-11-16T04:00", 1)]));
}

#[test]
fn an_intent_that_expires_while_it_is_deferred_is_expired() {
    let more = |id: &str, minutes: i64, more: Value| intent(id, minutes * MINUTE_MS, more);
    let intents = [
        // Its age counts from the first time on, which is the line's where it has one.
        more("old", 59, json!({})),
        more("young", 61, json!({})),
        json!({"at": "2026-11-16T00:58:00Z", "intent": {"id": "by-its-line", "user_id": 1}}),
        more("by-itself", 100, json!({"expires_at": "2026-11-16T07:59:00Z"})),
        more("last", 600, json!({})),
    ];
    let report = Folder::with(&format!("max_age = \"7h\"\n{CAPS}{QUIET}"), intents).replay(&[]);
    assert_eq!(totals(&report, 0), [2, 3, 4, 0]);
    assert_eq!(report["reasons"], json!([{"reason": "expired", "suppressed": [3]}]));
}

#[test]
fn intents_that_are_still_deferred_at_the_end_are_reported_and_a_later_end_decides_them() {
    let intents = (0..3).map(|at| intent(&format!("i{at}"), at * HOUR_MS, json!({"user_id": at, "category": "promo"})));
    let folder = Folder::with(&format!("{CAPS}{QUIET}"), intents);
    let report = folder.replay(&[]);
    assert_eq!((totals(&report, 0), &report["users"]["seen"]), ([0, 0, 3, 3], &json!(3)));
    assert_eq!((&report["hours"], &report["categories"]), (&json!([]), &json!([])));
    let text = folder.says(&ARGS);
    contains_all(&text, &["0 approved, 0 suppressed; 3 deferred, 3 of them still deferred at the end."]);
    contains_all(&text, &["Note: under policy.toml, 3 intents are still deferred at the end and have no verdict"]);
    contains_all(&text, &["the last of them is due at 2026-11-16T08:00:00.000Z"]);
    for (to, told) in [("08:00:00", [0, 0, 3, 3]), ("08:00:01", [3, 0, 3, 0])] {
        assert_eq!(totals(&folder.replay(&["--until", &format!("2026-11-16T{to}Z")]), 0), told, "{to}");
    }
}

#[test]
fn nothing_is_deferred_in_shadow_mode_nor_where_the_worker_has_no_topics_for_it() {
    let intents =
        [intent("early", 0, json!({"not_before": "2026-11-16T01:00:00Z"})), intent("last", 9 * HOUR_MS, json!({}))];
    let folder = Folder::with(&format!("shadow = true\n{CAPS}{QUIET}"), intents);
    let report = folder.replay(&[]);
    assert_eq!((totals(&report, 0), &report["policies"][0]["shadow_suppressed"]), ([1, 0, 0, 0], &json!(1)));

    let config = SMALLEST.replace("set/manifest.json", "none").replace("[redis]\n", "[redis]\nusers = 10\n");
    let replay = || folder.replay(&["--config", "weir.toml"]);
    folder.write("weir.toml", &config);
    folder.write("policy.toml", &format!("version = \"v\"\n{CAPS}"));
    assert_eq!(totals(&replay(), 0), [1, 1, 0, 0]);
    // A policy that defers is tried all the same.
    folder.write("policy.toml", &format!("version = \"v\"\n{CAPS}{QUIET}"));
    let report = replay();
    assert_eq!(totals(&report, 0), [2, 0, 1, 0]);
    assert!(report["source"]["notes"].to_string().contains("kafka.deferred"), "{report:#}");
    folder.write("weir.toml", &config.replace("[redis]", "deferred = \"later\"\n[redis]"));
    let report = replay();
    assert!(!report["source"]["notes"].to_string().contains("kafka.deferred"), "{report:#}");
}
