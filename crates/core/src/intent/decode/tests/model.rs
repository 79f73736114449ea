//! Decoding against a model that builds the whole tree of a value, and against noise.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::intent::dead_letter::DeadLetterReason::{NotJson, TooDeep};

/// What makes JSON of something else, and the other way round.
fn piece() -> impl Strategy<Value = &'static str> {
    let pieces = "\"|\\|\\\"|\\u|\\u0041|\\ud83d|\\ude00|\\ud83d\\ude00|\\/|\\x|\n|\u{1f}|\u{7f}|\t| |,|:|{|}|[|]|0|-|1.|.5|e|E+1|\
                  true|nul|null|é|😀|\"id\":|\"a\" : 1 ,|{}|[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[";
    prop::sample::select(pieces.split('|').collect::<Vec<_>>())
}

/// What is compared: the fields, or the reason.
type Outcome = Result<Value, &'static str>;

fn outcome(decoded: Result<Intent<'_>, DeadLetter>) -> Outcome {
    let intent = decoded.map_err(|letter| letter.reason.as_str())?;
    Ok(json!({
        "id": intent.id, "id_hash": intent.id_hash.0, "user_id": intent.user_id, "channel": intent.channel,
        "category": intent.category, "campaign": intent.campaign, "cost": intent.cost,
        "timezone": intent.timezone.map(|zone| zone.name()), "created_at": intent.created_at,
        "expires_at": intent.expires_at, "not_before": intent.not_before,
    }))
}

