//! The schemas of a registry that is a table in memory.
#![cfg(all(feature = "avro", feature = "protobuf"))]
#![expect(clippy::disallowed_types, reason = "tests see what the table was asked for")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
    time::Duration,
};

use serde_json::{Value, json};
use weir_core::{
    basis::shard::IdHash,
    intent::{
        Intent, IntentValue,
        decode::{Header, decode},
        fields::FieldMap,
    },
    ports::{SchemaId, Schemas as _},
};

use super::{Format, Getting, HttpAnswer, IntentSchemas, Registry, RegistryClient, table::ABSENT_FOR};

const AVRO: &str =
    r#"{"type":"record","name":"I","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"long"}]}"#;
/// `i` for user 42.
const CONTENT: [u8; 3] = [2, b'i', 84];

/// What a registry answers to each path, and what it was asked for.
#[derive(Debug, Clone, Default)]
struct Table(Arc<RwLock<Answers>>);

#[derive(Debug, Default)]
struct Answers {
    by_path: BTreeMap<String, (u16, Value)>,
    asked: Vec<String>,
}

impl Table {
    fn set(&self, path: &str, status: u16, body: Value) {
        self.0.write().unwrap().by_path.insert(path.to_owned(), (status, body));
    }

    fn schema(&self, id: SchemaId, text: &str) {
        self.set(&format!("/schemas/ids/{id}"), 200, json!({"schema": text}));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.write().unwrap().asked)
    }

    /// A registry without schemas, and a client for Avro that keeps so many of its schemas.
    fn with_schemas(kept: usize) -> (Self, Arc<IntentSchemas>) {
        let table = Self::default();
        let registry = Some((Registry::new(table.clone()), kept));
        let schemas = IntentSchemas::new(Format::Avro, &FieldMap::default(), [], registry).unwrap();
        (table, Arc::new(schemas))
    }
}

impl RegistryClient for Table {
    fn get<'s>(&'s self, path: &'s str) -> Getting<'s> {
        let Answers { by_path: answers, asked } = &mut *self.0.write().unwrap();
        asked.push(path.to_owned());
        let absent = (404, json!({"error_code": 40403, "message": "Schema not found"}));
        let (status, body) = answers.get(path).cloned().unwrap_or(absent);
        // Null stands for more than is read.
        let body = (!body.is_null()).then(|| body.to_string().into());
        let answer = if status == 0 { Err("refused".to_owned()) } else { Ok(HttpAnswer { status, body }) };
        Box::pin(std::future::ready(answer))
    }
}

fn framed(id: SchemaId, content: &[u8]) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice(), content].concat()
}

/// What becomes of a value whose schema was made ready.
async fn read(schemas: &Arc<IntentSchemas>, value: &[u8]) -> Result<String, String> {
    let ids: BTreeSet<SchemaId> = schemas.needs(value).into_iter().collect();
    let _held = schemas.prepare(&ids).await.map_err(|error| error.to_string())?;
    found(schemas, value)
}

fn found(schemas: &Arc<IntentSchemas>, value: &[u8]) -> Result<String, String> {
    let map = FieldMap::default().framed(Arc::clone(schemas) as _);
    let shown = |intent: Intent<'_>| format!("{} {}", intent.id, intent.user_id);
    decode(Some(value), [], &map).map(shown).map_err(|letter| format!("{}: {}", letter.reason.as_str(), letter.message))
}

