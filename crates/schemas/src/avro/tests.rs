#![allow(deprecated, reason = "the crate's writer of one value has no other name for a value without a Rust type")]

use apache_avro::{Schema, to_avro_datum, types::Value};
use weir_core::{intent::fields::FieldMap, ports::SchemaValue};

use super::*;
use crate::{
    cursor::Misfit,
    place::{Place, tests::mapped},
    plan::Definition,
};

const SCHEMA: &str = include_str!("../../fixtures/intent.avsc");

fn plan(text: &str, references: &[&str]) -> Result<AvroPlan, String> {
    let references = references.iter().map(|text| ("r".to_owned(), (*text).to_owned())).collect();
    let definition = Definition { schema_type: "AVRO".to_owned(), text: text.to_owned(), references };
    AvroPlan::new(&Place::root(&mapped()), &definition)
}

fn word(word: &str) -> Option<SchemaValue<'_>> {
    Some(SchemaValue::Text(word.into()))
}

fn record(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Record(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A value as Avro's own library writes it.
fn written() -> Vec<u8> {
    let some = |value| Value::Union(1, Box::new(value));
    let none = || Value::Union(0, Box::new(Value::Null));
    let doubles = Value::Map([("d".to_owned(), Value::Array(vec![Value::Double(1.5), Value::Double(-2.0)]))].into());
    let next = record([("user", Value::Long(7)), ("zone", none()), ("next", none())]);
    let zone = some(Value::String("Asia/Singapore".into()));
    let to = record([("user", Value::Long(-42)), ("zone", zone), ("next", some(next))]);
    let labels = [("other", none()), ("campaign", some(Value::String("autumn".into())))];
    let value = record([
        ("note", some(doubles)),
        ("id", Value::Uuid("67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap())),
        ("to", to),
        ("channel", some(Value::Enum(1, "MAIL".into()))),
        ("tags", Value::Array(["a", "b", "c"].map(|tag| Value::String(tag.into())).into())),
        ("labels", Value::Map(labels.map(|(key, value)| (key.to_owned(), value)).into())),
        ("cost", Value::Int(3)),
        ("at", Value::TimestampMicros(1_795_165_200_000_999)),
        ("until", Value::TimestampMillis(-1)),
        ("price", Value::Decimal(vec![1, 2].into())),
    ]);
    to_avro_datum(&Schema::parse_str(SCHEMA).unwrap(), value).unwrap()
}

#[test]
fn the_mapped_fields_of_a_value_are_read_and_nothing_else() {
    let plan = plan(SCHEMA, &[]).unwrap();
    let value = written();
    let found = plan.read(&value).unwrap();
    let id = word("67e55044-10b1-426f-9247-bb680e5fe0c8");
    let [user, cost, at, until] = [-42, 3, 1_795_165_200_000, -1].map(|number| Some(SchemaValue::Integer(number)));
    let [channel, tag, label, zone] = ["MAIL", "b", "autumn", "Asia/Singapore"].map(word);
    let price = Some(SchemaValue::Other("a decimal"));
    assert_eq!(found, [id, user, channel, tag, label, cost, at, until, price, zone]);
}

#[test]
fn a_value_that_is_cut_off_or_too_long_does_not_fit() {
    let plan = plan(SCHEMA, &[]).unwrap();
    let value = written();
    for end in 0..value.len() {
        assert!(plan.read(&value[..end]).is_err(), "{end} of {} bytes", value.len());
    }
    let longer = [value.as_slice(), &[0]].concat();
    assert_eq!(plan.read(&longer), Err(Misfit { at: value.len(), what: "bytes are left behind the value" }));
}

#[test]
fn a_hostile_value_takes_neither_depth_nor_time() {
    let list = r#"{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}"#;
    let deep = vec![2; 1 << 20];
    let misfit = plan(list, &[]).unwrap().read(&deep).unwrap_err();
    assert_eq!(misfit.what, "it is nested deeper than 64 levels");
    // A block of 2^40 nulls in a few bytes.
    let nulls = plan(r#"{"type":"array","items":"null"}"#, &[]).unwrap();
    let misfit = nulls.read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0]).unwrap_err();
    assert_eq!(misfit.what, "it repeats values without bytes");
    let text = plan(r#""string""#, &[]).unwrap();
    let misfit = text.read(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unwrap_err();
    assert_eq!(misfit.what, "it ends too early");
}

#[test]
fn a_hostile_schema_takes_neither_stack_nor_memory() {
    // Each is as deep as JSON may be, and the next one stands in its middle.
    let deep: Vec<String> = (0..60)
        .map(|number| {
            let inner = format!("{}\"R{}\"{}", r#"{"type":"array","items":"#.repeat(100), number + 1, "}".repeat(100));
            format!(r#"{{"type":"record","name":"R{number}","fields":[{{"name":"a","type":{inner}}}]}}"#)
        })
        .collect();
    let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
    let problem = plan(r#"{"type":"record","name":"I","fields":[{"name":"to","type":"R0"}]}"#, &deep).unwrap_err();
    assert!(problem.starts_with("is nested deeper than"), "{problem}");
    // On the way to a field, each of 32 types may hold each one before it.
    let holding = |name: &str, before: usize| {
        let types: String = (0..before).map(|number| format!(",\"R{number}\"")).collect();
        format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"to","type":["null"{types}]}}]}}"#)
    };
    let wide = (0..32).map(|number| format!("R{number}")).enumerate();
    let wide = wide.map(|(number, name)| (name.clone(), holding(&name, number))).collect();
    let text = holding("I", 32);
    let definition = Definition { schema_type: "AVRO".to_owned(), text, references: wide };
    let map = FieldMap::new([(IntentField::Timezone, "/to/to/to/to/to/zone")]).unwrap();
    let problem = AvroPlan::new(&Place::root(&map), &definition).unwrap_err();
    assert!(problem.starts_with("has more than"), "{problem}");
}

#[test]
fn blocks_that_tell_their_size_are_read_where_a_field_lies_in_them() {
    let schema = r#"{"type":"record","name":"I","fields":[{"name":"tags","type":{"type":"array","items":"string"}},
        {"name":"more","type":{"type":"array","items":"long"}},{"name":"id","type":"string"}]}"#;
    // Two blocks of one string each with a size, one of two longs with a size.
    let value = [1, 4, 2, b'x', 1, 4, 2, b'y', 0, 3, 4, 8, 9, 0, 2, b'i'];
    let plan = plan(schema, &[]).unwrap();
    let found = plan.read(&value).unwrap();
    assert_eq!(found[IntentField::Id as usize], word("i"));
    assert_eq!(found[IntentField::Category as usize], word("y"));
}

#[test]
fn a_schema_may_refer_to_others_and_says_where_it_does_not() {
    let schema = r#"{"type":"record","name":"I","namespace":"a","fields":[{"name":"to","type":"b.To"}]}"#;
    let to = r#"{"type":"record","name":"To","namespace":"b","fields":[{"name":"user","type":"string"}]}"#;
    let referring = plan(schema, &[to]).unwrap();
    let found = referring.read(&[2, b'u']).unwrap();
    assert_eq!(found[IntentField::UserId as usize], word("u"));
    let alone = plan(schema, &[]).unwrap_err();
    assert!(alone.contains("b.To"), "{alone}");
    assert!(plan("syntax = \"proto3\";", &[]).unwrap_err().starts_with("is not a schema of Avro"));
}
