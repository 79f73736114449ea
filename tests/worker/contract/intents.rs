//! Section 2: what an intent looks like.

use serde_json::json;
use testkit::kafka::Record;

use crate::{
    contract::run::{RUN, Records, words},
    support::outcome::{OutcomeKind, case, intent},
};

const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json; charset=utf-8");

pub fn records() -> Records {
    let number =
        |name: &str, user: u64| case(name, Record::new("700042", json!({"id": name, "user_id": user}).to_string()));
    let structured = |name: &str, value: serde_json::Value| {
        case(name, Record::new("ce", value.to_string()).header(STRUCTURED.0, STRUCTURED.1))
    };
    let binary = |name: &str, value: serde_json::Value| {
        let record = Record::new("ce", value.to_string()).header("content-type", "application/json");
        case(name, record.header("ce_id", name).header("ce_subject", "502").header("ce_time", "2001-01-01T00:00:00Z"))
    };
    // A user who is not capped, and whose sends are recorded.
    let of_source = |name: &str, source: &str| {
        structured(name, json!({"specversion": "1.0", "id": "100", "source": source, "subject": "660", "data": {}}))
    };
    vec![
        of_source("sources 0", "/openedx/studio/web"),
        of_source("sources 1", "/openedx/lms/web"),
        of_source("sources 2", "/openedx/studio/web"),
        number("one user 0", 700_042),
        intent("one user 1", "700042", json!({})),
        intent("nulls", "700043", json!({"channel": null, "cost": null, "created_at": null, "payload": null})),
        structured("structured", json!({"specversion": "1.0", "id": "structured", "subject": "503", "data": {}})),
        structured(
            "structured, old",
            json!({"id": "e", "subject": "503", "time": "2001-01-01T00:00:00Z", "data": null}),
        ),
        structured(
            "structured, data goes before",
            json!({"id": "e", "subject": "s", "time": "2001-01-01T00:00:00Z",
                "data": {"id": "in data", "user_id": 504, "created_at": null, "not_before": "2001-01-01T00:00:00Z",
                         "expires_at": "2101-01-01T00:00:00+05:30"}}),
        ),
        binary("binary, old", json!({})),
        binary(
            "binary, data goes before",
            json!({"id": "in value", "user_id": "505", "created_at": 4_000_000_000_000_i64}),
        ),
    ]
}

pub fn a_user_id_as_number_and_as_text_is_one_user() {
    assert_eq!(RUN.outcomes.series("one user "), words(&["approved", "cap daily 1/1"]));
    assert_eq!(RUN.outcomes.of("one user 1").envelope()["user_id"], "700042");
}

pub fn null_is_the_same_as_absent() {
    assert_eq!(RUN.outcomes.of("nulls").verdict(), "approved");
}

pub fn a_structured_cloud_event_is_an_intent() {
    let envelope = RUN.outcomes.of("structured").envelope();
    let seen = (&envelope["intent_id"], &envelope["user_id"], &envelope["segment"], &envelope["reason"]);
    assert_eq!(seen, (&json!("structured"), &json!("503"), &json!("never"), &json!("cap")));
    assert_eq!(envelope["intent"]["specversion"], "1.0", "the intent as it came is the whole event");
    assert_eq!(RUN.outcomes.of("structured, old").verdict(), "expired", "time is created_at");
    // created_at is null in data, so time stands in: it has expired, under the ids of data.
    let envelope = RUN.outcomes.of("structured, data goes before").envelope();
    let seen = (&envelope["intent_id"], &envelope["user_id"], &envelope["reason"]);
    assert_eq!(seen, (&json!("in data"), &json!("504"), &json!("expired")));
}

/// The events of <https://github.com/openedx/openedx-events/issues/77>.
pub fn events_of_two_sources_with_one_id_are_two_intents() {
    assert_eq!(RUN.outcomes.series("sources "), words(&["approved", "approved", "duplicate"]));
    assert_eq!(RUN.outcomes.of("sources 2").envelope()["intent_id"], "100");
}

pub fn a_binary_cloud_event_is_an_intent() {
    let envelope = RUN.outcomes.of("binary, old").envelope();
    let seen = (&envelope["intent_id"], &envelope["user_id"], &envelope["reason"]);
    assert_eq!(seen, (&json!("binary, old"), &json!("502"), &json!("expired")));
    let outcome = RUN.outcomes.of("binary, data goes before");
    let envelope = outcome.envelope();
    let seen = (&envelope["intent_id"], &envelope["user_id"], &envelope["reason"]);
    assert_eq!(seen, (&json!("in value"), &json!("505"), &json!("cap")));
    assert_eq!(outcome.kind, OutcomeKind::Suppressed);
}
