//! Section 3: what is said of a decision.

use serde_json::{Value, json};
use testkit::kafka::Record;

use crate::{
    contract::run::{DAY_MS, HOUR_MS, RUN, Records, of},
    support::{
        is_by_schema,
        outcome::{OutcomeKind, case, intent, time_ms},
    },
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

/// The one header of an approved record: as it is written, but for its time, versions and numbers.
#[track_caller]
fn header_is(name: &str, expected: &str) {
    let ours = of(name).ours();
    let [(header, text)] = ours.as_slice() else { panic!("{name}: {ours:?}") };
    assert_eq!(header, "weir-decision");
    let decided_at = of(name).approval()["decided_at"].as_str().unwrap().to_owned();
    let versions = r#""policy_version":"contract-1","segments_version":"test-set""#;
    let numbers = of(name).approval()["numbers"].to_string();
    let expected = expected
        .replace("{versions}", &format!(r#""decided_at":"{decided_at}",{versions}"#))
        .replace("{numbers}", &format!(r#""numbers":{numbers}"#));
    assert_eq!(*text, expected, "{name}");
    assert!(time_ms(&decided_at.into()).unwrap() > 0 && text.contains(".") && text.contains("Z\""), "{text}");
}

pub fn an_approved_record_has_one_header_with_the_decision() {
    header_is(
        "headers, all",
        r#"{"verdict":"approved","segment":"staff",{versions},"class":["push","a \"b\"","spring"],{numbers},"cost":7}"#,
    );
    let numbers = &of("headers, all").approval()["numbers"];
    assert!(numbers[0].as_u64() > Some(0) && numbers[1].as_u64() > Some(0), "{numbers}");
}

pub fn a_field_is_absent_where_there_is_nothing_to_say() {
    header_is("headers, no segment", r#"{"verdict":"approved",{versions}}"#);
    header_is(
        "headers, not counted",
        r#"{"verdict":"approved",{versions},"class":[null,"transactional"],"counts":false}"#,
    );
    assert_eq!(of("envelope no segment 1").envelope()["segment"], Value::Null);
}

pub fn the_envelope_says_exactly_this() {
    let outcome = of("envelope cap");
    let first_ms = of("envelope first").decided_ms();
    let text = |ms: i64| format!("{:.3}", jiff::Timestamp::from_millisecond(ms).unwrap());
    let expected = json!({
        "schema": "weir.decision/2",
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

pub fn the_intent_in_the_envelope_is_as_it_came() {
    let value = of("as it came").record.value_text();
    assert!(value.contains(AS_IT_CAME), "{value}");
}

pub fn every_envelope_is_valid_by_the_schema() {
    let mut reasons = std::collections::BTreeSet::new();
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.kind == OutcomeKind::Suppressed) {
        let envelope = outcome.envelope();
        is_by_schema("schemas/decision.schema.json", &envelope);
        assert_eq!(envelope.get("cap").is_some(), envelope["reason"] == "cap", "{name}: cap is there for cap alone");
        reasons.insert(envelope["reason"].as_str().unwrap().to_owned());
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["cap", "duplicate", "expired", "too_early"]);
}

pub fn decided_at_is_the_clock_of_the_decision() {
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.kind != OutcomeKind::Dead) {
        let after_ms = outcome.decided_ms() - RUN.seeded_ms;
        assert!((0..HOUR_MS).contains(&after_ms), "{name} was decided {after_ms} ms after the history was filled");
    }
}

pub fn eligible_at_is_never_before_the_decision() {
    for (name, outcome) in RUN.outcomes.all().filter(|(_, outcome)| outcome.kind == OutcomeKind::Suppressed) {
        if let Some(eligible_ms) = time_ms(&outcome.envelope()["eligible_at"]) {
            assert!(eligible_ms > outcome.decided_ms(), "{name}");
        }
    }
}

pub fn a_dead_letter_says_why_in_the_headers_of_kafka_connect() {
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
