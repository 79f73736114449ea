//! Intents in the formats of a Schema Registry, written byte by byte, by the same schemas as `testkit/registry/publish.py` has.

use serde_json::{Value, json};

/// A schema of Avro with an id and a user.
pub const ID_AND_USER: &str =
    r#"{"type":"record","name":"I","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"long"}]}"#;

const AVRO: &str = r#"{"type": "record", "name": "Intent", "namespace": "shop", "fields": [
    {"name": "payload", "type": {"type": "map", "values": "string"}},
    {"name": "intent", "type": {"type": "record", "name": "Meta", "fields": [
        {"name": "id", "type": "string"},
        {"name": "channel", "type": ["null", {"type": "enum", "name": "Channel", "symbols": ["email", "push"]}]}]}},
    {"name": "user_id", "type": "long"},
    {"name": "category", "type": ["null", "string"]},
    {"name": "expires_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]}"#;

const PROTOBUF: &str = r#"syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Unused {}
message Intent {
  message Meta {
    enum Channel { none = 0; email = 1; push = 2; }
    string id = 1;
    Channel channel = 2;
  }
  map<string, string> payload = 1;
  Meta intent = 2;
  sint64 user_id = 3;
  string category = 4;
  google.protobuf.Timestamp expires_at = 5;
}"#;

pub fn schema_of(format: &str) -> Value {
    match format {
        "avro" => json!({"schema": AVRO}),
        "protobuf" => json!({"schema": PROTOBUF, "schemaType": "PROTOBUF"}),
        _ => json!({"schema": r#"{"type": "object"}"#, "schemaType": "JSON"}),
    }
}

pub fn written(format: &str, intent: &Value) -> Vec<u8> {
    match format {
        "avro" => avro(intent),
        "protobuf" => protobuf(intent),
        _ => intent.to_string().into_bytes(),
    }
}

fn text<'v>(intent: &'v Value, pointer: &str) -> &'v str {
    intent.pointer(pointer).unwrap().as_str().unwrap()
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A number as Avro writes it, and Protobuf's `sint64`.
fn zigzag(out: &mut Vec<u8>, number: i64) {
    varint(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

fn avro(intent: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let string = |out: &mut Vec<u8>, text: &str| {
        zigzag(out, text.len() as i64);
        out.extend(text.as_bytes());
    };
    // A map of one block with one entry.
    zigzag(&mut out, 1);
    string(&mut out, "subject");
    string(&mut out, text(intent, "/payload/subject"));
    zigzag(&mut out, 0);
    string(&mut out, text(intent, "/intent/id"));
    // The second branch, and its second symbol.
    assert_eq!(text(intent, "/intent/channel"), "push");
    zigzag(&mut out, 1);
    zigzag(&mut out, 1);
    zigzag(&mut out, intent["user_id"].as_i64().unwrap());
    match intent["category"].as_str() {
        Some(category) => {
            zigzag(&mut out, 1);
            string(&mut out, category);
        }
        None => zigzag(&mut out, 0),
    }
    match intent["expires_at"].as_i64() {
        Some(millis) => {
            zigzag(&mut out, 1);
            zigzag(&mut out, millis * 1_000);
        }
        None => zigzag(&mut out, 0),
    }
    out
}

fn protobuf(intent: &Value) -> Vec<u8> {
    let sized = |out: &mut Vec<u8>, number: u64, bytes: &[u8]| {
        varint(out, (number << 3) | 2);
        varint(out, bytes.len() as u64);
        out.extend(bytes);
    };
    let whole = |out: &mut Vec<u8>, number: u64, value: u64| {
        varint(out, number << 3);
        varint(out, value);
    };
    // One index: of the second message.
    let mut out = vec![2, 2];
    let (mut payload, mut meta) = (Vec::new(), Vec::new());
    sized(&mut payload, 1, b"subject");
    sized(&mut payload, 2, text(intent, "/payload/subject").as_bytes());
    sized(&mut out, 1, &payload);
    sized(&mut meta, 1, text(intent, "/intent/id").as_bytes());
    assert_eq!(text(intent, "/intent/channel"), "push");
    whole(&mut meta, 2, 2);
    sized(&mut out, 2, &meta);
    // Of field 3, a varint follows.
    varint(&mut out, 3 << 3);
    zigzag(&mut out, intent["user_id"].as_i64().unwrap());
    if let Some(category) = intent["category"].as_str() {
        sized(&mut out, 4, category.as_bytes());
    }
    if let Some(millis) = intent["expires_at"].as_u64() {
        let mut timestamp = Vec::new();
        whole(&mut timestamp, 1, millis / 1_000);
        whole(&mut timestamp, 2, millis % 1_000 * 1_000_000);
        sized(&mut out, 5, &timestamp);
    }
    out
}
