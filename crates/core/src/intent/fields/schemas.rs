//! Values with the frame of a Schema Registry: a byte 0, the id of a schema in 4 bytes, and a value in the schema's format.

use std::{any::Any, borrow::Cow, collections::BTreeSet, fmt::Debug, future::Future, pin::Pin, sync::Arc};

use crate::intent::{dead_letter::DeadLetter, fields::IntentField};

/// What a registry calls a schema.
pub type SchemaId = u32;

/// What a schema's value has at the place of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaValue<'a> {
    /// A string, or the name of an enum's value.
    Text(Cow<'a, str>),
    /// An integer; of a time, milliseconds since 1970.
    Integer(i128),
    /// What no field is, in words: `a record`.
    Other(&'static str),
}

/// What stands at the place of each field, in the order of [`IntentField::ALL`]; `None` where nothing or null does.
pub type SchemaFields<'a> = [Option<SchemaValue<'a>>; IntentField::ALL.len()];

/// What is behind a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each record, and it is taken apart at once"
)]
pub enum Content<'a> {
    /// JSON, which is read as JSON without a frame is.
    Json(&'a [u8]),
    /// Fields in another format.
    Fields(SchemaFields<'a>),
}

/// Schemas that stay in memory while this is held.
pub type HeldSchemas = Vec<Arc<dyn Any + Send + Sync>>;

/// Schemas on their way.
pub type Preparing<'s> = Pin<Box<dyn Future<Output = Result<HeldSchemas, SchemasUnavailable>> + Send + 's>>;

/// That a registry does not answer. It may later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemasUnavailable(pub String);

/// Reads values with the frame of a Schema Registry.
pub trait Schemas: Debug + Send + Sync {
    /// The id of the schema that has to be ready before a value is read; `None` where there is none.
    fn needs(&self, value: &[u8]) -> Option<SchemaId>;

    /// Makes schemas ready: asks the registry for the ones that are not in memory. A schema that does not exist or cannot be used also
    /// counts as ready: its records are dead letters. Safe to drop half way. Fails where the registry gives no answer, or an invalid one.
    fn prepare<'s>(&'s self, ids: &'s BTreeSet<SchemaId>) -> Preparing<'s>;

    /// Reads a value whose schema is ready and held. Fails with the dead letter that its record becomes.
    fn read<'a>(&self, value: &'a [u8]) -> Result<Content<'a>, DeadLetter>;
}
