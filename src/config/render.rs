//! The table of settings as documentation and as a JSON Schema.

use serde_json::{Map, Value, json};

use super::keys::{Form, Otherwise, SETTINGS, Setting};

/// The table in docs/configuration.md.
#[must_use]
pub fn markdown() -> String {
    let mut lines = vec!["| setting | default | meaning |".to_owned(), "|---|---|---|".to_owned()];
    for setting in SETTINGS.iter() {
        let default = match setting.default {
            Otherwise::Required => "required".to_owned(),
            Otherwise::Is(text) => format!("`{text}`"),
            Otherwise::Unset(meaning) => meaning.to_owned(),
        };
        lines.push(format!("| `{}` | {default} | {} |", setting.key, setting.meaning));
    }
    lines.join("\n") + "\n"
}

/// The JSON Schema of the configuration file, as it is checked in at `schemas/config.schema.json`. Nothing is
/// required in it, since a variable may give it.
#[must_use]
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
    let mut schema = match setting.form {
        Form::Text => json!({"type": "string"}),
        Form::Whole => json!({"type": "integer"}),
        Form::Flag => json!({"type": "boolean"}),
        Form::Duration => json!({"type": "string", "examples": ["60s"]}),
        Form::Texts => json!({"type": ["string", "array"], "items": {"type": "string"}}),
        Form::Properties => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
        }
    };
    schema["description"] = json!(setting.meaning);
    match (setting.default, setting.form) {
        (Otherwise::Is(text), Form::Whole | Form::Flag) => schema["default"] = text.parse().unwrap_or(json!(text)),
        (Otherwise::Is(text), Form::Text | Form::Duration | Form::Texts | Form::Properties) => {
            schema["default"] = json!(text)
        }
        (Otherwise::Required | Otherwise::Unset(_), _) => {}
    }
    schema
}
