//! JSON to a tree with places: serde_json's raw values are slices of the text, so their addresses are places.

use std::collections::BTreeSet;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Document, MAX_DEPTH, Node, Origin, TableEntry, Value};

/// Parses JSON and notes the first mistake in its syntax, or every key that is given twice.
pub(super) fn parse(document: &Document<'_>, text: &str) -> Option<Node> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => node(document, text, raw, 1),
        Err(error) => {
            note(document, text, 0, &error);
            None
        }
    }
}

/// Notes an error of serde_json in the part of the text that begins at `start`.
fn note(document: &Document<'_>, text: &str, start: usize, error: &serde_json::Error) {
    let lines = text[start..].split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = start + lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    let full = error.to_string();
    let reason = full.rsplit_once(" at line ").map_or(full.as_str(), |(reason, _)| reason);
    document.note(&Origin::Text(at), format!("is not JSON: {reason}"));
}

fn place(text: &str, raw: &RawValue) -> usize {
    raw.get().as_ptr().addr() - text.as_ptr().addr()
}

fn node<'d>(document: &Document<'_>, text: &'d str, raw: &'d RawValue, depth: usize) -> Option<Node> {
    let start = place(text, raw);
    let origin = Origin::Text(start);
    if depth > MAX_DEPTH {
        document.note(&origin, format!("is nested deeper than {MAX_DEPTH} levels"));
        return None;
    }
    let value = match raw.get().as_bytes().first()? {
        b'{' => Value::Table(table(document, text, read(document, text, raw)?, depth)?),
        b'[' => {
            let items: Vec<&RawValue> = read(document, text, raw)?;
            Value::List(items.into_iter().map(|item| node(document, text, item, depth + 1)).collect::<Option<_>>()?)
        }
        b'"' => Value::Text(read(document, text, raw)?),
        b't' | b'f' => Value::Flag(read(document, text, raw)?),
        b'n' => Value::Null,
        _ => raw.get().parse().map_or_else(|_| Value::Number(raw.get().to_owned()), Value::Whole),
    };
    Some(Node { origin, value })
}

/// Reads one level of a value whose syntax is known to be right, but for escapes in strings.
fn read<'d, T: Deserialize<'d>>(document: &Document<'_>, text: &str, raw: &'d RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).map_err(|error| note(document, text, place(text, raw), &error)).ok()
}

fn table(document: &Document<'_>, text: &str, members: JsonMembers<'_>, depth: usize) -> Option<Vec<TableEntry>> {
    let mut entries = Vec::new();
    let mut keys = BTreeSet::new();
    for (raw_key, value) in members.0 {
        let key: String = read(document, text, raw_key)?;
        let origin = Origin::Text(place(text, raw_key));
        if !keys.insert(key.clone()) {
            document.note(&origin, format!("`{key}` is given twice"));
        }
        entries.push(TableEntry { key, origin, node: node(document, text, value, depth + 1)? });
    }
    Some(entries)
}

/// An object's keys and values in their order.
struct JsonMembers<'d>(Vec<(&'d RawValue, &'d RawValue)>);

impl<'d> Deserialize<'d> for JsonMembers<'d> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'d> Visitor<'d> for Collect {
            type Value = JsonMembers<'d>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
