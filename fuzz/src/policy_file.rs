//! src/edge/policy_file without what fetches policies.

#[path = "../../src/edge/policy_file/caps.rs"]
mod caps;
#[path = "../../src/edge/policy_file/check.rs"]
mod check;

use crate::{
    document::{Document, Format, Problems},
    domain::policy::Policy,
};

/// As the function of this name in src/edge/policy_file/mod.rs.
pub fn parse_policy(source: &str, text: &str, format: Format, history_ms: i64) -> Result<Policy, Problems> {
    let document = Document::new(source, text);
    let root = document.parse(format);
    let policy = root.as_ref().and_then(|root| check::policy(&document, root, history_ms.into()));
    document.finish(policy)
}
