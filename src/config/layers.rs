//! The file and, over it, the environment: one value a setting, each with the place it comes from.

use std::{cell::RefCell, collections::BTreeMap, ffi::OsString};

use weir_core::document::{Document, Entry, Node, Origin, Value, nearest, value::Parsed};

use super::keys::{Form, NOT_YET, Otherwise, PREFIX, SETTINGS, Setting};

/// Values by setting.
#[derive(Debug)]
pub(super) struct Layers<'d> {
    document: &'d Document<'d>,
    root: Origin,
    values: BTreeMap<&'static str, Node>,
    properties: BTreeMap<&'static str, Vec<Entry>>,
    read: RefCell<Vec<&'static str>>,
}

fn known(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

impl<'d> Layers<'d> {
    /// Puts the environment over the file. What neither knows is noted.
    pub(super) fn new(
        document: &'d Document<'d>,
        root: &Node,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let (values, properties, read) = <(_, _, RefCell<_>)>::default();
        let mut layers = Self { document, root: root.origin.clone(), values, properties, read };
        layers.take_table(root, "");
        for (name, value) in env {
            layers.take_variable(&name, &value);
        }
        layers
    }

    fn take_table(&mut self, node: &Node, path: &str) {
        let Value::Table(entries) = &node.value else {
            let reason = format!("{path} must be a table: write [{path}] and its settings below it");
            return self.document.note(&node.origin, reason);
        };
        for entry in entries {
            let key = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
            let section = format!("{key}.");
            match known(&key) {
                Some(setting) if setting.form == Form::Properties => self.take_properties(setting.key, &entry.node),
                Some(setting) => {
                    self.values.insert(setting.key, entry.node.clone());
                }
                None if SETTINGS.iter().any(|setting| setting.key.starts_with(&section)) => {
                    self.take_table(&entry.node, &key);
                }
                None => self.document.note(&entry.origin, unknown(&key, path)),
            }
        }
    }

    fn take_properties(&mut self, key: &'static str, node: &Node) {
        if let Value::Table(entries) = &node.value {
            self.properties.entry(key).or_default().extend_from_slice(entries);
        } else {
            self.document
                .note(&node.origin, format!("{key} must be a table: write [{key}] and \"name\" = value below it"));
        }
    }

    fn take_variable(&mut self, name: &OsString, value: &OsString) {
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { return };
        let origin = Origin::Variable(format!("{PREFIX}{rest}").into());
        let Some(value) = value.to_str() else {
            return self.document.note(&origin, "is not UTF-8");
        };
        let key = rest.to_lowercase().replace("__", ".");
        let holder = SETTINGS.iter().find(|setting| {
            setting.form == Form::Properties && key.strip_prefix(setting.key).is_some_and(|rest| rest.starts_with('.'))
        });
        if let Some(setting) = holder {
            let property = key[setting.key.len() + 1..].replace('_', ".");
            let entries = self.properties.entry(setting.key).or_default();
            entries.retain(|entry| entry.key != property);
            let node = Node { origin: origin.clone(), value: Value::Text(value.to_owned()) };
            return entries.push(Entry { key: property, origin, node });
        }
        match known(&key).filter(|setting| setting.form != Form::Properties) {
            Some(setting) => {
                self.values.insert(setting.key, from_text(setting.form, value, origin));
            }
            None => self.document.note(&origin, unknown_variable(rest, &key)),
        }
    }

    /// Notes a problem with a setting.
    pub(super) fn note(&self, key: &'static str, reason: &str) {
        let origin = self.values.get(key).map_or(&self.root, |node| &node.origin);
        let join = if reason.starts_with('[') { "" } else { " " };
        self.document.note(origin, format!("{key}{join}{reason}"));
    }

    /// The value of a setting that must be given or has a default; `None` where it is not or is wrong, which is noted.
    pub(super) fn get<T>(&self, key: &'static str, parse: impl FnOnce(&Node) -> Parsed<T>) -> Option<T> {
        let setting = self.setting(key);
        let given = self.values.get(key).cloned();
        let default = || match setting.default {
            Otherwise::Is(text) => Some(from_text(setting.form, text, self.root.clone())),
            Otherwise::Required | Otherwise::Unset(_) => None,
        };
        let Some(node) = given.or_else(default) else {
            let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
            self.note(
                key,
                &format!("is not set: write `{name} = ...` below [{section}], or set {}", setting.variable()),
            );
            return None;
        };
        parse(&node).map_err(|reason| self.note(key, &reason)).ok()
    }

    /// The value of a setting that may be left out; also `None` where it is wrong, which is noted.
    pub(super) fn optional<T>(&self, key: &'static str, parse: impl FnOnce(&Node) -> Parsed<T>) -> Option<T> {
        self.setting(key);
        parse(self.values.get(key)?).map_err(|reason| self.note(key, &reason)).ok()
    }

    /// The properties of a setting, the environment's last.
    pub(super) fn properties(&self, key: &'static str) -> &[Entry] {
        self.setting(key);
        self.properties.get(key).map_or(&[], Vec::as_slice)
    }

    /// The document, for problems with properties.
    pub(super) fn document(&self) -> &'d Document<'d> {
        self.document
    }

    /// The settings that were asked for.
    #[cfg(test)]
    pub(super) fn read(&self) -> Vec<&'static str> {
        self.read.borrow().clone()
    }

    fn setting(&self, key: &'static str) -> &'static Setting {
        self.read.borrow_mut().push(key);
        known(key).expect("the check asks for settings of the table, which a test reads whole")
    }
}

/// A value as it is in a variable or a default, in the form of its setting. What does not fit stays text, which
/// the setting's check then refuses.
fn from_text(form: Form, text: &str, origin: Origin) -> Node {
    let as_text = || Value::Text(text.to_owned());
    let value = match form {
        Form::Text | Form::Duration | Form::Properties => as_text(),
        Form::Whole => text.parse().map_or_else(|_| as_text(), Value::Whole),
        Form::Flag => text.parse().map_or_else(|_| as_text(), Value::Flag),
        Form::Texts => {
            let item = |item: &str| Node { origin: origin.clone(), value: Value::Text(item.trim().to_owned()) };
            Value::List(text.split(',').map(item).collect())
        }
    };
    Node { origin, value }
}

/// What to say of a key that is not known in this section.
fn unknown(key: &str, section: &str) -> String {
    if let Some((_, reason)) = NOT_YET.iter().find(|(not_yet, _)| *not_yet == key) {
        return format!("{key} {reason}");
    }
    let name = key.rsplit_once('.').map_or(key, |(_, name)| name);
    let mut here: Vec<&str> = SETTINGS.iter().filter_map(|setting| below(setting.key, section)).collect();
    here.dedup();
    let elsewhere = || {
        let same: Vec<&str> =
            SETTINGS.iter().map(|setting| setting.key).filter(|key| key.rsplit('.').next() == Some(name)).collect();
        (!same.is_empty()).then(|| format!("did you mean {}?", same.join(" or ")))
    };
    let hint = nearest(name, here.iter().copied())
        .map(|near| format!("did you mean `{near}`?"))
        .or_else(elsewhere)
        .unwrap_or_else(|| format!("known here: {}", here.join(", ")));
    format!("{key} is not a known setting; {hint}")
}

/// The first part of a key behind a section.
fn below<'k>(key: &'k str, section: &str) -> Option<&'k str> {
    let rest = if section.is_empty() { key } else { key.strip_prefix(section)?.strip_prefix('.')? };
    rest.split('.').next()
}

fn unknown_variable(rest: &str, key: &str) -> String {
    if let Some((_, reason)) = NOT_YET.iter().find(|(not_yet, _)| *not_yet == key) {
        return format!("{key} {reason}");
    }
    let variables: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    let near = nearest(&format!("{PREFIX}{}", rest.to_uppercase()), variables.iter().map(String::as_str));
    let hint = near.map_or("docs/configuration.md has all of them".into(), |near| format!("did you mean {near}?"));
    format!("names no setting; {hint}")
}
