//! What an option of a policy is, and how a table of them is declared: once, with what it accepts and what it means. The
//! parser, the schema and the tables of docs/policy.md come from the declaration.

use std::collections::BTreeSet;

use super::{PolicyBounds, check::elsewhere, forms::Form};
use crate::basis::document::{
    Document, Node, TableEntry, Value, nearest,
    value::{self, Parsed},
};

/// One option: its key in the file, what its value looks like, whether it must be given, and what it does.
pub(super) struct PolicyOption {
    pub(super) key: &'static str,
    pub(super) form: Form,
    pub(super) is_required: bool,
    pub(super) meaning: &'static str,
}

/// A table of options: its name in the schema, what it is, and its options in the order of the documentation.
pub(super) struct DeclaredTable {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) alternatives: Option<Alternatives>,
    pub(super) options: Vec<PolicyOption>,
}

/// Options of which a table needs one: no more than one (`oneOf`, as the schema says it), or one or more (`anyOf`). A table without
/// any is told what it needs.
pub(super) struct Alternatives {
    /// No more than one.
    pub(super) is_one: bool,
    pub(super) keys: &'static [&'static str],
    pub(super) needs: &'static str,
}

/// A table that is declared, and what it is turned into.
pub(super) trait Declared {
    type Made;

    /// The table, for the schema and the documentation.
    fn declared() -> DeclaredTable;

    /// Reads the table; `None` where something is wrong, which is noted.
    fn read(at: &ValueAt<'_>) -> Option<Self::Made>;
}

/// Declares a table:
///
/// - the type that stands for it and what it makes, its name in the schema, what it is, and perhaps [`Alternatives`];
/// - its options, each with its key, what holds where it is not given, its [`super::forms::Check`], and what it does;
/// - what is made of the options, by their keys. It may note more, and gives `None` where something is wrong.
///
/// Where an option is not given: `required` notes that, or by `required("..")` what is needed in other words; `optional` takes it. Both
/// read it as an `Option`. `or_default` and `or(value)` say what it is then. A value that is wrong is noted, and then reads as if it were
/// not given.
macro_rules! options {
    (
        $name:ident -> $made:ty, $table:literal, $about:literal $(, $rule:ident($($one:ident),+) $needs:literal)? {
            $($key:ident: $presence:ident $(($arg:expr))?, $check:expr, $meaning:literal;)+
        }
        |$at:ident| $make:expr
    ) => {
        pub(super) struct $name;

        impl Declared for $name {
            type Made = $made;

            fn declared() -> $crate::policy::file::options::DeclaredTable {
                $crate::policy::file::options::DeclaredTable {
                    name: $table,
                    meaning: $about,
                    alternatives: options!(@alternatives $($rule($($one),+) $needs)?),
                    options: vec![$($crate::policy::file::options::PolicyOption {
                        key: stringify!($key),
                        form: $check.form,
                        is_required: options!(@is_required $presence),
                        meaning: $meaning,
                    },)+],
                }
            }

            fn read($at: &ValueAt<'_>) -> Option<$made> {
                $at.entries()?;
                $(let $key = options!(@read $presence $(($arg))?, $at, $key, $check);)+
                $at.finish(&[$(stringify!($key)),+], options!(@alternatives $($rule($($one),+) $needs)?));
                $make
            }
        }
    };
    (@alternatives) => { None };
    (@alternatives $rule:ident($($key:ident),+) $needs:literal) => {
        Some($crate::policy::file::options::Alternatives {
            is_one: options!(@is_one $rule), keys: &[$(stringify!($key)),+], needs: $needs,
        })
    };
    (@is_one oneOf) => { true };
    (@is_one anyOf) => { false };
    (@is_required required) => { true };
    (@is_required $presence:ident) => { false };
    (@read required, $at:ident, $key:ident, $check:expr) => {
        $at.required(stringify!($key), concat!("`", stringify!($key), "`"), $check.read)
    };
    (@read required($needs:expr), $at:ident, $key:ident, $check:expr) => {
        $at.required(stringify!($key), $needs, $check.read)
    };
    (@read optional, $at:ident, $key:ident, $check:expr) => { $at.optional(stringify!($key), $check.read) };
    (@read or_default, $at:ident, $key:ident, $check:expr) => {
        $at.optional(stringify!($key), $check.read).unwrap_or_default()
    };
    (@read or($or:expr), $at:ident, $key:ident, $check:expr) => {
        $at.optional(stringify!($key), $check.read).unwrap_or($or)
    };
}
pub(super) use options;

/// A value of a policy, and where it stands: by a path that problems are reported under, which is empty for the document.
pub(super) struct ValueAt<'d> {
    pub(super) document: &'d Document<'d>,
    pub(super) node: &'d Node,
    pub(super) path: String,
    pub(super) bounds: PolicyBounds,
}

