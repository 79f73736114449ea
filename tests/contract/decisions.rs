//! Section 3: what is said of a decision.

use serde_json::{Value, json};
use testkit::kafka::Record;

use crate::{
    run::{DAY_MS, HOUR_MS, RUN, Records},
    support::outcome::{Outcome, Way, case, intent, time_ms},
};

/// An intent in a form that no serialiser gives it.
const AS_IT_CAME: &str = "{ \"user_id\":520,\n\t\"id\":\"as it came\", \"payload\":{\"b\":1e2,\"a\":\"\\u00e9\"}}";

pub fn records() -> Records {
    let full = json!({"channel": "push", "category": "a \"b\"", "campaign": "spring", "cost": 7});
    vec![
        intent("headers, all", 650, full),
        intent("headers, no segment", "nobody-650", json!({})),
        intent("headers, not counted", "nobody-651", json!({"category": "transactional"})),
        intent("envelope first", 50, json!({"cost": 2})),
        intent("envelope cap", 50, json!({})),
        intent("envelope no segment 0", "nobody-652", json!({})),
        intent("envelope no segment 1", "nobody-652", json!({})),
        case("as it came", Record::new("520", AS_IT_CAME)),
    ]
}

fn of(name: &str) -> &'static Outcome {
    RUN.outcomes.of(name)
}

fn ours(name: &str) -> Vec<(String, String)> {
    of(name).ours()
}

#[track_caller]
fn headers_are(name: &str, expected: &[(&str, &str)]) {
    let decided_at = of(name).decided_ms().to_string();
    let expected: Vec<(String, String)> = expected
        .iter()
        .map(|&(header, value)| (header.to_owned(), value.replace("{decided_at}", &decided_at)))
        .collect();
    assert_eq!(ours(name), expected, "{name}");
}

#[test]
fn an_approved_record_has_these_headers_and_no_others() {
    headers_are(
        "headers, all",
        &[
            ("weir-verdict", "approved"),
            ("weir-decided-at", "{decided_at}"),
            ("weir-segment", "staff"),
            ("weir-policy", "contract-1"),
            ("weir-segments", "test-set"),
            ("weir-cost", "7"),
            ("weir-counts", "true"),
            ("weir-class", r#"["push","a \"b\"","spring"]"#),
        ],
    );
}

#[test]
fn the_segment_is_left_out_for_a_user_in_none() {
    let rest = [("weir-policy", "contract-1"), ("weir-segments", "test-set"), ("weir-cost", "1")];
    let first = [("weir-verdict", "approved"), ("weir-decided-at", "{decided_at}")];
    let counted = [("weir-counts", "true"), ("weir-class", "[null,null,null]")];
    headers_are("headers, no segment", &[&first[..], &rest, &counted].concat());
    let not_counted = [("weir-counts", "false"), ("weir-class", r#"[null,"transactional",null]"#)];
    headers_are("headers, not counted", &[&first[..], &rest, &not_counted].concat());
    assert_eq!(of("envelope no segment 1").envelope()["segment"], Value::Null);
}

#[test]
fn the_envelope_says_exactly_this() {
    let outcome = of("envelope cap");
    let first_ms = of("envelope first").decided_ms();
    let text = |ms: i64| format!("{:.3}", jiff::Timestamp::from_millisecond(ms).unwrap());
    let expected = json!({
        "schema": "weir.decision/1",
        "verdict": "suppressed",
        "reason": "cap",
        "intent_id": "envelope cap",
        "user_id": "50",
        "segment": "two",
        "cap": {"name": "daily", "limit": 2, "window": "24h", "used": 2},
        "eligible_at": text(first_ms + DAY_MS),
        "decided_at": text(outcome.decided_ms()),
        "policy_version": "contract-1",
        "segments_version": "test-set",
        "origin": {
            "topic": RUN.scene.topic("intents"),
            "partition": outcome.input.partition,
            "offset": outcome.input.offset,
        },
        "intent": {"id": "envelope cap", "user_id": "50"},
    });
    assert_eq!(outcome.envelope(), expected);
}

#[test]
fn the_intent_in_the_envelope_is_as_it_came() {
    let value = of("as it came").record.value_text();
    assert!(value.contains(AS_IT_CAME), "{value}");
}

#[test]
fn every_envelope_is_valid_by_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/decision.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut reasons = std::collections::BTreeSet::new();
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.way == Way::Suppressed) {
        let envelope = outcome.envelope();
        let problems: Vec<String> = validator.iter_errors(&envelope).map(|problem| problem.to_string()).collect();
        assert!(problems.is_empty(), "{name}: {problems:?}");
        assert_eq!(envelope.get("cap").is_some(), envelope["reason"] == "cap", "{name}: cap is there for cap alone");
        reasons.insert(envelope["reason"].as_str().unwrap().to_owned());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["cap", "duplicate", "expired", "too_early"]);
}

#[test]
fn decided_at_is_the_clock_of_the_decision() {
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.way != Way::Dead) {
        let after_ms = outcome.decided_ms() - RUN.seeded_ms;
        assert!((0..HOUR_MS).contains(&after_ms), "{name} was decided {after_ms} ms after the history was filled");
    }
}

#[test]
fn eligible_at_is_never_before_the_decision() {
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.way == Way::Suppressed) {
        if let Some(eligible_ms) = time_ms(&outcome.envelope()["eligible_at"]) {
            assert!(eligible_ms > outcome.decided_ms(), "{name}");
        }
    }
}

#[test]
fn a_dead_letter_says_why_in_the_headers_of_kafka_connect() {
    let outcome = of("Dead text key");
    let mut ours = outcome.ours();
    let message = ours.pop().unwrap();
    let input = &outcome.input;
    let expected = [
        ("weir-reason", "not_json".to_owned()),
        ("__connect.errors.topic", RUN.scene.topic("intents")),
        ("__connect.errors.partition", input.partition.to_string()),
        ("__connect.errors.offset", input.offset.to_string()),
        ("__connect.errors.stage", "VALUE_CONVERTER".to_owned()),
    ];
    assert_eq!(ours, expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(message.0, "__connect.errors.exception.message");
    assert!(!message.1.is_empty());
}
