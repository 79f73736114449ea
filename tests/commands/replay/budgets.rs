//! Policies with budgets: how many intents they would have suppressed, and when they would first have been spent.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::runs::{ARGS, Folder, HOUR_MS, MINUTE_MS, UNLIMITED, approved_hourly, intent, totals};
use crate::support::contains_all;

fn unlimited(budgets: &str) -> String {
    format!("{UNLIMITED}{budgets}")
}

fn budget(name: &str, rest: &str) -> String {
    format!("[[budgets]]\nname = \"{name}\"\n{rest}\n")
}

/// So many intents of different users, one each minute.
fn minutes(count: i64, more: &Value) -> Vec<Value> {
    let one = |number: i64| {
        let mut more = more.clone();
        more["user_id"] = json!(number);
        intent(&format!("i{number}"), number * MINUTE_MS, more)
    };
    (0..count).map(one).collect()
}

/// Suppressed, and first spent, by budget.
fn rows(report: &Value) -> BTreeMap<&str, (u64, Option<&str>)> {
    let rows = report["budgets"].as_array().unwrap().iter();
    rows.map(|row| {
        let (count, at) = (row["suppressed"][0].as_u64().unwrap(), row["first_spent"][0].as_str());
        (row["budget"].as_str().unwrap(), (count, at))
    })
    .collect()
}

#[test]
fn each_budget_reports_what_it_suppressed_and_when_it_was_first_spent() {
    let budgets = [
        budget("hourly", "limit = 20\nwindow = \"1h\""),
        budget("total", "channel = \"push\"\nlimit = 70\ntotal = true"),
        budget("idle", "channel = \"sms\"\nlimit = 1\nper = \"day\""),
        budget("campaigns", "each = \"campaign\"\nlimit = 1_000\nper = \"week\""),
    ];
    let folder =
        Folder::with(&unlimited(&budgets.concat()), minutes(240, &json!({"channel": "push", "campaign": "c"})));
    let report = folder.replay(&[]);
    // 20 at the beginning of each hour, of the last one 10.
    assert_eq!(totals(&report, 0), [70, 170, 0, 0]);
    // Where both are spent, the one that frees last denies.
    let expected = [
        ("campaigns", (0, None)),
        ("hourly", (120, Some("2026-11-16T00:20:00.000Z"))),
        ("idle", (0, None)),
        ("total", (50, Some("2026-11-16T03:10:00.000Z"))),
    ];
    assert_eq!(rows(&report), expected.into());
    assert_eq!(report["reasons"], json!([{"reason": "budget", "suppressed": [170]}]));
    assert_eq!(report["budgets"][0]["windows"], json!(["per week of each campaign"]));
    assert_eq!(report["budgets"][3]["limits"], json!([70]));
    assert_eq!(report, folder.replay(&[]), "it is the same each time");

    let text = folder.says(&[&ARGS[..], &["--html", "page.html"]].concat());
    let page = std::fs::read_to_string(folder.path("page.html")).unwrap();
    for part in ["By budget", "20 in any 1h", "2026-11-16T00:20:00.000Z", "first spent", "70 in total"] {
        assert!(text.contains(part) && page.contains(part), "{part}: {text}");
    }
}

#[test]
fn two_policies_are_compared_by_budget() {
    let folder = Folder::with(&unlimited(&budget("b", "limit = 20\ntotal = true")), minutes(60, &json!({})));
    folder.write("against.toml", &format!("version = \"w\"\n{}", unlimited(&budget("b", "limit = 50\ntotal = true"))));
    let args = [&ARGS[..], &["--against", "against.toml"]].concat();
    let report = folder.report(&args);
    let expected = json!([{"budget": "b", "limits": [20, 50], "windows": ["in total", "in total"],
        "suppressed": [40, 10], "difference": 30,
        "first_spent": ["2026-11-16T00:20:00.000Z", "2026-11-16T00:50:00.000Z"]}]);
    assert_eq!(report["budgets"], expected);
    assert_eq!(report["users"]["changed"]["intents"], json!({"newly_approved": 0, "newly_suppressed": 30}));
    let text = folder.says(&args);
    contains_all(&text, &["20 in total / 50 in total", "first spent (policy)", "first spent (against)", "+30"]);
}

#[test]
fn earlier_approvals_have_used_the_budget() {
    let folder =
        Folder::with(&unlimited(&budget("b", "limit = 20\nper = \"week\"")), minutes(60, &json!({})).split_off(30));
    let before =
        minutes(15, &json!({})).into_iter().map(|intent| json!({"at": intent["created_at"], "intent": intent}));
    folder.write_lines("approved", before);
    let report = folder.replay(&["--approved", "approved"]);
    assert_eq!(report["source"]["history_sends"], 15, "{report:#}");
    assert_eq!(rows(&report), [("b", (25, Some("2026-11-16T00:35:00.000Z")))].into());
}

