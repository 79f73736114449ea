//! Documents that people write (policies, configuration): text with places, in TOML or JSON.
//!
//! Both formats are parsed into one tree whose values know where they stand, so that one check serves both
//! and every problem can be named with its line and column. A check collects all problems, not the first.

use std::{cell::RefCell, sync::Arc};

mod json;
mod problem;
mod toml;
pub mod value;

pub use problem::{Problem, Problems};
pub use value::nearest;

/// The largest document that is read, in bytes: a policy of a thousand segments has some 200 KiB.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// The deepest nesting that is read; the deepest thing that a policy says is at level 6.
pub const MAX_DEPTH: usize = 32;

/// The most problems that are collected: whoever has more mends these first.
pub const MAX_PROBLEMS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    Json,
}

impl Format {
    /// The format by a name's ending, `.toml` or `.json`; `None` for any other.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        [("toml", Self::Toml), ("json", Self::Json)]
            .into_iter()
            .find_map(|(known, format)| known.eq_ignore_ascii_case(ending).then_some(format))
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The byte of the text at which it begins.
    Text(usize),
    /// An environment variable, by name.
    Variable(Arc<str>),
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub origin: Origin,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Flag(bool),
    Whole(i128),
    /// Any other number, as written.
    Number(String),
    Text(String),
    /// TOML's date and time, as written.
    Date(String),
    List(Vec<Node>),
    /// Keys and their values, each key once.
    Table(Vec<TableEntry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct TableEntry {
    pub key: String,
    /// Where the key comes from.
    pub origin: Origin,
    pub node: Node,
}

/// A document being checked: its name, its text, and the problems found so far.
#[derive(Debug)]
pub struct Document<'d> {
    name: &'d str,
    text: &'d str,
    problems: RefCell<Vec<Problem>>,
}

impl<'d> Document<'d> {
    /// A document, by the name that problems are reported under. A byte order mark is left out.
    pub fn new(name: &'d str, text: &'d str) -> Self {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        Self { name, text, problems: RefCell::default() }
    }

    /// Parses the text; `None` where its syntax is wrong, which is noted.
    pub fn parse(&self, format: Format) -> Option<Node> {
        if self.text.len() > MAX_DOCUMENT_BYTES {
            let message = format!("has {} bytes; at most {MAX_DOCUMENT_BYTES} are read", self.text.len());
            self.note(&Origin::Text(0), message);
            return None;
        }
        match format {
            Format::Toml => toml::parse(self, self.text),
            Format::Json => json::parse(self, self.text),
        }
    }

    /// Notes a problem, unless there are [`MAX_PROBLEMS`] already.
    pub fn note(&self, origin: &Origin, message: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            problems.push(Problem::new(self.name, self.text, origin, message.into()));
        }
    }

    /// Where something stands: `policy.toml:4:9`, or an environment variable's name.
    pub fn place(&self, origin: &Origin) -> String {
        match origin {
            Origin::Text(_) => Problem::new(self.name, self.text, origin, String::new()).place().to_owned(),
            Origin::Variable(name) => name.to_string(),
        }
    }

    /// What the check made, if it found no problem.
    pub fn finish<T>(self, made: Option<T>) -> Result<T, Problems> {
        let mut problems = self.problems.into_inner();
        match made {
            Some(made) if problems.is_empty() => Ok(made),
            Some(_) | None => {
                problems.sort();
                problems.dedup();
                Err(Problems(problems))
            }
        }
    }
}
