//! Small files with outcomes worked out by hand, a case for each thing that a policy can say.

use serde_json::{Value, json};

use super::runs::{Folder, MINUTE_MS, intent};

/// Policies, the intents with their hours (in minutes after Monday's midnight UTC), how many are sent, and why others are not.
/// Singapore's midnight is 16:00 UTC, New York's 05:00.
const CASES: &str = r#"[
{"name": "a send leaves its window after exactly 24 hours",
 "policy": ["[default]", "caps = [{ name = \"c\", limit = 2, window = \"24h\" }]"],
 "intents": [[0, {}], [60, {}], [120, {}], [1439, {}], [1440, {}], [1441, {}], [1500, {}]],
 "sent": 4, "reasons": [{"reason": "cap", "suppressed": [3]}]},
{"name": "a day is one of the policy's zone, and of the intent's where it names one",
 "policy": ["timezone = \"Asia/Singapore\"", "[default]", "caps = [{ name = \"c\", limit = 1, per = \"day\" }]"],
 "intents": [[0, {}], [959, {}], [960, {}], [961, {}],
             [0, {"user_id": 2, "timezone": "America/New_York"}], [299, {"user_id": 2, "timezone": "America/New_York"}],
             [300, {"user_id": 2, "timezone": "America/New_York"}], [960, {"user_id": 2, "timezone": "America/New_York"}]],
 "sent": 4, "reasons": [{"reason": "cap", "suppressed": [4]}]},
{"name": "each campaign is counted by itself",
 "policy": ["[default]", "caps = [{ name = \"c\", limit = 1, window = \"1h\", each = \"campaign\" }]"],
 "intents": [[0, {"campaign": "a"}], [1, {"campaign": "b"}], [2, {"campaign": "a"}], [3, {}], [4, {}], [60, {"campaign": "a"}]],
 "sent": 4, "reasons": [{"reason": "cap", "suppressed": [2]}]},
{"name": "costs add up",
 "policy": ["[default]", "caps = [{ name = \"c\", limit = 10, window = \"24h\" }]"],
 "intents": [[0, {"cost": 6}], [1, {"cost": 5}], [2, {"cost": 4}], [3, {"cost": 1}], [4, {"cost": 11, "user_id": 2}]],
 "sent": 2, "reasons": [{"reason": "cap", "suppressed": [3]}]},
{"name": "a filter asks and counts its categories alone",
 "policy": ["[default]", "caps = [{ name = \"c\", limit = 1, window = \"24h\", category = [\"promo\"] }]"],
 "intents": [[0, {"category": "news"}], [1, {"category": "promo"}], [2, {"category": "promo"}], [3, {"category": "news"}], [4, {}]],
 "sent": 4, "reasons": [{"reason": "cap", "suppressed": [1]}]},
{"name": "quiet hours, expiry and a late not_before suppress, a bypass does not count, an id is sent once",
 "policy": ["max_age = \"1h\"", "[default]", "caps = [{ name = \"c\", limit = 2, window = \"24h\" }]",
            "[[bypass]]", "category = \"transactional\"", "counts = false",
            "[quiet_hours]", "from = \"22:00\"", "to = \"08:00\"", "action = \"suppress\""],
 "intents": [[0, {}], [479, {}], [480, {"id": "same"}], [481, {"id": "same"}], [482, {"category": "transactional"}],
             [483, {"expires_at": "2026-11-16T08:03:00Z"}], [484, {"not_before": "2026-11-19T08:05:01Z"}],
             [485, {"not_before": "2026-11-16T08:05:00Z"}], [486, {}], [1320, {}]],
 "sent": 3, "reasons": [{"reason": "cap", "suppressed": [1]}, {"reason": "duplicate", "suppressed": [1]},
                        {"reason": "expired", "suppressed": [1]}, {"reason": "too_early", "suppressed": [1]},
                        {"reason": "quiet_hours", "suppressed": [3]}]}
]"#;

#[test]
fn each_thing_that_a_policy_says_has_the_outcome_worked_out_by_hand() {
    for case in serde_json::from_str::<Vec<Value>>(CASES).unwrap() {
        let (name, intents) = (&case["name"], case["intents"].as_array().unwrap());
        let one = |(at, one): (usize, &Value)| {
            intent(&format!("i{at}"), one[0].as_i64().unwrap() * MINUTE_MS, one[1].clone())
        };
        let policy: Vec<&str> = case["policy"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let folder = Folder::with(&policy.join("\n"), intents.iter().enumerate().map(one));
        let (report, sent) = (folder.replay(&[]), case["sent"].as_u64().unwrap());
        assert_eq!(report["policies"][0]["approved"], sent, "{name}: {report:#}");
        assert_eq!(report["policies"][0]["suppressed"], intents.len() as u64 - sent, "{name}");
        assert_eq!(report["reasons"], case["reasons"], "{name}");
    }
}

#[test]
fn byte_order_marks_before_intents_and_policies_are_left_out() {
    let folder = Folder::new();
    let caps = json!([{"name": "c", "limit": 2, "window": "24h"}]);
    folder.write("policy.json", &format!("\u{FEFF}{}", json!({"version": "v", "default": {"caps": caps}})));
    folder.write(
        "policy.toml",
        "\u{FEFF}version = \"v\"\n[default]\ncaps = [{ name = \"c\", limit = 2, window = \"24h\" }]\n",
    );
    let lines: Vec<String> = (0..3).map(|at| intent(&format!("i{at}"), at, json!({})).to_string()).collect();
    folder.write("intents", &format!("\u{FEFF}{}", lines.join("\n")));
    for policy in ["policy.json", "policy.toml"] {
        let report = folder.report(&["--policy", policy, "--intents", "intents", "--no-segments"]);
        let totals = &report["policies"][0];
        assert_eq!((&totals["approved"], &totals["suppressed"]), (&json!(2), &json!(1)), "{policy}: {report:#}");
    }
}

#[test]
fn in_shadow_mode_everything_is_sent_and_what_would_not_be_is_told() {
    let policy = "shadow = true\n[default]\ncaps = [{ name = \"c\", limit = 1, window = \"24h\" }]\n";
    let report = Folder::with(policy, (0..3).map(|at| intent(&format!("i{at}"), at, json!({})))).replay(&[]);
    let totals = &report["policies"][0];
    assert_eq!(
        (&totals["approved"], &totals["shadow_suppressed"], &totals["suppressed"]),
        (&json!(1), &json!(2), &json!(0))
    );
    assert_eq!(report["caps"][0]["suppressed"], json!([2]));
    assert_eq!(report["users"]["approved_per_user"], json!([{"approved": 3, "users": [1]}]));
}