#[tokio::test(start_paused = true)]
async fn a_schema_is_asked_for_once_and_one_that_is_absent_again_after_a_while() {
    let (table, schemas) = Table::with_schemas(10);
    table.schema(7, AVRO);
    table.set("/schemas/ids/9", 200, json!({"schema": "message M {}", "schemaType": "PROTOBUF"}));
    table.schema(10, "{");
    assert_eq!(read(&schemas, &framed(7, &CONTENT)).await.unwrap(), "i 42");
    assert_eq!(read(&schemas, &framed(7, &CONTENT)).await.unwrap(), "i 42");
    assert_eq!(table.asked(), ["/schemas/ids/7"]);
    let cases = [(8, "is not in the registry"), (9, "is PROTOBUF"), (10, "is not a schema of Avro")];
    for (id, why) in cases {
        for _ in 0..2 {
            let letter = read(&schemas, &framed(id, &CONTENT)).await.unwrap_err();
            assert!(letter.starts_with(&format!("unknown_schema: schema {id} {why}")), "{letter}");
        }
        assert_eq!(table.asked().len(), 1);
    }
    tokio::time::advance(ABSENT_FOR + Duration::from_secs(1)).await;
    table.schema(8, AVRO);
    assert_eq!(read(&schemas, &framed(8, &CONTENT)).await.unwrap(), "i 42");
}

#[tokio::test]
async fn what_is_no_answer_of_a_registry_is_an_outage_and_no_dead_letter() {
    let (table, schemas) = Table::with_schemas(10);
    let absent = json!({"error_code": 404, "message": "HTTP 404 Not Found"});
    let (none, empty) = (json!(null), json!({}));
    let answers = [(0, &none), (200, &none), (404, &none), (404, &json!("x")), (404, &absent)];
    for (status, body) in answers.into_iter().chain([200, 301, 401, 429, 500].map(|status| (status, &empty))) {
        // One that refuses everything: the id that no schema has, too.
        for id in [7, i32::MAX] {
            table.set(&format!("/schemas/ids/{id}"), status, body.clone());
        }
        let error = read(&schemas, &framed(7, &CONTENT)).await.unwrap_err();
        assert!(error.starts_with("the schema registry, asked for /schemas/ids/7"), "{error}");
    }
    table.schema(7, AVRO);
    assert_eq!(read(&schemas, &framed(7, &CONTENT)).await.unwrap(), "i 42");
}

#[tokio::test]
async fn a_schema_that_a_registry_refuses_alone_is_a_dead_letter_and_stops_nothing() {
    let (table, schemas) = Table::with_schemas(10);
    for (id, status) in [(1, 400), (2, 403), (3, 404), (4, 422)] {
        table.set(&format!("/schemas/ids/{id}"), status, json!({"error_code": status}));
        let letter = read(&schemas, &framed(id, &CONTENT)).await.unwrap_err();
        assert_eq!(letter, format!("unknown_schema: schema {id} is refused by the registry ({status})"));
    }
    let cases = [(json!({"schema": 7}), "is not answered as a schema is"), (json!(null), "is larger than is read")];
    for (id, (body, problem)) in (5..).zip(cases) {
        table.set(&format!("/schemas/ids/{id}"), 200, body);
        let letter = read(&schemas, &framed(id, &CONTENT)).await.unwrap_err();
        assert!(letter.starts_with(&format!("unknown_schema: schema {id} {problem}")), "{letter}");
    }
    // One that fails for this schema alone may recover.
    table.set("/schemas/ids/7", 500, json!({}));
    assert!(read(&schemas, &framed(7, &CONTENT)).await.unwrap_err().ends_with("it answers 500"));
    table.asked();
    for id in [SchemaId::MAX, 1 << 31] {
        let letter = read(&schemas, &framed(id, &CONTENT)).await.unwrap_err();
        assert_eq!(letter, format!("unknown_schema: schema {id} is not in the registry: ids end at 2147483647"));
    }
    assert!(table.asked().is_empty(), "no registry is asked for what none has");
}

