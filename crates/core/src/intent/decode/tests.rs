use std::collections::BTreeSet;

use super::*;
use crate::{basis::zone::Zone, intent::dead_letter::DeadLetterReason};

#[path = "../../../../../tests/fixtures/hostile.rs"]
mod hostile;
mod model;

use hostile::{Expected, Hostile, HostileHeader, hostile};

fn headers<'h>(headers: &'h [HostileHeader]) -> impl Iterator<Item = Header<'h>> {
    headers.iter().map(|&(key, value)| Header { key, value })
}

fn plain(value: &str) -> Result<Intent<'_>, DeadLetter> {
    decode(Some(value.as_bytes()), [], &FieldMap::default())
}

fn structured(value: &str) -> Result<Intent<'_>, DeadLetter> {
    let header = Header { key: b"content-type", value: Some(b"application/cloudevents+json") };
    decode(Some(value.as_bytes()), [header], &FieldMap::default())
}

#[test]
fn every_hostile_record_ends_where_the_docs_say() {
    for Hostile { name, value, headers: given, expected } in hostile() {
        let outcome = decode(value.as_deref(), headers(&given), &FieldMap::default());
        let found = match &outcome {
            Ok(_) => Expected::Intent,
            Err(letter) => Expected::DeadLetter(letter.reason.as_str()),
        };
        assert_eq!(found, expected, "{name}: {:?}", outcome.map_err(|letter| letter.message).map(|intent| intent.id));
    }
}

#[test]
fn the_hostile_table_has_every_reason_and_names_each_case_once() {
    let table = hostile();
    let names: BTreeSet<&str> = table.iter().map(|case| case.name).collect();
    assert!(names.len() >= 60 && names.len() == table.len(), "{} names, {} cases", names.len(), table.len());
    // The others are of values with a frame.
    let framed = [DeadLetterReason::NotDecodable, DeadLetterReason::UnknownSchema];
    for reason in DeadLetterReason::ALL.into_iter().filter(|reason| !framed.contains(reason)) {
        let reason = Expected::DeadLetter(reason.as_str());
        assert!(table.iter().any(|case| case.expected == reason), "no case of {reason:?}");
    }
}

