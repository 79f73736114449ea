//! A table being read key by key. What was not asked for is unknown, so the known keys need no second list.

use super::{Document, Node, Origin, TableEntry, Value, value::Parsed};

/// The known name that a mistyped one is nearest to, if any is near.
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    /// Below it, two names have little in common (Jaro-Winkler, 0 to 1).
    const NEAR: f64 = 0.8;
    let near = known.into_iter().map(|name| (strsim::jaro_winkler(typed, name), name));
    near.filter(|(likeness, _)| *likeness >= NEAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// One table of a document.
#[derive(Debug)]
pub struct Table<'d> {
    document: &'d Document<'d>,
    path: String,
    origin: &'d Origin,
    entries: &'d [TableEntry],
    asked: Vec<&'static str>,
}

impl<'d> Table<'d> {
    /// The table that a node is, by the path that problems are reported under; `None` where it is none, which is noted.
    pub fn of(document: &'d Document<'d>, node: &'d Node, path: impl Into<String>) -> Option<Self> {
        let path = path.into();
        if let Value::Table(entries) = &node.value {
            Some(Self { document, path, origin: &node.origin, entries, asked: Vec::new() })
        } else {
            let path = if path.is_empty() { "the document" } else { &path };
            document.note(&node.origin, format!("{path} must be a table of keys and values"));
            None
        }
    }

    /// The path of a key.
    #[must_use]
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> &'d Document<'d> {
        self.document
    }

    /// All keys, asked for or not: for tables whose keys are names.
    #[must_use]
    pub fn entries(&self) -> &'d [TableEntry] {
        self.entries
    }

    /// The value of a key, if it is there; JSON's null is the same as not there.
    pub fn node(&mut self, key: &'static str) -> Option<&'d Node> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key && entry.node.value != Value::Null);
        entry.map(|entry| &entry.node)
    }

    /// The value of a key that may be left out; also `None` where it is wrong, which is noted.
    pub fn optional<T>(&mut self, key: &'static str, parse: impl FnOnce(&'d Node) -> Parsed<T>) -> Option<T> {
        let node = self.node(key)?;
        match parse(node) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.note_at(&node.origin, key, &reason);
                None
            }
        }
    }

    /// The value of a key that must be there; `None` where it is not or is wrong, which is noted.
    pub fn required<T>(&mut self, key: &'static str, parse: impl FnOnce(&'d Node) -> Parsed<T>) -> Option<T> {
        if self.node(key).is_none() {
            self.note(&format!("needs `{key}`"));
        }
        self.optional(key, parse)
    }

    /// Notes a problem with the whole table.
    pub fn note(&self, reason: &str) {
        let path = if self.path.is_empty() { "the document" } else { &self.path };
        self.document.note(self.origin, format!("{path} {reason}"));
    }

    /// Notes a problem with the value of a key.
    pub fn note_at(&self, origin: &Origin, key: &str, reason: &str) {
        let join = if reason.starts_with('[') { "" } else { " " };
        self.document.note(origin, format!("{}{join}{reason}", self.path(key)));
    }

    /// Notes every key that was not asked for, with the nearest one that was. `elsewhere` may know better.
    pub fn finish(self, elsewhere: impl Fn(&str) -> Option<String>) {
        for entry in self.entries.iter().filter(|entry| !self.asked.contains(&entry.key.as_str())) {
            let hint = nearest(&entry.key, self.asked.iter().copied())
                .map(|known| format!("did you mean `{known}`?"))
                .or_else(|| elsewhere(&entry.key))
                .unwrap_or_else(|| format!("known here: {}", self.asked.join(", ")));
            self.document.note(&entry.origin, format!("{} is not a known key; {hint}", self.path(&entry.key)));
        }
    }
}