#[tokio::test]
async fn the_cache_is_bounded_and_what_is_held_stays() {
    let (table, schemas) = Table::with_schemas(3);
    (0..20).for_each(|id| table.schema(id, AVRO));
    let ids: BTreeSet<SchemaId> = (0..10).collect();
    let held = schemas.prepare(&ids).await.unwrap();
    // Another lane's schemas push the first ones out.
    let _others = schemas.prepare(&(10..20).collect()).await.unwrap();
    assert_eq!(schemas.in_memory(), 3);
    for id in 0..10 {
        assert_eq!(found(&schemas, &framed(id, &CONTENT)).unwrap(), "i 42", "{id} is held");
    }
    // No number of ids that no schema has does so.
    let _absent = schemas.prepare(&(1_000..2_000).collect()).await.unwrap();
    assert_eq!(schemas.in_memory(), 3);
    drop(held);
    assert!(found(&schemas, &framed(0, &CONTENT)).is_err());
    table.asked();
    assert_eq!(read(&schemas, &framed(0, &CONTENT)).await.unwrap(), "i 42");
    assert_eq!(table.asked(), ["/schemas/ids/0"]);
}

#[tokio::test]
async fn references_are_followed_to_their_own() {
    let (table, schemas) = Table::with_schemas(10);
    let reference = |name: &str| json!([{"name": name, "subject": format!("s/{name}"), "version": 2}]);
    let schema = |of_user: &str| AVRO.replace("long", of_user);
    table.set("/schemas/ids/7", 200, json!({"schema": schema("U"), "references": reference("U")}));
    let user = r#"{"type":"enum","name":"U","symbols":["ann","bob"]}"#;
    table.set("/subjects/s%2FU/versions/2", 200, json!({"schema": user, "references": reference("V")}));
    let fixed = r#"{"type":"fixed","name":"V","size":2}"#;
    table.set("/subjects/s%2FV/versions/2", 200, json!({"schema": fixed, "references": reference("U")}));
    assert_eq!(read(&schemas, &framed(7, &[2, b'i', 2])).await.unwrap(), "i bob");
    table.set("/schemas/ids/8", 200, json!({"schema": schema("W"), "references": reference("W")}));
    let letter = read(&schemas, &framed(8, &[2, b'i', 2])).await.unwrap_err();
    assert!(letter.contains("refers to version 2 of \"s/W\""), "{letter}");
    let large = format!("\"{}\"", " ".repeat(3 << 20));
    table.set("/subjects/s%2FX/versions/2", 200, json!({"schema": large}));
    table.set("/schemas/ids/9", 200, json!({"schema": large, "references": reference("X")}));
    let letter = read(&schemas, &framed(9, &[2, b'i', 2])).await.unwrap_err();
    assert!(letter.ends_with("has more than 4194304 bytes, with what it refers to"), "{letter}");
    // What is wrong with a schema is told in short.
    table.schema(10, &format!("{{\"type\": \"{}\"}}", "x".repeat(10_000)));
    let letter = read(&schemas, &framed(10, &[2, b'i', 2])).await.unwrap_err();
    assert!(letter.len() < 1_000, "{letter}");
    assert!(letter.starts_with("unknown_schema: schema 10 is not a schema of Avro"), "{letter}");
}

/// The fields of intents by schemas of files.
fn map_of(format: Format, files: impl IntoIterator<Item = (SchemaId, String)>) -> FieldMap {
    FieldMap::default().framed(Arc::new(IntentSchemas::new(format, &FieldMap::default(), files, None).unwrap()))
}