#[test]
fn intents_that_caps_and_gates_deny_take_nothing_and_bypasses_do() {
    let policy = format!(
        "[default]\ncaps = [{{ name = \"once\", limit = 1, window = \"24h\" }}]\n\
         [[bypass]]\ncategory = \"receipt\"\ncounts = false\n[[stop]]\ncategory = \"stopped\"\n{}",
        budget("b", "limit = 5\ntotal = true")
    );
    let at = |minute: i64, user: u64, more: Value| {
        let mut more = more;
        more["user_id"] = json!(user);
        intent(&format!("i{minute}"), minute * MINUTE_MS, more)
    };
    let plain = || json!({});
    let intents = [
        at(0, 1, plain()),
        // Denied by the cap, by the stop, as a duplicate and as expired.
        at(1, 1, plain()),
        at(2, 2, json!({"category": "stopped"})),
        at(3, 1, json!({"id": "i0"})),
        at(4, 3, json!({"expires_at": "2026-11-16T00:00:01Z"})),
        at(5, 1, json!({"category": "receipt"})),
        at(6, 4, json!({"cost": 1})),
        at(7, 5, plain()),
        // There is one left for it.
        at(8, 6, json!({"cost": 2})),
        at(9, 7, plain()),
        at(10, 8, plain()),
    ];
    let report = Folder::with(&policy, intents).replay(&[]);
    assert_eq!(totals(&report, 0), [5, 6, 0, 0], "{report:#}");
    assert_eq!(rows(&report), [("b", (2, Some("2026-11-16T00:08:00.000Z")))].into());
}

#[test]
fn an_intent_that_a_budget_defers_returns_when_the_budget_frees() {
    let policy = unlimited(&budget("b", "limit = 20\nwindow = \"1h\"\nwhen_spent = \"defer\""));
    let end = intent("end", 5 * HOUR_MS + MINUTE_MS, json!({"user_id": 999}));
    let report = Folder::with(&policy, minutes(60, &json!({})).into_iter().chain([end])).replay(&[]);
    assert_eq!(totals(&report, 0), [61, 0, 40, 0]);
    assert_eq!(rows(&report), [("b", (0, Some("2026-11-16T00:20:00.000Z")))].into());
    assert_eq!(approved_hourly(&report), [20, 20, 20, 1], "{report:#}");
}

#[test]
fn in_shadow_mode_a_spent_budget_is_reported_and_everything_approved() {
    let policy = format!("shadow = true\n{}", unlimited(&budget("b", "limit = 20\ntotal = true")));
    let report = Folder::with(&policy, minutes(60, &json!({}))).replay(&[]);
    assert_eq!((totals(&report, 0), &report["policies"][0]["shadow_suppressed"]), ([20, 0, 0, 0], &json!(40)));
    assert_eq!(rows(&report), [("b", (40, Some("2026-11-16T00:20:00.000Z")))].into());
}

#[test]
fn what_an_intent_takes_in_vain_is_there_for_the_next_one_in_the_same_minute() {
    const LIMIT: usize = 40;
    const WINDOW_MS: i64 = 10 * MINUTE_MS;
    let mut random = fastrand::Rng::with_seed(11);
    let (mut at, mut of_budget, mut of_cap) = (0, 0, 0);
    // What was approved in the window of the budget and of the cap, by an independent count: when, and for whom.
    let mut approved: VecDeque<(i64, u64)> = VecDeque::new();
    let intents: Vec<Value> = (0..3_000)
        .map(|number| {
            at += random.i64(0..2_000);
            let user = random.u64(0..50);
            approved.retain(|(time, _)| *time > at - WINDOW_MS);
            if approved.len() >= LIMIT {
                of_budget += 1;
            } else if approved.iter().any(|(_, other)| *other == user) {
                of_cap += 1;
            } else {
                approved.push_back((at, user));
            }
            intent(&format!("i{number}"), at, json!({"user_id": user}))
        })
        .collect();
    let caps = "[default]\ncaps = [{ name = \"once\", limit = 1, window = \"10m\" }]\n";
    let report = Folder::with(&format!("{caps}{}", budget("b", "limit = 40\nwindow = \"10m\"")), intents).replay(&[]);
    assert!(of_budget > 500 && of_cap > 200, "{of_budget} and {of_cap}");
    assert_eq!((rows(&report)["b"].0, &report["caps"][0]["suppressed"][0]), (of_budget, &json!(of_cap)));
}
