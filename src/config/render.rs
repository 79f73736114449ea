//! The table of settings as documentation and as a JSON Schema.

use serde_json::{Map, Value, json};

use super::{
    forms::Form,
    keys::{Otherwise, REFUSED_PROPERTIES, SETTINGS, Setting},
};

/// The table in docs/configuration.md.
pub fn markdown() -> String {
    let mut lines = vec!["| setting | default | meaning |".to_owned(), "|---|---|---|".to_owned()];
    for setting in SETTINGS.iter() {
        let default = match setting.default {
            Otherwise::Required => "required".to_owned(),
            Otherwise::Is(text) => format!("`{text}`"),
            Otherwise::Unset(meaning) => meaning.to_owned(),
        };
        lines.push(format!("| `{}` | {default} | {} |", setting.key, setting.description()));
    }
    lines.join("\n") + "\n"
}

/// The JSON Schema of the configuration file, as it is checked in at `schemas/config.schema.json`. Nothing is
/// required in it, since a variable may give it.
pub fn schema_text() -> String {
    let mut root = section();
    for setting in SETTINGS.iter() {
        let mut table = &mut root;
        let mut parts: Vec<&str> = setting.key.split('.').collect();
        let name = parts.pop().unwrap_or_default();
        for part in parts {
            table = &mut properties(table)[part];
            if table.is_null() {
                *table = section();
            }
        }
        properties(table)[name] = schema(setting);
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("weir configuration");
    format!("{root:#}\n")
}

fn section() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": Map::new()})
}

fn properties(table: &mut Value) -> &mut Value {
    &mut table["properties"]
}

fn schema(setting: &Setting) -> Value {
    let text = || match setting.form.pattern() {
        Some(pattern) => json!({"type": "string", "pattern": pattern}),
        None => json!({"type": "string", "minLength": 1}),
    };
    let mut schema = match &setting.form {
        Form::Text(_) | Form::Secret | Form::Path(_) | Form::Duration(_) | Form::Bytes(_) => text(),
        Form::Word(words) => json!({"enum": words}),
        Form::Whole(range) => json!({"type": "integer", "minimum": range.start(), "maximum": range.end()}),
        Form::Flag => json!({"type": "boolean"}),
        Form::Texts(_) => json!({"anyOf": [text(), {"type": "array", "items": text(), "minItems": 1}]}),
        Form::TextsByName(_) => json!({"type": "object", "additionalProperties": text()}),
        Form::Properties => by_property(json!({"type": ["string", "number", "boolean"]})),
        Form::PropertyPaths => by_property(text()),
        Form::PathsById => json!({
            "type": "object",
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
            "additionalProperties": text()
        }),
    };
    schema["description"] = json!(setting.description());
    if let Otherwise::Is(text) = setting.default {
        schema["default"] = if setting.form.is_bare() { text.parse().unwrap_or(json!(text)) } else { json!(text) };
    }
    schema
}

/// A table of properties of librdkafka, each with such a value.
fn by_property(value: Value) -> Value {
    let refused = REFUSED_PROPERTIES.map(|(name, _)| name);
    json!({"type": "object", "propertyNames": {"not": {"enum": refused}}, "additionalProperties": value})
}