/// The same, with a schema 7 by which an intent may have no id.
fn avro_with_optional_id() -> FieldMap {
    map_of(Format::Avro, [(7, AVRO.replace(r#""type":"string""#, r#""type":["null","string"]"#))])
}

#[test]
fn json_behind_a_frame_is_read_as_json_and_needs_no_schema() {
    let map = map_of(Format::JsonSchema, []);
    let json = r#"{"id":"i","user_id":42}"#;
    let value = framed(7, json.as_bytes());
    assert_eq!(map.schemas().unwrap().needs(&value), None);
    let intent = decode(Some(&value), [], &map).unwrap();
    assert_eq!((&*intent.user_id, intent.value()), ("42", IntentValue::Json(json)));
    let reason = |value: &[u8]| decode(Some(value), [], &map).unwrap_err().reason.as_str();
    assert_eq!([json.as_bytes(), &[0, 0, 0, 0]].map(reason), ["not_decodable"; 2]);
    assert_eq!([&vec![0; (1 << 20) + 1][..], &[]].map(reason), ["too_large", "empty"]);
    let contents: [&[u8]; 3] = [b"{", &[0xff], b"{}"];
    assert_eq!(contents.map(|content| reason(&framed(7, content))), ["not_json", "not_utf8", "missing_field"]);
}

#[test]
fn a_schema_of_a_file_is_not_asked_for_and_the_headers_of_an_event_stand_in() {
    let map = avro_with_optional_id();
    let value = framed(7, &[0, 84]);
    let id = Header { key: b"ce_id", value: Some(b"e-1") };
    let intent = decode(Some(&value), [id], &map).unwrap();
    assert_eq!((&*intent.id, intent.value()), ("e-1", IntentValue::Bytes(&value)));
    let letter = |value: &[u8]| decode(Some(value), [], &map).unwrap_err();
    let missing = letter(&value);
    assert_eq!(missing.message, "id is required and absent: looked for at /id and header ce_id");
    let negative = letter(&framed(7, &[2, 2, b'i', 1]));
    assert!(negative.message.starts_with("user_id (/user_id) is an integer, expected"), "{}", negative.message);
    assert_eq!(letter(&framed(8, &[0, 84])).message, "schema 8 is not in schemas.files");
    let misfit = letter(&framed(7, &[0]));
    assert_eq!(misfit.message, "the value does not fit schema 7: it ends too early, at byte 1 of 1 behind the frame");
    let invalid = IntentSchemas::new(Format::Avro, &FieldMap::default(), [(3, "{".to_owned())], None).unwrap_err();
    assert_eq!((invalid.len(), invalid[0].id), (1, 3));
    assert!(invalid[0].problem.starts_with("is not a schema of Avro"), "{invalid:?}");
}

#[test]
fn an_events_own_id_is_unique_in_its_source_alone() {
    const STRUCTURED: Header<'_> = Header { key: b"content-type", value: Some(b"application/cloudevents+json") };
    let header = |key: &'static [u8], value: &'static [u8]| Header { key, value: Some(value) };
    let (id, source) = (header(b"ce_id", b"e-1"), header(b"ce_source", b"/a"));
    let avro = avro_with_optional_id();
    let (without, with) = (framed(7, &[0, 84]), framed(7, &[2, 2, b'i', 84]));
    let hash = |value: &[u8], headers: &[Header<'static>]| {
        decode(Some(value), headers.iter().copied(), &avro).map(|intent| intent.id_hash)
    };
    assert_eq!(hash(&without, &[id, source]), Ok(IdHash::of_event("/a", "e-1")));
    assert_eq!(hash(&without, &[id]), Ok(IdHash::of("e-1")));
    assert_eq!(hash(&with, &[id, source]), Ok(IdHash::of("i")), "the publisher's own id");
    let letter = hash(&without, &[id, header(b"ce_source", b"\xFF")]).unwrap_err();
    assert_eq!(letter.message, "header ce_source, read as source, is not UTF-8");
    // What is no JSON is no event in structured mode: neither its members nor headers are there.
    assert_eq!(hash(&with, &[STRUCTURED, id, source]), Ok(IdHash::of("i")));
    assert_eq!(hash(&without, &[STRUCTURED, id, source]).unwrap_err().reason.as_str(), "missing_field");

    let json = map_of(Format::JsonSchema, []);
    let event = framed(7, br#"{"id":"e-1","source":"/a","subject":"s","data":{}}"#);
    let intent = decode(Some(&event), [STRUCTURED], &json).unwrap();
    assert_eq!(intent.id_hash, IdHash::of_event("/a", "e-1"), "an event behind a frame is the same event");
}
