//! Values with the frame of a Schema Registry.

use std::borrow::Cow;

use super::{
    super::{
        dead_letter::DeadLetter,
        fields::{
            FieldMap, IntentField,
            schemas::{Content, SchemaFields, SchemaValue, Schemas},
            trie::FieldSlot,
        },
    },
    Header,
    cloud_events::{Attributes, ContentMode},
    field_value::{FieldSource, FieldValue, FoundAt, SOURCE, Scalar, Usual, fallback, in_header},
    intent, read_json, sized,
};
use crate::intent::{Intent, IntentValue};

/// Reads an intent with a frame.
pub(super) fn decode<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>>,
    fields: &FieldMap,
    schemas: &dyn Schemas,
) -> Result<Intent<'a>, DeadLetter> {
    let value = sized(value)?;
    let found = match schemas.read(value)? {
        Content::Json(json) => return read_json(Some(json), headers, fields),
        Content::Fields(found) => found,
    };
    let attributes = match ContentMode::of(headers) {
        ContentMode::Plain(attributes) => attributes,
        // Such an event is JSON, and this value is not: the header is about something else.
        ContentMode::Structured => Attributes::default(),
    };
    intent(IntentValue::Bytes(value), &FramedReader { fields, found, attributes })
}

/// A value of a schema, and the attributes of an event in binary mode.
struct FramedReader<'m, 'a> {
    fields: &'m FieldMap,
    found: SchemaFields<'a>,
    attributes: Attributes<'a>,
}

impl<'a> FieldSource<'a> for FramedReader<'_, 'a> {
    fn usual(&self, field: IntentField) -> Usual<'a> {
        if self.found[field as usize].is_none() { Usual::Absent } else { Usual::Other }
    }

    fn given(&self, field: IntentField) -> Result<Option<FieldValue<'_, 'a>>, DeadLetter> {
        let (name, trie) = (self.name(field), &self.fields.plain);
        let Some(value) = &self.found[field as usize] else {
            let place = fallback(field);
            return place.map_or(Ok(None), |place| in_header(self.attributes, place, name, trie));
        };
        let scalar = match value {
            SchemaValue::Text(text) => Scalar::Text(text.clone()),
            SchemaValue::Integer(integer) => Scalar::Integer(*integer),
            SchemaValue::Other(kind) => Scalar::Other(kind),
        };
        Ok(Some(FieldValue { name, trie, place: FoundAt::Slot(FieldSlot::Field(field)), scalar }))
    }

    fn source(&self) -> Result<Option<Cow<'a, str>>, DeadLetter> {
        let source = in_header(self.attributes, SOURCE, SOURCE.0.as_str(), &self.fields.plain)?;
        source.map(FieldValue::text).transpose()
    }

    fn places(&self, field: IntentField) -> String {
        let first = self.fields.pointer(field);
        fallback(field).map_or_else(|| first.to_owned(), |(_, header)| format!("{first} and header {header}"))
    }

    fn name(&self, field: IntentField) -> &'static str {
        (self.fields.name)(field)
    }
}
