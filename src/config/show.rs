//! Each setting's value and where it comes from, without secrets.

use serde_json::Value as Json;
use weir_core::basis::document::{Node, Origin, Value};

use super::{
    Settings,
    forms::Form,
    keys::{Otherwise, SETTINGS, Setting},
    layers::Layers,
};

const MASK: &str = "********";

/// Parts of the names of librdkafka's properties that hold secrets.
const SECRET_PROPERTIES: [&str; 5] = ["password", "passphrase", "secret", ".pem", "oauthbearer.config"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nothing was given.
    Default,
    /// The configuration file, at `weir.toml:3:11`.
    File(String),
    /// The environment variable of this name.
    Variable(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// Its path: `kafka.brokers`, or `kafka.properties."security.protocol"`.
    pub setting: String,
    /// Its value, without secrets; null where there is none.
    pub value: Json,
    /// What no value means: "none".
    pub unset: &'static str,
    pub source: Source,
}

/// All settings, in the order of the documentation; each property has its own line.
pub(super) fn effective(layers: &Layers<'_>, settings: &Settings) -> Vec<Effective> {
    let mut all = Vec::with_capacity(SETTINGS.len());
    for setting in SETTINGS.iter() {
        match layers.node(setting.key) {
            Some(Node { value: Value::Table(entries), .. }) => {
                all.extend(entries.iter().map(|entry| {
                    let is_secret = setting.form == Form::Properties
                        && SECRET_PROPERTIES.iter().any(|part| entry.key.contains(part));
                    let value = if is_secret { Json::from(MASK) } else { given(setting, &entry.node, layers) };
                    let setting = format!("{}.\"{}\"", setting.key, entry.key);
                    Effective { setting, value, unset: "", source: source(layers, &entry.origin) }
                }));
            }
            Some(node) => {
                let (value, source) = (given(setting, node, layers), source(layers, &node.origin));
                all.push(Effective { setting: setting.key.to_owned(), value, unset: "", source });
            }
            None => all.push(default(setting, settings)),
        }
    }
    all
}

fn source(layers: &Layers<'_>, origin: &Origin) -> Source {
    let place = layers.document.place(origin);
    match origin {
        Origin::Text(_) => Source::File(place),
        Origin::Variable(_) => Source::Variable(place),
    }
}

fn given(setting: &Setting, node: &Node, layers: &Layers<'_>) -> Json {
    let is_path = matches!(setting.form, Form::Path(_) | Form::PropertyPaths | Form::PathsById);
    if setting.form == Form::Secret {
        MASK.into()
    } else if let Value::Text(text) = &node.value
        && is_path
        && !text.contains("://")
    {
        layers.folder.join(text).display().to_string().into()
    } else {
        shown(node)
    }
}

fn default(setting: &Setting, settings: &Settings) -> Effective {
    let (value, unset) = match (setting.default, &setting.form) {
        (Otherwise::Is(text), form) if form.is_bare() => (text.parse().unwrap_or(Json::Null), ""),
        (Otherwise::Is(text), _) => (text.into(), ""),
        (Otherwise::Unset(_), _) if setting.key == "kafka.instance" => (settings.kafka.instance.as_str().into(), ""),
        (Otherwise::Unset(meaning), _) => (Json::Null, meaning),
        (Otherwise::Required, _) => (Json::Null, ""),
    };
    Effective { setting: setting.key.to_owned(), value, unset, source: Source::Default }
}

fn shown(node: &Node) -> Json {
    match &node.value {
        Value::Text(text) => without_password(text).into(),
        Value::Whole(number) => i64::try_from(*number).map_or_else(|_| number.to_string().into(), Json::from),
        Value::Flag(flag) => (*flag).into(),
        Value::List(items) => items.iter().map(shown).collect(),
        Value::Number(text) | Value::Date(text) => text.as_str().into(),
        Value::Null | Value::Table(_) => Json::Null,
    }
}

/// A URL without its password: `redis://user:********@host`. User information without a colon may be a token.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let Some((user_information, host)) = rest.rsplit_once('@') else { return text.to_owned() };
    let user = user_information.split_once(':').map_or(String::new(), |(user, _)| format!("{user}:"));
    format!("{scheme}://{user}{MASK}@{host}")
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://r:6379", "redis://r:6379"),
            ("redis://u:p@r:6379/1", "redis://u:********@r:6379/1"),
            ("rediss://:p@ss/w:rd@r", "rediss://:********@r"),
            ("https://token@host/x", "https://********@host/x"),
            ("plain text", "plain text"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
