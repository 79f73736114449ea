//! A policy as people write it, TOML or JSON, to the domain's checked [`Policy`].
//!
//! Each option is declared once: the parser, its errors, the schema and the tables of docs/policy.md come from it.

use crate::{
    basis::document::{Document, Format, Problems},
    history::HistoryBounds,
    policy::Policy,
};

mod budgets;
mod caps;
mod check;
mod forms;
mod options;
mod pressure;
mod routes;
mod schema;

use options::{Declared as _, ValueAt};
pub use schema::{markdown, schema_text};

/// What a policy must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyBounds {
    /// How far back the store's history reaches (`redis.history`), and how many sends of a user it holds
    /// (`redis.max_entries`).
    pub history: HistoryBounds,
    /// Whether there are topics to defer intents to (`kafka.deferred`).
    pub may_defer: bool,
    /// Whether there are topics for intents that wait for a route (`kafka.waiting`).
    pub may_wait: bool,
}

impl<H: Into<HistoryBounds>> From<H> for PolicyBounds {
    /// A history of these bounds, and topics to defer to and to wait on.
    fn from(history: H) -> Self {
        Self { history: history.into(), may_defer: true, may_wait: true }
    }
}

/// Reads a policy. `source` is the name that problems are reported under. Fails with all that is wrong, each with line, column, reason and
/// what to write instead.
pub fn parse_policy(
    source: &str,
    text: &str,
    format: Format,
    bounds: impl Into<PolicyBounds>,
) -> Result<Policy, Problems> {
    let document = Document::new(source, text);
    let bounds = bounds.into();
    let root = document.parse(format);
    let read = |node| check::PolicyOptions::read(&ValueAt { document: &document, node, path: String::new(), bounds });
    let policy = root.as_ref().and_then(read);
    document.finish(policy)
}
