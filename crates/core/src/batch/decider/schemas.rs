//! The schemas that a batch needs before it is decoded.

use std::collections::BTreeSet;

use super::Decider;
use crate::{
    batch::record::Records,
    intent::fields::{FieldMap, schemas::SchemaId},
};

impl Decider {
    /// The ids of the schemas that a batch needs; empty where intents are JSON.
    #[must_use]
    pub fn schemas_of(&self, records: &impl Records) -> BTreeSet<SchemaId> {
        schemas_of(&self.fields, records)
    }
}

/// The ids of the schemas that have to be ready before these records are read.
#[must_use]
pub fn schemas_of(fields: &FieldMap, records: &impl Records) -> BTreeSet<SchemaId> {
    let mut ids = BTreeSet::new();
    let Some(schemas) = fields.schemas() else { return ids };
    let mut last = None;
    // The others are not decoded.
    let decoded = |index: &usize| records.not_inflated(*index).is_none() && !records.is_foreign(*index);
    for index in (0..records.len()).filter(decoded) {
        let id = records.get(index).value.and_then(|value| schemas.needs(value));
        // Nearly all records have the schema of the one before.
        if id != last {
            last = id;
            ids.extend(id);
        }
    }
    ids
}
