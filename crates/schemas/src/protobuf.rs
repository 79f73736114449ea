//! Protobuf: the mapped fields of each message of a schema as a plan, and values read along it.

mod compile;
#[cfg(test)]
mod tests;
mod walk;
mod wire;

use std::sync::Arc;

use weir_core::intent::fields::IntentField;

/// The messages of a schema, made ready for reading.
#[derive(Debug)]
pub(crate) struct ProtobufPlan {
    /// Each with its indexes, in ascending order of these.
    messages: Vec<(Box<[usize]>, MessagePlan)>,
    /// How many messages, members and names of values it has.
    pub(crate) parts: usize,
}

/// The names of an enum's values, in ascending order of these.
type EnumNames = Arc<[(i32, Box<str>)]>;

/// A message: its members on the way to a field, by their numbers. The others are passed over.
#[derive(Debug, Default)]
struct MessagePlan(Box<[(u32, MessageMember)]>);

#[derive(Debug)]
enum MessageMember {
    Field(Box<[IntentField]>, Scalar),
    Message(MessagePlan),
    /// A repeated field: the elements on the way.
    List(Box<[(usize, MessageMember)]>),
    /// A map whose keys are strings: the keys on the way.
    Map(Box<[(Box<str>, MessageMember)]>),
}

/// How a value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scalar {
    /// A varint in two's complement.
    Signed,
    Unsigned,
    ZigZag,
    Fixed32,
    Fixed64,
    SignedFixed32,
    SignedFixed64,
    Text,
    Enum(EnumNames),
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// A message of `google/protobuf/wrappers.proto`.
    Wrapper(Box<Scalar>),
    /// What no field is.
    Other(&'static str),
}
