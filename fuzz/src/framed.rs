//! The reader of intents with the frame of a Schema Registry.

use std::sync::{Arc, LazyLock};

use weir_core::intent::{
    IntentValue, MAX_ID_BYTES, MAX_INTENT_BYTES,
    decode::decode,
    fields::{FieldMap, IntentField},
};
use weir_schemas::{Format, IntentSchemas};

use super::bounded;

/// The id of the one schema of each format.
const ID: u32 = 1;

/// By format: the fields of an intent, by the schema that the crate's own tests use.
static MAPS: LazyLock<[(Format, FieldMap); 3]> = LazyLock::new(|| {
    [
        (Format::Avro, Some(include_str!("../../crates/schemas/fixtures/intent.avsc"))),
        (Format::Protobuf, Some(include_str!("../../crates/schemas/fixtures/intent.proto"))),
        (Format::JsonSchema, None),
    ]
    .map(|(format, text)| {
        let places = include!("../../crates/schemas/fixtures/places.rs");
        let map = FieldMap::new(places).expect("these are pointers to different places");
        let files = text.map(|text| (ID, text.to_owned()));
        let schemas = IntentSchemas::new(format, &map, files, None).expect("the schema is one");
        (format, map.framed(Arc::new(schemas)))
    })
});

/// An intent in Avro, Protobuf or JSON behind a frame. The first byte says which.
pub fn framed(data: &[u8]) {
    let Some((kind, value)) = data.split_first() else { return };
    let (format, map) = &MAPS[usize::from(kind % 3)];
    let Ok(intent) = bounded(data, 4, || decode(Some(value), [], map).map_err(drop)) else { return };
    assert!(value.len() <= MAX_INTENT_BYTES);
    assert!((1..=MAX_ID_BYTES).contains(&intent.id.len()), "an id of {} bytes", intent.id.len());
    assert!((1..=MAX_ID_BYTES).contains(&intent.user_id.len()), "a user of {} bytes", intent.user_id.len());
    assert!(intent.cost >= 1);
    assert_eq!(value[0], 0, "what has no frame is no intent");
    match format {
        Format::JsonSchema => {
            let text = std::str::from_utf8(&value[5..]).expect("a valid intent is UTF-8");
            assert_eq!(intent.value(), IntentValue::Json(text), "the value is passed on without its frame");
        }
        Format::Avro | Format::Protobuf => {
            assert_eq!(value[1..5], ID.to_be_bytes(), "a schema that is not known has no intent");
            assert_eq!(intent.value(), IntentValue::Bytes(value), "the value is passed on as it came");
        }
    }
    if *format == Format::Avro {
        let longer = [value, &[0]].concat();
        assert!(decode(Some(&longer), [], map).is_err(), "a value of Avro ends where its schema ends");
    }
}
