//! Where an intent came from.

use serde::Serialize;

/// The record that an intent came in. After a deferral it is still the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct Origin<'a> {
    /// Topic of the record.
    pub topic: &'a str,
    /// Partition of the record.
    pub partition: i32,
    /// Offset of the record.
    pub offset: i64,
}