#[test]
fn a_message_says_what_is_wrong_and_where_and_never_what_was_given() {
    let cases = [
        ("{\"id\":\"a\",\n\"user_id\": SECRET}", "the value is not JSON: expected value, at byte 23 of 29"),
        ("{\"id\":\"a\"\n\n,,", "the value is not JSON: key must be a string, at byte 13 of 13"),
        (r#"{"id":"SECRET"#, "the value is not JSON: EOF while parsing a string, at byte 13 of 13"),
        (r#"{"id":"\ud800"}"#, "the value is not JSON: half a surrogate pair is escaped at byte 8 of 15"),
        (r#""SECRET""#, "the value is a string, an intent is an object"),
        (r#"{"user_id":"SECRET"}"#, "id is required and absent: looked for at /id and header ce_id"),
        (r#"{"id":"a","id":"SECRET"}"#, "/id is given twice"),
        (r#"{"id":{"SECRET":1}}"#, "id (/id) is an object, expected a string"),
        (r#"{"id":""}"#, "id (/id) has 0 bytes, expected 1 to 256"),
        (
            r#"{"id":"a","user_id":1e1}"#,
            "user_id (/user_id) is a number, expected a string or an integer from 0 to 2^64-1 without sign, fraction and exponent",
        ),
        (
            r#"{"id":"a","user_id":1,"timezone":"SECRET"}"#,
            "timezone (/timezone) is a string, expected the IANA name of a time zone, such as Asia/Singapore",
        ),
        (
            r#"{"id":"a","user_id":1,"created_at":"SECRET"}"#,
            "created_at (/created_at) is a string, but not an RFC 3339 time of the years 0 to 9999, such as 2026-11-20T09:00:00Z",
        ),
    ];
    for (value, message) in cases {
        assert_eq!(plain(value).unwrap_err().message, message, "{value}");
    }
    let missing = structured(r#"{"id":"e","data":{}}"#).unwrap_err();
    assert_eq!(missing.message, "user_id is required and absent: looked for at /data/user_id and /subject");
}

#[test]
fn the_fields_of_an_intent_are_read() {
    let value = r#"{
        "id": "i-1", "user_id": 42, "channel": "push", "category": "marketing", "campaign": "autumn", "cost": 3,
        "created_at": "2026-11-20T17:00:00+08:00", "expires_at": 1795165200001, "not_before": "2026-11-20T09:00:00.5Z",
        "timezone": "asia/singapore", "payload": {"id": "x"}, "more": [1, {"cost": 0}]
    }"#;
    let at = |more: i64| Time::from_millis(1_795_165_200_000 + more);
    let expected = Intent {
        id: "i-1".into(),
        user_id: "42".into(),
        channel: Some("push".into()),
        category: Some("marketing".into()),
        campaign: Some("autumn".into()),
        cost: 3,
        created_at: at(0),
        expires_at: at(1),
        not_before: at(500),
        timezone: Zone::named("Asia/Singapore"),
        id_hash: IdHash::of("i-1"),
        user: UserHash::of("42"),
        value: IntentValue::Json(value),
    };
    assert_eq!(plain(value).unwrap(), expected);
}

#[test]
fn times_before_1971_are_told_from_others() {
    for (times, is_early) in [
        (r#","expires_at":"0001-01-01T00:00:00Z""#, true),
        (r#","expires_at":1795165200"#, true),
        (r#","created_at":1795165200,"expires_at":1795165200000"#, true),
        (r#","not_before":0"#, true),
        (r#","not_before":"1970-12-31T23:59:59.999Z""#, true),
        ("", false),
        (r#","expires_at":null"#, false),
        (r#","created_at":31536000000,"expires_at":"2026-11-20T09:00:00Z""#, false),
    ] {
        let value = format!(r#"{{"id":"i","user_id":"u"{times}}}"#);
        assert_eq!(plain(&value).unwrap().has_early_time(), is_early, "{times}");
    }
}

/// A text is looked at in blocks: what ends a string, or may not stand in one, is found wherever it stands in one.
#[test]
fn strings_end_where_they_do_whatever_the_length() {
    for length in 0..300 {
        let plain = "a".repeat(length);
        let with = |inside: &str| format!(r#"{{"id":"i","x":"{plain}{inside}{plain}","user_id":"{plain}u"}}"#);
        for inside in ["", "é", r#"\""#, r"\\", r"\u00e9", r"\ud83d\ude00", "\u{7f}"] {
            let value = with(inside);
            assert_eq!(user_bytes(&value), if length < 256 { Ok(length + 1) } else { Err("wrong_type") }, "{value}");
        }
        for inside in ["\u{1f}", "\n", "\0", r"\x", r"\ud83d", "\""] {
            assert_eq!(user_bytes(&with(inside)), Err("not_json"), "{}", with(inside));
        }
        let value = with("");
        for end in [value.len() - 1, value.len() - 2, value.len() - 3, value.len() / 2] {
            assert_eq!(user_bytes(&value[..end]), Err("not_json"), "{}", &value[..end]);
        }
    }
}

fn user_bytes(value: &str) -> Result<usize, &'static str> {
    plain(value).map(|intent| intent.user_id.len()).map_err(|letter| letter.reason.as_str())
}

#[test]
fn digits_are_read_exactly_whatever_their_number() {
    for digits in 1..=40 {
        for first in ["1", "9", "-7"] {
            let number: String =
                first.chars().chain((1..digits).map(|at| char::from(b'0' + (at * 7 % 10) as u8))).collect();
            let value = format!(r#"{{"id":"i","created_at":{number},"user_id":{number}}}"#);
            let expected = match (number.parse::<u64>(), number.parse().ok().and_then(Time::from_millis)) {
                (Err(_), _) => Err("wrong_type"),
                (Ok(_), None) => Err("bad_time"),
                (Ok(_), Some(at)) => Ok((number.clone(), Some(at))),
            };
            let read = plain(&value).map(|intent| (intent.user_id.into_owned(), intent.created_at));
            assert_eq!(read.map_err(|letter| letter.reason.as_str()), expected, "{value}");
        }
    }
}

#[test]
fn nothing_is_copied_that_has_no_escapes() {
    let value = r#"{"id":"i-1","user_id":42,"channel":"push","campaign":"a\u0062"}"#;
    let intent = plain(value).unwrap();
    let inside = |text: &Cow<'_, str>| matches!(text, Cow::Borrowed(text) if value.as_bytes().as_ptr_range().contains(&text.as_ptr()));
    assert!(inside(&intent.id) && inside(&intent.user_id) && intent.channel.as_ref().is_some_and(inside));
    assert_eq!(intent.campaign, Some(Cow::Owned("ab".to_owned())));
    assert_eq!(intent.value().json().unwrap().as_ptr(), value.as_ptr());
    let letters = plain(r#"{"id":"\u0069\ud83d\ude00","user_id":"{u}\u0000\/é"}"#).unwrap();
    assert_eq!((&*letters.id, &*letters.user_id), ("i😀", "{u}\0/é"));
}

#[test]
fn mapped_fields_are_found_at_their_pointers() {
    let map = FieldMap::new([
        (IntentField::UserId, "/recipients/1/id"),
        (IntentField::Id, "/meta/a~1b/~0id"),
        (IntentField::Campaign, "/recipients/1/id"),
        (IntentField::Cost, "/meta/cost"),
    ])
    .unwrap();
    let value = r#"{
        "recipients": [{"id": "no"}, {"id": "u", "id2": 1}, {"id": "no"}],
        "id": 5, "user_id": [], "meta": {"cost": 2, "a/b": {"~id": "i", "x": 1e400}, "a": {}}, "channel": "push"
    }"#;
    let intent = decode(Some(value.as_bytes()), [], &map).unwrap();
    assert_eq!((&*intent.id, &*intent.user_id, intent.campaign.as_deref()), ("i", "u", Some("u")));
    assert_eq!((intent.cost, intent.channel.as_deref()), (2, Some("push")));

    let cases = [
        (r#"{"1":{"id":"u"}}"#, Ok("u")),
        (r#"[{},{"id":7}]"#, Err("wrong_type")),
        ("[{}]", Err("missing_field")),
        (r#"{"01":{"id":"u"}}"#, Err("missing_field")),
        (r#""none""#, Err("missing_field")),
        ("1e400", Err("missing_field")),
        ("null", Err("missing_field")),
        (r#"[0,{"id":"u"}],"meta":{}"#, Err("wrong_type")),
        (r#"[0,{"id":"u","id":"u"}]"#, Err("wrong_type")),
        (r#"[0,{"id":"u",}]"#, Err("not_json")),
        (r#"[0,{"id":"u","\ud800":1}]"#, Err("not_json")),
    ];
    for (recipients, expected) in cases {
        let value = format!(r#"{{"meta":{{"a/b":{{"~id":"i"}}}},"recipients":{recipients}}}"#);
        let found = decode(Some(value.as_bytes()), [], &map);
        let found = found.map(|intent| intent.user_id.into_owned()).map_err(|letter| letter.reason.as_str());
        // A user that is a number is also the campaign here, which no number is.
        assert_eq!(found, expected.map(str::to_owned), "{value}");
    }
    let padded = FieldMap::new([(IntentField::UserId, "/recipients/01/id")]).unwrap();
    let letter = decode(Some(br#"{"id":"i","recipients":[{},{"id":"u"}]}"#), [], &padded).unwrap_err();
    assert_eq!(letter.reason, DeadLetterReason::MissingField, "01 is no element's number");
    let missing = decode(Some(br#"{"meta":{"a/b":{"~id":"i"}}}"#), [], &map).unwrap_err();
    assert_eq!(missing.message, "user_id is required and absent: looked for at /recipients/1/id and header ce_subject");
}

#[test]
fn the_headers_of_an_event_stand_in_for_what_its_data_lacks() {
    let given: &[HostileHeader] = &[
        (b"ce_id", Some(b"early")),
        (b"CE_ID", Some(b"e")),
        (b"ce_subject", Some(b"s")),
        (b"ce_time", Some(b"2026-11-20T09:00:00Z")),
        (b"content-type", Some(b"application/json")),
    ];
    let read = |value: &'static str| decode(Some(value.as_bytes()), headers(given), &FieldMap::default()).unwrap();
    let intent = read(r#"{"user_id":null}"#);
    assert_eq!((&*intent.id, &*intent.user_id), ("e", "s"), "the last header of a name counts");
    assert_eq!(intent.created_at, Time::from_millis(1_795_165_200_000));
    let intent = read(r#"{"id":"i","user_id":7,"created_at":0}"#);
    assert_eq!((&*intent.id, &*intent.user_id, intent.created_at), ("i", "7", Time::from_millis(0)));
    let given: &[HostileHeader] =
        &[(b"content-type", Some(b"application/cloudevents+json")), (b"ce_subject", Some(b"s"))];
    let letter = decode(Some(br#"{"id":"e"}"#), headers(given), &FieldMap::default()).unwrap_err();
    assert_eq!(letter.reason, DeadLetterReason::MissingField, "a structured event is read by its value alone");
}

#[test]
fn an_events_own_id_is_unique_in_its_source_alone() {
    let of = |value: &str| structured(value).map(|intent| (intent.id.into_owned(), intent.id_hash)).unwrap();
    let event = |source: &str, data: &str| of(&format!(r#"{{"id":"1",{source}"subject":"s","data":{{{data}}}}}"#));
    let (first, second) = (event(r#""source":"/a","#, ""), event(r#""source":"/b","#, ""));
    assert_eq!((&*first.0, &*second.0), ("1", "1"), "the id is told as it is");
    assert_ne!(first.1, second.1);
    assert_eq!(event(r#""source":"\u002fa","#, ""), first, "names of a source are compared as text");
    assert_eq!(event("", ""), ("1".to_owned(), IdHash::of("1")), "without a source, there is the id alone");
    for source in ["", r#""source":"/a","#, r#""source":7,"#] {
        assert_eq!(event(source, r#""id":"2""#), ("2".to_owned(), IdHash::of("2")), "the publisher's own id");
    }
    let letter = structured(r#"{"id":"1","source":7,"subject":"s"}"#).unwrap_err();
    assert_eq!(letter.message, "source (/source) is a number, expected a string");

    let binary = |source: &'static [u8]| {
        let given: &[HostileHeader] =
            &[(b"ce_id", Some(b"1")), (b"CE_source", Some(source)), (b"ce_subject", Some(b"s"))];
        decode(Some(b"{}"), headers(given), &FieldMap::default()).map(|intent| (intent.id.into_owned(), intent.id_hash))
    };
    assert_eq!(binary(b"/a"), Ok(first), "both modes carry one event");
    assert_eq!(binary(b"/b"), Ok(second));
    assert_eq!(binary(b"\xFF").unwrap_err().message, "header ce_source, read as source, is not UTF-8");
}

/// As in <https://github.com/cloudevents/sdk-go/issues/1113>: without a content type, the Kafka binding says, it is none. Its id must
/// not pass for an intent's, because its source would not be read.
#[test]
fn what_looks_like_an_event_and_has_no_content_type_is_no_event() {
    let value =
        r#"{"specversion":"1.0","type":"t","source":"/s","id":"1","time":"2018-04-05T03:56:24Z","data":{"user_id":1}}"#;
    let letter = plain(value).unwrap_err();
    assert_eq!(letter.reason, DeadLetterReason::MissingField);
    assert!(letter.message.starts_with("user_id is required and absent: looked for at /user_id"), "{}", letter.message);
    assert_eq!(structured(value).unwrap().id_hash, IdHash::of_event("/s", "1"));
}
