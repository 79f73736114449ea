//! Whatever bytes a publisher sends, they are an intent or a dead letter, and reading them takes no more memory than they bear out.
#![cfg(all(feature = "avro", feature = "protobuf"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{alloc::System, sync::Arc};

use cap::Cap;
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestRunner};
use weir_core::intent::{
    IntentValue,
    decode::decode,
    fields::{FieldMap, IntentField},
};
use weir_schemas::{Format, IntentSchemas};

/// Counts what is allocated. One test of this file, so that nothing else is counted.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The id of each format's schema.
const ID: u32 = 7;
/// Memory beyond the input: an intent's fields, and the text of a dead letter.
const ALLOWANCE_BYTES: usize = 16 << 10;
/// Id `i-1` and user 7, and nothing else, by the schemas of these tests.
const AVRO: &[u8] = &[0, 6, b'i', b'-', b'1', 14, 0, 0, 0, 0, 0, 2, 0, 0, 0];
const PROTOBUF: &[u8] = &[2, 2, 0x0a, 3, b'i', b'-', b'1', 0x12, 2, 0x18, 14, 0x2a, 1, b'a', 0x38, 1];
const JSON: &[u8] = br#"{"id": "i-1", "to": {"user": 7}, "labels": {"campaign": "spring"}}"#;

fn reader(format: Format, text: Option<&str>) -> FieldMap {
    let places = include!("../fixtures/places.rs");
    let map = FieldMap::new(places).unwrap();
    let schemas = IntentSchemas::new(format, &map, text.map(|text| (ID, text.to_owned())), None).unwrap();
    map.framed(Arc::new(schemas))
}

fn framed(content: &[u8]) -> Vec<u8> {
    [&[0], ID.to_be_bytes().as_slice(), content].concat()
}

/// Any bytes, any content behind a frame, one byte many times, and a good value with a part replaced or cut out.
fn values(good: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let replaced = (any::<Index>(), 0..4_usize, vec(any::<u8>(), 0..4)).prop_map(move |(at, out, new)| {
        let mut content = good.to_vec();
        let at = at.index(content.len());
        content.splice(at..(at + out).min(good.len()), new);
        framed(&content)
    });
    prop_oneof![
        vec(any::<u8>(), 0..40),
        vec(any::<u8>(), 0..300).prop_map(|content| framed(&content)),
        (any::<u8>(), 0..100_000_usize).prop_map(|(byte, times)| framed(&vec![byte; times])),
        (vec(any::<u8>(), 1..6), 0..20_000_usize).prop_map(|(bytes, times)| framed(&bytes.repeat(times))),
        replaced,
    ]
}

#[test]
fn any_bytes_are_an_intent_or_a_dead_letter_and_take_no_more_memory_than_they_bear_out() {
    for (format, text, good) in [
        (Format::Avro, Some(include_str!("../fixtures/intent.avsc")), AVRO),
        (Format::Protobuf, Some(include_str!("../fixtures/intent.proto")), PROTOBUF),
        (Format::JsonSchema, None, JSON),
    ] {
        let map = reader(format, text);
        let value = framed(good);
        let intent = decode(Some(&value), [], &map).unwrap();
        assert_eq!((&*intent.id, &*intent.user_id), ("i-1", "7"), "{format:?}");

        let read = |value: Vec<u8>| {
            let before = ALLOCATOR.total_allocated();
            let found = decode(Some(&value), [], &map);
            let taken = ALLOCATOR.total_allocated() - before;
            let most = 4 * value.len() + ALLOWANCE_BYTES;
            prop_assert!(taken <= most, "{taken} bytes were allocated for {}, at most {most}", value.len());
            if let Ok(intent) = found {
                let content = &value[5..];
                match intent.value() {
                    IntentValue::Json(text) => prop_assert_eq!(text.as_bytes(), content.trim_ascii()),
                    IntentValue::Bytes(bytes) => prop_assert_eq!(bytes, &value),
                }
            }
            Ok(())
        };
        let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() };
        TestRunner::new(config).run(&values(good), read).unwrap_or_else(|error| panic!("{format:?}: {error}"));
    }
}
