use prost_reflect::{DynamicMessage, prost::Message as _};
use weir_core::{intent::fields::IntentField, ports::SchemaValue};

use super::*;
use crate::{
    place::{Place, tests::mapped},
    plan::Definition,
};

const SCHEMA: &str = include_str!("../../fixtures/intent.proto");

fn definition(text: &str, references: &[(&str, &str)]) -> Definition {
    let references = references.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Definition { schema_type: "PROTOBUF".to_owned(), text: text.to_owned(), references }
}

fn plan(text: &str) -> Result<ProtobufPlan, String> {
    ProtobufPlan::new(&Place::root(&mapped()), &definition(text, &[]))
}

fn word(word: &str) -> Option<SchemaValue<'_>> {
    Some(SchemaValue::Text(word.into()))
}

/// A message as a library of Protobuf writes it, behind its index.
fn written() -> Vec<u8> {
    let file = compile::file(&definition(SCHEMA, &[])).unwrap();
    let message = file.messages().find(|message| message.name() == "Intent").unwrap();
    let text = r#"{"id":"i-1","to":{"user":"-42","zone":"Asia/Singapore","next":{"user":"7"}},"channel":"MAIL","tags":["a","b"],
        "labels":{"other":"x","campaign":"autumn"},"cost":3,"at":"2026-11-20T09:00:00.123456Z","until":"5","price":1.5,
        "more":["1","2"]}"#;
    let mut json = serde_json::Deserializer::from_str(text);
    let message = DynamicMessage::deserialize(message, &mut json).unwrap();
    [&[2, 2], message.encode_to_vec().as_slice()].concat()
}

#[test]
fn the_mapped_fields_of_a_message_are_read_and_nothing_else() {
    let (plan, value) = (plan(SCHEMA).unwrap(), written());
    let found = plan.read(&value).unwrap();
    let [user, cost, at, until] = [-42, 3, 1_795_165_200_123, 5].map(|number| Some(SchemaValue::Integer(number)));
    let [id, channel, tag, label, zone] = ["i-1", "MAIL", "b", "autumn", "Asia/Singapore"].map(word);
    let price = Some(SchemaValue::Other("a double"));
    assert_eq!(found, [id, user, channel, tag, label, cost, at, until, price, zone]);
}

#[test]
fn the_indexes_name_the_message() {
    let plan = plan(SCHEMA).unwrap();
    let id = |value: &'static [u8]| plan.read(value).map(|found| found[IntentField::Id as usize].clone());
    let found = Ok(word("o"));
    assert_eq!(id(&[0, 0x0a, 1, b'o']), found, "0: the first message");
    assert_eq!(id(&[2, 0, 0x0a, 1, b'o']), found, "the same, written out");
    assert_eq!(id(&[2, 2, 0x0a, 1, b'o']), found, "the second one");
    assert_eq!(id(&[4, 2, 0]), Ok(None), "a message inside the second one");
    for value in [&[2, 4][..], &[6, 0, 0, 0], &[1], &[0xfe, 1], &[]] {
        assert!(id(value).is_err(), "{value:?}");
    }
}

#[test]
fn a_message_that_is_cut_off_or_written_in_another_type_does_not_fit() {
    let (plan, value) = (plan(SCHEMA).unwrap(), written());
    let whole = plan.read(&value).unwrap();
    // A message may end behind any field: the last one is passed over, and is not missed.
    let last = value.len() - [0x82, 0x7d, 2, 1, 2].len();
    for end in (0..value.len()).filter(|end| *end != last) {
        assert!(plan.read(&value[..end]) != Ok(whole.clone()), "{end} of {} bytes", value.len());
    }
    for value in
        [&[2, 2, 0x08, 1][..], &[2, 2, 0x38, 0xff], &[2, 2, 0x0a, 1, 0xff], &[2, 2, 0x0c], &[2, 2, 0x00], &[2, 2, 0x0e]]
    {
        assert!(plan.read(value).is_err(), "{value:?}");
    }
    // Groups without end.
    let deep = [&[2, 2][..], &vec![0x0b; 1 << 20]].concat();
    assert_eq!(plan.read(&deep).unwrap_err().what, "it is nested deeper than 64 levels");
    let group = [2, 2, 0x1b, 0x1c, 0x0a, 1, b'i'];
    let read = plan.read(&group).unwrap();
    assert!(read[IntentField::Id as usize].is_some(), "a group of an unknown field is passed over");
}

#[test]
fn the_last_of_several_values_counts_and_messages_are_merged() {
    let plan = plan(SCHEMA).unwrap();
    let value = [2, 2, 0x0a, 1, b'a', 0x12, 2, 0x18, 2, 0x0a, 1, b'b', 0x12, 2, 0x22, 0];
    let found = plan.read(&value).unwrap();
    assert_eq!(found[IntentField::Id as usize], word("b"));
    assert_eq!(found[IntentField::UserId as usize], Some(SchemaValue::Integer(1)));
    assert_eq!(found[IntentField::Timezone as usize], word(""), "a wrapper without its value");
}

#[test]
fn a_schema_may_import_others_and_may_be_a_descriptor_in_base64() {
    let text = "syntax = \"proto3\"; import \"to.proto\"; message I { string id = 1; b.To to = 2; }";
    let to = "syntax = \"proto3\"; package b; message To { string user = 1; }";
    let value = [0, 0x12, 3, 0x0a, 1, b'u'];
    let importing = ProtobufPlan::new(&Place::root(&mapped()), &definition(text, &[("to.proto", to)])).unwrap();
    let user = |plan: &ProtobufPlan| plan.read(&value).unwrap()[IntentField::UserId as usize].clone();
    assert_eq!(user(&importing), word("u"));
    let alone = plan(text).unwrap_err();
    assert!(alone.starts_with("is not a schema of Protobuf"), "{alone}");

    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let file = compile::file(&definition(to, &[])).unwrap();
    let encoded = BASE64_STANDARD.encode(file.file_descriptor_proto().encode_to_vec());
    let by_descriptor =
        ProtobufPlan::new(&Place::root(&mapped()), &definition(text, &[("to.proto", &encoded)])).unwrap();
    assert_eq!(user(&by_descriptor), word("u"));
}

#[test]
fn a_hostile_schema_takes_neither_stack_nor_memory() {
    for level in ["message M {", "message M {//}\n", "message M {/* } */", "message M { option o = \"}\";"] {
        let nested = format!("syntax = \"proto3\"; {}", level.repeat(50_000));
        assert!(plan(&nested).unwrap_err().contains("nested too deep"), "{level}");
    }
    for (text, levels) in [
        ("message M { /* }}} */ string s = 1 [default = \"}\\\"}\"]; }", Some(2)),
        ("// {{{\nmessage M { map<string, string> m = 1; }", Some(2)),
        ("message M { option o = '\\x7d\\U0000007d\\n\\''; }", Some(1)),
        ("# }", None),
        ("/* /* */ } */", None),
        ("\"\n}\"", None),
        ("'\\q'", None),
        ("'\\x'", None),
    ] {
        assert_eq!(compile::nested(text), levels, "{text}");
    }
    // Each message that a value may be has members of its own; the names of an enum are there once.
    let values: String = (0..1_000).map(|number| format!("V{number} = {number}; ")).collect();
    let messages: String = (0..500).map(|number| format!("message M{number} {{ E channel = 1; }} ")).collect();
    let many = plan(&format!("syntax = \"proto3\"; enum E {{ {values} }} {messages}")).unwrap();
    assert_eq!(many.parts, 1_000 + 2 * 500);
}
