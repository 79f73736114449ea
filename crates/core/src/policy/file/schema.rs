//! The options of a policy as a JSON Schema, by which editors complete and check, and as documentation.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    check::PolicyOptions,
    forms::Form,
    options::{Alternatives, Declared as _, DeclaredTable, PolicyOption},
    routes::LONGEST_NAME,
};
use crate::{
    basis::document::value::{DURATION_PATTERN, MAX_TEXT_BYTES},
    history::admit::MAX_CAPS,
};

/// The schema as it is checked in at `schemas/policy.schema.json`.
pub fn schema_text() -> String {
    let text = json!({"type": "string", "minLength": 1, "maxLength": MAX_TEXT_BYTES});
    let mut definitions = json!({
        "Caps": {
            "description": "The caps, which must all allow an intent; or \"unlimited\": nothing is counted against its users.",
            "anyOf": [
                {"type": "array", "items": reference("Cap"), "minItems": 1, "maxItems": MAX_CAPS},
                {"type": "string", "enum": ["unlimited"]}
            ]
        },
        "Duration": {
            "description": "A length of time above 0: \"24h\", \"7d\", \"90m\", \"1h 30m\".",
            "type": "string",
            "pattern": DURATION_PATTERN
        },
        "Names": {
            "description": "A name or a list of names.",
            "anyOf": [text, {"type": "array", "items": text, "minItems": 1}]
        }
    });
    let mut tables = tables();
    let mut root = tables.remove("Policy").map(|policy| table_schema(&policy)).unwrap_or_default();
    for (name, table) in tables {
        definitions[name] = table_schema(&table);
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("weir policy");
    root["properties"]["$schema"] = json!({"description": "This schema, for editors.", "type": ["string", "null"]});
    root["$defs"] = definitions;
    format!("{root:#}\n")
}

/// The tables of options in docs/policy.md, by the names that the schema has for them.
pub fn markdown() -> Vec<(&'static str, String)> {
    tables().into_values().map(|table| (table.name, rows(&table))).collect()
}

fn rows(table: &DeclaredTable) -> String {
    let row = |option: &PolicyOption| {
        let required = if option.is_required { "required, " } else { "" };
        let (_, value) = shown(&option.form);
        format!("| `{}` | {required}{value} | {} |\n", option.key, option.meaning.replace('\n', " "))
    };
    let rows: String = table.options.iter().map(row).collect();
    format!("| key | value | meaning |\n|---|---|---|\n{rows}")
}

fn tables() -> BTreeMap<&'static str, DeclaredTable> {
    let (mut tables, mut left) = (BTreeMap::new(), vec![PolicyOptions::declared()]);
    while let Some(table) = left.pop() {
        for option in &table.options {
            if let Form::Caps(inner) | Form::Table(inner) | Form::ByName(inner) | Form::Several(inner, _) = option.form
            {
                left.push(inner());
            }
        }
        tables.insert(table.name, table);
    }
    tables
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn table_schema(table: &DeclaredTable) -> Value {
    let properties: Map<String, Value> =
        table.options.iter().map(|option| (option.key.to_owned(), option_schema(option))).collect();
    let mut schema = json!({
        "type": "object",
        "description": table.meaning,
        "properties": properties,
        "additionalProperties": false
    });
    let required: Vec<&str> =
        table.options.iter().filter(|option| option.is_required).map(|option| option.key).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if let Some(Alternatives { is_one, keys, .. }) = &table.alternatives {
        let rule = if *is_one { "oneOf" } else { "anyOf" };
        schema[rule] = keys.iter().map(|key| json!({"required": [key]})).collect();
    }
    schema
}

fn option_schema(option: &PolicyOption) -> Value {
    let (mut schema, _) = shown(&option.form);
    if schema.get("$ref").is_some() && !option.is_required {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    } else if !option.is_required {
        schema["type"] = json!([schema["type"], "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
    }
    if !option.meaning.is_empty() {
        schema["description"] = json!(option.meaning);
    }
    schema
}

/// What the schema and the documentation say of a value.
fn shown(form: &Form) -> (Value, String) {
    let table = |table: &fn() -> DeclaredTable| reference(table().name);
    let (schema, value) = match form {
        Form::Text => (json!({"type": "string", "minLength": 1, "maxLength": MAX_TEXT_BYTES}), "a string"),
        Form::Zone => (json!({"type": "string"}), "a time zone"),
        Form::TopicPart => (
            json!({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": "^[A-Za-z0-9._-]+$"}),
            "a string of letters, digits, `.`, `_` and `-`",
        ),
        Form::TimeOfDay => (json!({"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}), "a time of day"),
        Form::Words(words) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            return (json!({"type": "string", "enum": words}), quoted.join(", "));
        }
        Form::Whole(bits, least, most) => {
            let format = format!("uint{bits}");
            let schema = json!({"type": "integer", "format": format, "minimum": least, "maximum": most});
            return (schema, format!("{least} to {most}"));
        }
        Form::Share => (json!({"type": "number", "format": "double", "minimum": 0.001, "maximum": 0.999}), "a number"),
        Form::Flag => (json!({"type": "boolean"}), "`true` or `false`"),
        Form::True => (json!({"type": "boolean", "enum": [true]}), "`true`"),
        Form::Names => (reference("Names"), "a name or a list"),
        Form::Duration => (reference("Duration"), "a length of time"),
        Form::Caps(_) => (reference("Caps"), "a list, or `\"unlimited\"`"),
        Form::Table(inner) => (table(inner), "a table"),
        Form::ByName(inner) => (json!({"type": "object", "additionalProperties": table(inner)}), "a table of tables"),
        Form::Several(inner, most) => {
            let mut list = json!({"type": "array", "items": table(inner)});
            if let Some(most) = most {
                list["maxItems"] = json!(most);
                return (list, format!("a list, at most {most}"));
            }
            (list, "a list")
        }
    };
    (schema, value.to_owned())
}
