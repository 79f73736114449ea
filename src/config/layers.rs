//! The file and, over it, the environment: one value a setting, each with the place it comes from.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use weir_core::basis::document::{Document, Node, Origin, TableEntry, Value, nearest, value::Parsed};

use super::{
    forms::Form,
    keys::{Otherwise, PREFIX, SETTINGS, Setting},
};

/// Values by setting.
#[derive(Debug)]
pub(super) struct Layers<'d> {
    /// For problems with parts of a value.
    pub(super) document: &'d Document<'d>,
    /// What relative paths are relative to.
    pub(super) folder: &'d Path,
    root: Origin,
    values: BTreeMap<&'static str, Node>,
}

fn known(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

impl<'d> Layers<'d> {
    /// Puts the environment over the file. What neither knows is noted.
    pub(super) fn new(
        document: &'d Document<'d>,
        root: &Node,
        folder: &'d Path,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let mut layers = Self { document, folder, root: root.origin.clone(), values: BTreeMap::new() };
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

    fn take_variable(&mut self, name: &OsString, value: &OsString) {
        let Some(name) = name.to_str() else { return };
        let Some(rest) = name.strip_prefix(PREFIX) else {
            if let Some(variable) = mistyped(name) {
                self.document.note(&Origin::Variable(name.into()), format!("has no effect; did you mean {variable}?"));
            }
            return;
        };
        let origin = Origin::Variable(format!("{PREFIX}{rest}").into());
        let Some(value) = value.to_str() else {
            return self.document.note(&origin, "is not UTF-8");
        };
        let key = rest.to_lowercase().replace("__", ".");
        let holder = SETTINGS.iter().find(|setting| {
            setting.form.has_entries() && key.strip_prefix(setting.key).is_some_and(|rest| rest.starts_with('.'))
        });
        if let Some(setting) = holder {
            let name = &key[setting.key.len() + 1..];
            let is_property = matches!(setting.form, Form::Properties | Form::PropertyPaths);
            let name = if is_property { name.replace('_', ".") } else { name.to_owned() };
            let empty = || Node { origin: origin.clone(), value: Value::Table(Vec::new()) };
            if let Value::Table(entries) = &mut self.values.entry(setting.key).or_insert_with(empty).value {
                entries.retain(|entry| entry.key != name);
                let node = Node { origin: origin.clone(), value: Value::Text(value.to_owned()) };
                entries.push(TableEntry { key: name, origin, node });
            }
            return;
        }
        match known(&key).filter(|setting| !setting.form.has_entries()) {
            Some(setting) => {
                self.values.insert(setting.key, from_text(&setting.form, value, origin));
            }
            None => self.document.note(&origin, unknown_variable(rest)),
        }
    }

    pub(super) fn note(&self, key: &'static str, reason: &str) {
        let origin = self.values.get(key).map_or(&self.root, |node| &node.origin);
        let join = if reason.starts_with('[') { "" } else { " " };
        self.document.note(origin, format!("{key}{join}{reason}"));
    }

    /// The value of a setting that must be given or has a default; `None` where it is not or is wrong, which is noted.
    pub(super) fn get<T>(&self, key: &'static str, parse: impl Fn(&Node, &Self) -> Parsed<T>) -> Option<T> {
        let setting = known(key)?;
        let given = self.values.get(key).cloned();
        let default = || match setting.default {
            Otherwise::Is(text) => Some(from_text(&setting.form, text, self.root.clone())),
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
        parse(&node, self).map_err(|reason| self.note(key, &reason)).ok()
    }

    /// The value of a setting that may be left out; also `None` where it is wrong, which is noted.
    pub(super) fn optional<T>(&self, key: &'static str, parse: impl Fn(&Node, &Self) -> Parsed<T>) -> Option<T> {
        parse(self.values.get(key)?, self).map_err(|reason| self.note(key, &reason)).ok()
    }

    /// The value of a setting if it is given and valid.
    pub(super) fn given<T>(&self, key: &'static str, parse: impl Fn(&Node, &Self) -> Parsed<T>) -> Option<T> {
        parse(self.values.get(key)?, self).ok()
    }

    /// The value that is given, whether it is valid or not.
    pub(super) fn node(&self, key: &str) -> Option<&Node> {
        self.values.get(key)
    }

    pub(super) fn is_given(&self, key: &'static str) -> bool {
        self.values.contains_key(key)
    }
}

/// A value as it is in a variable or a default, in the form of its setting. What does not fit stays text, which
/// the setting's check then refuses.
fn from_text(form: &Form, text: &str, origin: Origin) -> Node {
    let value = if let Form::Texts(_) = form {
        let item = |item: &str| Node { origin: origin.clone(), value: Value::Text(item.trim().to_owned()) };
        Some(Value::List(text.split(',').map(item).collect()))
    } else if *form == Form::Flag {
        text.parse().ok().map(Value::Flag)
    } else if let Form::Whole(_) = form {
        text.parse().ok().map(Value::Whole)
    } else {
        None
    };
    let value = value.unwrap_or_else(|| Value::Text(text.to_owned()));
    Node { origin, value }
}

/// What to say of a key that is not known in this section.
fn unknown(key: &str, section: &str) -> String {
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

fn unknown_variable(rest: &str) -> String {
    let variables: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    let near = nearest(&format!("{PREFIX}{}", rest.to_uppercase()), variables.iter().map(String::as_str));
    let hint = near.map_or("docs/configuration.md has all of them".into(), |near| format!("did you mean {near}?"));
    format!("names no setting; {hint}")
}

/// The variable that a name is which has other underscores, or small letters: `WEIR__KAFKA__BROKERS` for `WEIR_KAFKA__BROKERS`. Most
/// variables of other programs, and of Kubernetes for a service that is called `weir`, are none.
fn mistyped(name: &str) -> Option<String> {
    let plain = |name: &str| {
        let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
        words.join("_").to_uppercase()
    };
    let name = plain(name);
    SETTINGS.iter().find_map(|setting| {
        let variable = setting.variable();
        let rest = name.strip_prefix(&plain(&variable))?;
        match rest.strip_prefix('_') {
            Some(entry) if setting.form.has_entries() => Some(format!("{variable}__{entry}")),
            None if rest.is_empty() && !setting.form.has_entries() => Some(variable),
            Some(_) | None => None,
        }
    })
}