impl<'d> ValueAt<'d> {
    fn inner(&self, node: &'d Node, path: String) -> Self {
        Self { node, path, ..*self }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn note(&self, reason: &str) {
        let path = if self.path.is_empty() { "the document" } else { &self.path };
        let join = if reason.starts_with('[') { "" } else { " " };
        self.document.note(&self.node.origin, format!("{path}{join}{reason}"));
    }

    /// Notes what is wrong with an option of this table: at its value, or at the table if it is not given.
    pub(super) fn note_option(&self, key: &str, reason: &str) {
        let node = self.key(key).map_or(self.node, |value| value.node);
        self.inner(node, self.path_of(key)).note(reason);
    }

    /// What a function makes of the value; `None` where it is wrong, which is noted.
    pub(super) fn parse<T>(&self, parse: impl FnOnce(&'d Node) -> Parsed<T>) -> Option<T> {
        parse(self.node).map_err(|reason| self.note(&reason)).ok()
    }

    /// The entries of this table; `None` where it is none, which is noted.
    pub(super) fn entries(&self) -> Option<&'d [TableEntry]> {
        if let Value::Table(entries) = &self.node.value {
            return Some(entries);
        }
        self.note("must be a table of keys and values");
        None
    }

    pub(super) fn entry(&self, entry: &'d TableEntry) -> Self {
        self.inner(&entry.node, self.path_of(&entry.key))
    }

    /// The value of a key, if it is there; JSON's null is the same as not there.
    fn key(&self, key: &str) -> Option<Self> {
        let Value::Table(entries) = &self.node.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == key && entry.node.value != Value::Null)?;
        Some(self.entry(entry))
    }

    /// An option that may be left out; also `None` where it is wrong, which is noted.
    pub(super) fn optional<T>(&self, key: &str, read: impl Fn(&ValueAt<'_>) -> Option<T>) -> Option<T> {
        read(&self.key(key)?)
    }

    /// An option that must be there; `None` where it is not or is wrong, which is noted. `needs` says what it is.
    pub(super) fn required<T>(&self, key: &str, needs: &str, read: impl Fn(&ValueAt<'_>) -> Option<T>) -> Option<T> {
        if self.key(key).is_none() {
            self.note(&format!("needs {needs}"));
        }
        self.optional(key, read)
    }

    /// What a list of tables has: at most so many of a kind, such as rules. What is wrong is noted and left out. `twins` says why
    /// no two may have the same name.
    pub(super) fn each<T>(
        &self,
        kind: &str,
        most: usize,
        mut read: impl FnMut(&ValueAt<'_>) -> Option<T>,
        twins: Option<&str>,
    ) -> Option<Vec<T>> {
        let Value::List(items) = &self.node.value else {
            self.note(&format!("must be a list of {kind}: in TOML, write [[{}]] with two brackets", self.path));
            return None;
        };
        if items.len() > most {
            self.note(&format!("must not have more than {most} {kind}; it has {}", items.len()));
            return None;
        }
        let mut names = BTreeSet::new();
        let mut all = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let at = self.inner(item, format!("{}[{index}]", self.path));
            let name = at.key("name").and_then(|name| value::text(name.node).ok());
            if let (Some(why), Some(name)) = (twins, name.filter(|name| !names.insert(*name))) {
                self.inner(item, self.path.clone()).note(&format!("has two {kind} named {name:?}: {why}"));
            }
            all.extend(read(&at));
        }
        Some(all)
    }

    /// Notes the keys of this table that are unknown, and whether it has too few or too many of its alternatives.
    pub(super) fn finish(&self, keys: &[&str], alternatives: Option<Alternatives>) {
        if let Some(Alternatives { is_one, keys, needs }) = alternatives {
            let given = keys.iter().filter(|key| self.key(key).is_some());
            let given: Vec<String> = given.map(|key| format!("`{key}`")).collect();
            if given.is_empty() {
                self.note(needs);
            } else if is_one && given.len() > 1 {
                let both = if keys.len() == 2 { "both " } else { "" };
                self.note(&format!("has {both}{}: keep one", given.join(" and ")));
            }
        }
        // Editors are told of the schema by a key of the document.
        let schema = self.path.is_empty().then_some("$schema");
        let known: Vec<&str> = schema.into_iter().chain(keys.iter().copied()).collect();
        for entry in self.entries().into_iter().flatten().filter(|entry| !known.contains(&entry.key.as_str())) {
            let hint = nearest(&entry.key, known.iter().copied())
                .map(|near| format!("did you mean `{near}`?"))
                .or_else(|| elsewhere(&entry.key))
                .unwrap_or_else(|| format!("known here: {}", known.join(", ")));
            self.document.note(&entry.origin, format!("{} is not a known key; {hint}", self.path_of(&entry.key)));
        }
    }
}
