//! The frame of a Schema Registry: a byte 0 and the schema's id, 4 bytes, the highest first.

use weir_core::{
    intent::dead_letter::{DeadLetter, DeadLetterReason::NotDecodable},
    ports::SchemaId,
};

const MAGIC: u8 = 0;

/// Id and content of a value; `None` where it has no frame.
pub(crate) fn split(value: &[u8]) -> Option<(SchemaId, &[u8])> {
    let (&magic, rest) = value.split_first()?;
    let (id, content) = rest.split_first_chunk()?;
    (magic == MAGIC).then_some((SchemaId::from_be_bytes(*id), content))
}

/// The dead letter of a value without a frame.
pub(crate) fn none(value: &[u8]) -> DeadLetter {
    let message = match value {
        [MAGIC, ..] => format!("the value has {} bytes, less than the frame of a Schema Registry (5)", value.len()),
        [_, ..] | [] => {
            "the value does not begin with the byte 0 of a Schema Registry's frame: publish it with the registry's serializer, \
             or change intent.format"
                .to_owned()
        }
    };
    DeadLetter::new(NotDecodable, message)
}
