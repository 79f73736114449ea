//! Small files with outcomes worked out by hand, a case for each thing that a policy can say.

use serde_json::{Value, json};

use super::runs::{Folder, MINUTE_MS, intent};

/// A policy's body, the intents with their hours (in minutes after Monday's midnight UTC), and how many are sent and why
/// others are not.
struct Case {
    name: &'static str,
    policy: &'static str,
    intents: Vec<(i64, Value)>,
    sent: u64,
    reasons: Value,
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn cases() -> Vec<Case> {
    let plain = |minutes: &[i64]| minutes.iter().map(|minute| (*minute, json!({}))).collect::<Vec<_>>();
    vec![
        Case {
            name: "a send leaves its window after exactly 24 hours",
            policy: r#"[default]
caps = [{ name = "c", limit = 2, window = "24h" }]"#,
            intents: plain(&[0, 60, 120, 1439, 1440, 1441, 1500]),
            sent: 4,
            reasons: json!([{"reason": "cap", "suppressed": [3]}]),
        },
        Case {
            name: "a day is one of the policy's zone, and of the intent's where it names one",
            policy: r#"timezone = "Asia/Singapore"
[default]
caps = [{ name = "c", limit = 1, per = "day" }]"#,
            // Singapore's midnight is 16:00 UTC, New York's 05:00.
            intents: vec![
                (0, json!({})),
                (959, json!({})),
                (960, json!({})),
                (961, json!({})),
                (0, json!({"user_id": 2, "timezone": "America/New_York"})),
                (299, json!({"user_id": 2, "timezone": "America/New_York"})),
                (300, json!({"user_id": 2, "timezone": "America/New_York"})),
                (960, json!({"user_id": 2, "timezone": "America/New_York"})),
            ],
            sent: 4,
            reasons: json!([{"reason": "cap", "suppressed": [4]}]),
        },
        Case {
            name: "each campaign is counted by itself",
            policy: r#"[default]
caps = [{ name = "c", limit = 1, window = "1h", each = "campaign" }]"#,
            intents: vec![
                (0, json!({"campaign": "a"})),
                (1, json!({"campaign": "b"})),
                (2, json!({"campaign": "a"})),
                (3, json!({})),
                (4, json!({})),
                (60, json!({"campaign": "a"})),
            ],
            sent: 4,
            reasons: json!([{"reason": "cap", "suppressed": [2]}]),
        },
        Case {
            name: "costs add up",
            policy: r#"[default]
caps = [{ name = "c", limit = 10, window = "24h" }]"#,
            intents: vec![
                (0, json!({"cost": 6})),
                (1, json!({"cost": 5})),
                (2, json!({"cost": 4})),
                (3, json!({"cost": 1})),
                (4, json!({"cost": 11, "user_id": 2})),
            ],
            sent: 2,
            reasons: json!([{"reason": "cap", "suppressed": [3]}]),
        },
        Case {
            name: "a filter asks and counts its categories alone",
            policy: r#"[default]
caps = [{ name = "c", limit = 1, window = "24h", category = ["promo"] }]"#,
            intents: vec![
                (0, json!({"category": "news"})),
                (1, json!({"category": "promo"})),
                (2, json!({"category": "promo"})),
                (3, json!({"category": "news"})),
                (4, json!({})),
            ],
            sent: 4,
            reasons: json!([{"reason": "cap", "suppressed": [1]}]),
        },
        Case {
            name: "quiet hours, expiry and a late not_before suppress, a bypass does not count, an id is sent once",
            policy: r#"max_age = "1h"
[default]
caps = [{ name = "c", limit = 2, window = "24h" }]
[[bypass]]
category = "transactional"
counts = false
[quiet_hours]
from = "22:00"
to = "08:00"
action = "suppress""#,
            intents: vec![
                (0, json!({})),
                (479, json!({})),
                (480, json!({"id": "same"})),
                (481, json!({"id": "same"})),
                (482, json!({"category": "transactional"})),
                (483, json!({"expires_at": "2026-11-16T08:03:00Z"})),
                (484, json!({"not_before": "2026-11-19T08:05:01Z"})),
                (485, json!({"not_before": "2026-11-16T08:05:00Z"})),
                (486, json!({})),
                (1320, json!({})),
            ],
            sent: 3,
            reasons: json!([
                {"reason": "cap", "suppressed": [1]}, {"reason": "duplicate", "suppressed": [1]},
                {"reason": "expired", "suppressed": [1]}, {"reason": "too_early", "suppressed": [1]},
                {"reason": "quiet_hours", "suppressed": [3]}
            ]),
        },
    ]
}

#[test]
fn each_thing_that_a_policy_says_has_the_outcome_worked_out_by_hand() {
    for Case { name, policy, intents, sent, reasons } in cases() {
        let count = intents.len() as u64;
        let one = |(at, (minute, more)): (usize, (i64, Value))| intent(&format!("i{at}"), minute * MINUTE_MS, more);
        let report = Folder::with(policy, intents.into_iter().enumerate().map(one)).replay(&[]);
        assert_eq!(report["policies"][0]["approved"], sent, "{name}: {report:#}");
        assert_eq!(report["policies"][0]["suppressed"], count - sent, "{name}");
        assert_eq!(report["reasons"], reasons, "{name}");
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
