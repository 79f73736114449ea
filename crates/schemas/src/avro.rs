//! Avro: a schema as a plan, and values read along it.

mod compile;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use weir_core::intent::fields::IntentField;

/// An Avro schema, made ready for reading: its types as nodes, by their numbers. A type that lies on the way to a field has a node
/// of its own there.
#[derive(Debug)]
pub(crate) struct AvroPlan {
    nodes: Vec<AvroNode>,
    root: usize,
    /// How many types, fields, branches and symbols it has.
    pub(crate) parts: usize,
}

/// A type, and the fields that are read where it stands.
#[derive(Debug)]
struct AvroNode {
    kind: Kind,
    fields: Box<[IntentField]>,
}

/// How a value of a type is written. Other types are by their numbers.
#[derive(Debug)]
enum Kind {
    Null,
    Boolean,
    /// An `int` or a `long`.
    Whole(Meaning),
    /// So many bytes.
    Fixed(usize, &'static str),
    /// 16 bytes.
    Uuid,
    /// A length, and bytes.
    Bytes(&'static str),
    /// A length, and UTF-8.
    Text,
    Enum(Arc<[Box<str>]>),
    Array {
        item: usize,
        /// Elements on the way to a field.
        at: Box<[(u64, usize)]>,
    },
    Map {
        value: usize,
        /// Keys on the way to a field.
        at: Box<[(Box<str>, usize)]>,
    },
    Union(Box<[usize]>),
    Record(Box<[usize]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// A number, or milliseconds since 1970.
    Number,
    /// Microseconds since 1970.
    Micros,
    /// Nanoseconds since 1970.
    Nanos,
    /// Something that no field is.
    Other(&'static str),
}
