use super::*;
use crate::intent::dead_letter::DeadLetterReason::{self, Empty, TooDeep};

const NOW: &str = "2026-11-20T09:00:00Z";

fn time(text: &str) -> Time {
    Time::from_rfc3339(text).unwrap()
}

fn user(id: &str) -> ActivityHash {
    UserHash::of(id).into()
}

fn parse(body: &str) -> Result<ActivityReport, DeadLetter> {
    ActivityReport::parse(body.as_bytes(), time(NOW))
}

/// What a record is read as, whose own timestamp is half a minute before now.
fn read(
    reader: &ActivityReader,
    value: &str,
    headers: &[(&'static str, &'static str)],
) -> Result<(ActivityHash, Time), DeadLetter> {
    let headers = headers.iter().map(|(key, value)| Header { key: key.as_bytes(), value: Some(value.as_bytes()) });
    reader.read(Some(value.as_bytes()), headers, Some(time("2026-11-20T08:59:30Z")), time(NOW))
}

#[test]
fn a_report_has_ids_as_numbers_and_strings_and_a_time_that_defaults_to_now() {
    let report = parse(r#"{"user_ids":[42,"42","anna",18446744073709551615]}"#).unwrap();
    assert_eq!(report.users, [user("42"), user("42"), user("anna"), user("18446744073709551615")]);
    assert_eq!(report.at, time(NOW));
    for (at, expected) in [
        (r#""2026-11-20T08:31:00+00:00""#, "2026-11-20T08:31:00Z"),
        ("1795165200000", "2026-11-20T09:00:00Z"),
        ("null", NOW),
        (r#""1999-01-01T00:00:00Z""#, "1999-01-01T00:00:00Z"),
        // Ahead by a minute at most: as of now.
        (r#""2026-11-20T09:01:00Z""#, NOW),
    ] {
        let report = parse(&format!(r#"{{"at":{at},"user_ids":[]}}"#)).unwrap();
        assert_eq!((report.at, report.users), (time(expected), Vec::new()), "{at}");
    }
}

#[test]
fn an_invalid_report_has_its_reason_and_names_the_field() {
    let long = format!(r#"{{"user_ids":["{}"]}}"#, "x".repeat(MAX_ID_BYTES + 1));
    let cases: [(&str, DeadLetterReason, &str); 17] = [
        ("", NotJson, "EOF"),
        ("{", NotJson, "EOF"),
        (r#"{"user_ids":[1]} {}"#, NotJson, "trailing"),
        ("[]", WrongType, "invalid"),
        ("{}", MissingField, "user_ids"),
        (r#"{"user_ids":null}"#, MissingField, "user_ids"),
        (r#"{"user_ids":"42"}"#, WrongType, "a list of at most 10000"),
        (r#"{"user_ids":[42,null]}"#, WrongType, "a user id"),
        (r#"{"user_ids":[-1]}"#, WrongType, "a user id"),
        (r#"{"user_ids":[1.0]}"#, WrongType, "a user id"),
        (r#"{"user_ids":[18446744073709551616]}"#, WrongType, "a user id"),
        (r#"{"user_ids":[""]}"#, WrongType, "1 to 256 bytes"),
        (&long, WrongType, "1 to 256 bytes"),
        (r#"{"user_ids":[1],"att":1}"#, WrongType, "att"),
        (r#"{"user_ids":[1],"at":"yesterday"}"#, BadTime, "RFC 3339"),
        (r#"{"user_ids":[1],"at":[]}"#, WrongType, "RFC 3339"),
        (r#"{"user_ids":[1],"at":"2026-11-20T09:01:00.001Z"}"#, BadTime, "more than a minute ahead"),
    ];
    for (body, reason, message) in cases {
        let letter = parse(body).unwrap_err();
        assert_eq!(letter.reason, reason, "{body}: {letter}");
        assert!(letter.message.contains(message), "{body}: {letter}");
    }
}

#[test]
fn a_record_names_a_user_and_a_time_where_the_fields_are_mapped() {
    let own = "2026-11-20T08:59:30Z";
    let plain = ActivityReader::new("/user_id", "/at").unwrap();
    let mapped = ActivityReader::new("/who/id", "/created_at").unwrap();
    let event = ("content-type", "application/cloudevents+json");
    let given = "2026-11-20T08:45:00Z";
    let none: &[(&str, &str)] = &[];
    let cases = [
        (&plain, r#"{"user_id":42}"#, none, own),
        (&plain, r#"{"id":[],"user_id":"42","at":"2026-11-20T08:45:00Z","cost":"much"}"#, &[], given),
        (&plain, r#"{"user_id":"42","at":1795164300000}"#, &[], given),
        (&plain, r#"{"user_id":"42","at":"2026-11-20T09:00:59Z"}"#, &[], NOW),
        (&mapped, r#"{"user_id":7,"at":"never","who":{"id":42}}"#, &[], own),
        (&mapped, r#"{"who":{"id":42},"created_at":"2026-11-20T08:45:00Z"}"#, &[], given),
        (&plain, r#"{"subject":"42","time":"2026-11-20T08:45:00Z","data":{}}"#, &[event], given),
        (&plain, "{}", &[("ce_subject", "42"), ("ce_time", "2026-11-20T08:45:00Z")], given),
    ];
    for (reader, value, headers, at) in cases {
        assert_eq!(read(reader, value, headers), Ok((user("42"), time(at))), "{value}");
    }
}

#[test]
fn an_invalid_record_has_its_reason_and_names_its_own_fields() {
    let reader = ActivityReader::new("/user_id", "/at").unwrap();
    let deep = "[".repeat(65);
    let cases: [(&str, DeadLetterReason, &str); 8] = [
        ("", Empty, "no bytes"),
        ("{", NotJson, "not JSON"),
        (&deep, TooDeep, ""),
        ("[]", WrongType, "the value"),
        (r#"{"id":"42"}"#, MissingField, "user_id is required"),
        (r#"{"user_id":[]}"#, WrongType, "user_id (/user_id)"),
        (r#"{"user_id":1,"at":"soon"}"#, BadTime, "at (/at) is a string"),
        (r#"{"user_id":1,"at":"2026-11-20T09:01:00.001Z"}"#, BadTime, "at is 2026-11-20T09:01:00.001Z, more than"),
    ];
    for (value, reason, message) in cases {
        let letter = read(&reader, value, &[]).unwrap_err();
        assert_eq!(letter.reason, reason, "{value}: {letter}");
        assert!(letter.message.contains(message), "{value}: {letter}");
    }
    let refused = ActivityReader::new("/at/user", "/at").unwrap_err().to_string();
    assert!(refused.starts_with("user_id = \"/at/user\" lies inside at = \"/at\""), "{refused}");
}
