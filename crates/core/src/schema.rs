//! JSON Schemas (2020-12) of what weir writes, made from the types. `schemas/` holds them, checked in, beside that of an intent.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::replay::Report;
use crate::decision::{decision_header::HeaderShape, envelope::Envelope};

pub fn decision() -> Schema {
    of::<Envelope<'_>>()
}

pub fn decision_header() -> Schema {
    of::<HeaderShape<'_>>()
}

/// The schema of the report of `weir policy simulate`.
pub fn simulation() -> Schema {
    of::<Report>()
}

fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