/// The rules of docs/records.md on a tree, which may be that of an event. Sees neither fields given twice nor bytes that are no tree.
fn model(value: &Value, map: &FieldMap, structured: bool) -> Outcome {
    let absent = Value::Null;
    if !value.is_object() {
        return Err("wrong_type");
    }
    let data = if structured { &value["data"] } else { value };
    if structured && (!value["data_base64"].is_null() || !(data.is_null() || data.is_object())) {
        return Err("wrong_type");
    }
    let at = |field: IntentField, other: &str| {
        let own = data.pointer(map.pointer(field)).filter(|own| !own.is_null());
        own.or(value.get(other).filter(|_| structured && !other.is_empty())).unwrap_or(&absent).clone()
    };
    let text = |given: Value| if given.is_string() || given.is_null() { Ok(given) } else { Err("wrong_type") };
    let id = |given: Value| match given {
        Value::Null => Err("missing_field"),
        Value::String(text) if (1..=256).contains(&text.len()) => Ok(text),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => Err("wrong_type"),
    };
    let user = |given: Value| if given.is_u64() { Ok(given.to_string()) } else { id(given) };
    let cost = |given: Value| match given.as_u64() {
        _ if given.is_null() => Ok(1),
        Some(cost @ 1..=255) => Ok(cost),
        _ => Err("wrong_type"),
    };
    let time = |given: Value| match &given {
        Value::Null => Ok(None),
        Value::String(text) => Time::from_rfc3339(text).map(Some).ok_or("bad_time"),
        Value::Number(number) if number.is_u64() || number.is_i64() => {
            number.as_i64().and_then(Time::from_millis).map(Some).ok_or("bad_time")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err("wrong_type"),
    };
    let zone = |given: Value| match &given {
        Value::Null => Ok(None),
        Value::String(name) => Zone::named(name).map(|zone| Some(zone.name())).ok_or("wrong_type"),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err("wrong_type"),
    };
    let own = id(at(IntentField::Id, "id"))?;
    let is_of_event = structured && data.pointer(map.pointer(IntentField::Id)).is_none_or(Value::is_null);
    let id_hash = match text(value["source"].clone()) {
        Ok(Value::String(source)) if is_of_event => IdHash::of_event(&source, &own),
        Err(reason) if is_of_event => return Err(reason),
        Ok(_) | Err(_) => IdHash::of(&own),
    };
    Ok(json!({
        "id": own,
        "id_hash": id_hash.0,
        "user_id": user(at(IntentField::UserId, "subject"))?,
        "channel": text(at(IntentField::Channel, ""))?,
        "category": text(at(IntentField::Category, ""))?,
        "campaign": text(at(IntentField::Campaign, ""))?,
        "cost": cost(at(IntentField::Cost, ""))?,
        "created_at": time(at(IntentField::CreatedAt, "time"))?,
        "expires_at": time(at(IntentField::ExpiresAt, ""))?,
        "not_before": time(at(IntentField::NotBefore, ""))?,
        "timezone": zone(at(IntentField::Timezone, ""))?,
    }))
}

fn maps() -> [FieldMap; 2] {
    let nested = [
        (IntentField::Id, "/meta/id"),
        (IntentField::UserId, "/to/0/id"),
        (IntentField::Cost, "/meta/0"),
        (IntentField::Channel, "/to/0/channel"),
        (IntentField::Campaign, "/a~1b"),
    ];
    [FieldMap::default(), FieldMap::new(nested).unwrap()]
}

/// JSON that is often nearly right.
fn value() -> impl Strategy<Value = Value> {
    let names = "id|user_id|channel|category|campaign|cost|created_at|expires_at|not_before|timezone|subject|time|data\
                 |data_base64|source|meta|to|a/b|0|payload|.{0,3}";
    let scalar = prop_oneof![
        4 => "[a-z0-9{}é\"\\\\😀\u{0}]{1,6}".prop_map(Value::from),
        1 => prop_oneof![Just("".to_owned()), "x{256}", "x{257}"].prop_map(Value::from),
        2 => prop_oneof![Just("2026-11-20T09:00:00Z"), Just("Asia/Singapore"), Just("utc")].prop_map(Value::from),
        2 => (0_u64..300).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    scalar.prop_recursive(3, 40, 8, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(names, inner, 0..8)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// An intent's members by their names, each one there or not, and nearly always right.
fn members() -> impl Strategy<Value = Map<String, Value>> {
    let name = || "[a-z{}\\\\é]{1,6}".prop_map(Value::from).boxed();
    let cost = (1_u64..256).prop_map(Value::from).boxed();
    let user = prop_oneof![name(), any::<u64>().prop_map(Value::from)].boxed();
    let time = || prop_oneof![Just(json!("2026-11-20T17:00:00.123+08:00")), any::<i32>().prop_map(Value::from)].boxed();
    let zone = prop::sample::select(vec!["Asia/Singapore", "utc", "EUROPE/PARIS"]).prop_map(Value::from).boxed();
    let good = [
        ("id", name()),
        ("user_id", user.clone()),
        ("subject", user),
        ("source", name()),
        ("channel", name()),
        ("category", name()),
        ("campaign", name()),
        ("a/b", name()),
        ("cost", cost),
        ("created_at", time()),
        ("time", time()),
        ("expires_at", time()),
        ("not_before", time()),
        ("timezone", zone),
    ];
    let member = |(name, good): (&'static str, BoxedStrategy<Value>)| {
        let given = prop_oneof![30 => good, 1 => value()];
        prop::option::weighted(0.8, given).prop_map(move |given| given.map(|given| (name.to_owned(), given)))
    };
    good.map(member).to_vec().prop_map(|members| members.into_iter().flatten().collect())
}

/// A value that is an intent by one of the maps, or as an event, more often than not.
fn likely() -> impl Strategy<Value = Value> {
    let nested = |members: &Map<String, Value>, other: Value| {
        let mut outer = members.clone();
        outer.insert("meta".to_owned(), members.clone().into());
        outer
            .insert("to".to_owned(), json!([{"id": members.get("user_id"), "channel": members.get("channel")}, other]));
        outer
    };
    (members(), members(), value(), 0..4).prop_map(move |(own, inner, noise, shape)| match shape {
        0 => noise,
        1 => nested(&own, noise).into(),
        _ => {
            let mut event = nested(&own, noise);
            event.insert("data".to_owned(), nested(&inner, Value::Null).into());
            event.into()
        }
    })
}

/// What is wrong with the JSON of a text, found by looking at it three times.
fn slow(text: &str) -> Result<(), DeadLetterReason> {
    let deep = first_level_too_many(text.as_bytes());
    let read = deep.map_or(text, |at| &text[..=at]);
    let whole = serde_json::from_str::<serde::de::IgnoredAny>(read);
    match (has_half_pair(read.as_bytes()), whole, deep) {
        (false, Ok(_), None) => Ok(()),
        (false, Err(error), Some(_)) if error.is_eof() => Err(TooDeep),
        _ => Err(NotJson),
    }
}

/// The bracket that opens level 65, were the text JSON.
fn first_level_too_many(bytes: &[u8]) -> Option<usize> {
    let (mut level, mut in_string, mut is_escaped) = (0_usize, false, false);
    bytes.iter().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => level += 1,
            b'}' | b']' if !in_string => level = level.saturating_sub(1),
            _ => {}
        }
        level > 64
    })
}

/// Whether half a surrogate pair is escaped. In JSON backslashes are in strings only.
fn has_half_pair(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        at += match (bytes[at], scan::utf16_escape(bytes, at), scan::utf16_escape(bytes, at + 6)) {
            (b'\\', Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (b'\\', Some(0xD800..=0xDFFF), _) => return true,
            (b'\\', ..) => 2,
            _ => 1,
        };
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn decoding_agrees_with_the_model_that_builds_a_tree(value in likely(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        for map in maps() {
            let found = outcome(decode(Some(text.as_bytes()), [], &map));
            prop_assert_eq!(found, model(&value, &map, false), "{}", text);
            let event = [Header { key: b"content-type", value: Some(b"application/cloudevents+json") }];
            let found = outcome(decode(Some(text.as_bytes()), event, &map));
            prop_assert_eq!(found, model(&value, &map, true), "as an event: {}", text);
        }
    }

    #[test]
    fn what_is_json_and_how_deep_agrees_with_the_model(text in r#"[\[\]{}",:\\ua1-]{0,40}"#, levels in 0_usize..100) {
        let text = format!("{}{text}{}", "[".repeat(levels), "]".repeat(levels));
        fn depth(value: &Value) -> usize {
            match value {
                Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
                Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
            }
        }
        let reason = decode(Some(text.as_bytes()), [], &FieldMap::default()).map_err(|letter| letter.reason.as_str());
        match serde_json::from_str::<Value>(&text) {
            Ok(value) if depth(&value) > 64 => prop_assert_eq!(reason, Err("too_deep")),
            Ok(value) => prop_assert_eq!(reason.map(|_| Value::Null), model(&value, &FieldMap::default(), false)),
            Err(_) if levels > 64 => prop_assert_eq!(reason, Err("too_deep")),
            Err(_) => prop_assert!(matches!(reason, Err("not_json" | "too_deep" | "empty")), "{:?}", reason),
        }
    }

    #[test]
    fn what_a_scan_refuses_is_what_the_slow_readers_refuse(
        value in likely(),
        pretty in any::<bool>(),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), piece()), 0..3),
    ) {
        let mut text = if pretty { format!("{value:#}") } else { value.to_string() };
        for (place, piece) in mutations {
            let at = text.floor_char_boundary(place.index(text.len() + 1));
            text.insert_str(at, piece);
        }
        let slow = slow(&text);
        let whole = decode(Some(text.as_bytes()), [], &FieldMap::default()).map_err(|letter| letter.reason);
        match (slow, whole) {
            (Ok(()), whole) => prop_assert!(!matches!(whole, Err(NotJson | TooDeep)), "{:?}: {}", whole, text),
            (Err(slow), whole) => prop_assert_eq!(whole.map(drop), Err(slow), "{}", text),
        }
    }

    #[test]
    fn no_mutation_of_an_intent_makes_it_panic_or_tell_what_was_in_it(
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        event in any::<bool>(),
    ) {
        let mut bytes = br#"{"id":"SECRET\u0041","data":{"user_id":"SECRET","cost":1,"created_at":"SECRET"},"user_id":
            {"SECRET":[1,2,{"a":"SECRET\ud83d\ude00"}]},"timezone":"SECRET","subject":"SECRET","time":"SECRET"}"#.to_vec();
        for (place, byte) in mutations {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if event {
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        let content_type = [Header { key: b"content-type", value: Some(b"application/cloudevents+json") }];
        for headers in [content_type.as_slice(), &[]] {
            if let Err(letter) = decode(Some(&bytes), headers.iter().copied(), &FieldMap::default()) {
                prop_assert!(!letter.message.contains("SECR"), "{}", letter.message);
            }
        }
    }
}
