//! A policy as people write it, TOML or JSON, to the domain's checked [`Policy`].

use crate::{
    document::{Document, Format, Problems},
    history::HistoryBounds,
    policy::Policy,
};

mod caps;
mod check;
mod schema;

pub use schema::schema_text;

/// Reads a policy. `source` is the name that problems are reported under; `bounds` is how far back the
/// store's history reaches (`redis.history`), in milliseconds, and how many sends of a user it holds (`redis.max_entries`).
///
/// # Errors
/// All that is wrong with it, each with line, column, reason and what to write instead.
pub fn parse_policy(
    source: &str,
    text: &str,
    format: Format,
    bounds: impl Into<HistoryBounds>,
) -> Result<Policy, Problems> {
    let document = Document::new(source, text);
    let root = document.parse(format);
    let bounds = bounds.into();
    let policy = root.as_ref().and_then(|root| check::policy(&document, root, bounds));
    document.finish(policy)
}
