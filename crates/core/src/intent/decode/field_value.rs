//! What was given for a field, and its reading as the field's type.

use std::borrow::Cow;

use super::super::{
    dead_letter::{
        DeadLetter,
        DeadLetterReason::{BadTime, NotJson, NotUtf8, WrongType},
    },
    fields::{
        IntentField, NameOf,
        schemas::{SchemaFields, SchemaValue},
        trie::{EventMember, FieldSlot, Trie},
    },
};
use super::{cloud_events::ContentMode, json::JsonKind, scan::PieceForm, walk::Found};
use crate::{
    basis::{time::Time, zone::Zone},
    intent::MAX_ID_BYTES,
};

/// What stands at the places that are read.
pub(super) trait FoundFields<'a> {
    /// What stands at a field's own place, as far as nearly all intents have it. Everything else, and all that is wrong,
    /// is for [`FieldReader::given`].
    fn usual(&self, field: IntentField) -> Usual<'a>;

    /// What stands at a place; `None` where nothing or null does.
    fn scalar(&self, slot: FieldSlot) -> Result<Option<Scalar<'a>>, DeadLetter>;
}

/// What was found in a value, and the event around it.
pub(super) struct FieldReader<'t, 'a, F> {
    pub(super) trie: &'t Trie,
    pub(super) found: &'t F,
    pub(super) mode: ContentMode<'a>,
    /// How messages call a field.
    pub(super) name: NameOf,
}

/// What nearly all intents have at a field's place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Usual<'a> {
    /// Nothing, or null.
    Absent,
    /// A string without escapes.
    Text(&'a str),
    /// A number of digits alone.
    Digits(&'a str),
    Other,
}

#[derive(Debug, Clone, Copy)]
enum FoundAt {
    Slot(FieldSlot),
    Header(&'static str),
}

#[derive(Debug)]
pub(super) struct FieldValue<'t, 'a> {
    name: &'static str,
    trie: &'t Trie,
    place: FoundAt,
    scalar: Scalar<'a>,
}

/// A value, as far as a field may be one.
#[derive(Debug)]
pub(super) enum Scalar<'a> {
    Text(Cow<'a, str>),
    /// A number as JSON writes it.
    Number(&'a str),
    /// An integer of a schema.
    Integer(i128),
    /// What no field is, in words.
    Other(&'static str),
}

/// What stands in for a field of an event's data: a member of the event, or a header.
const fn fallback(field: IntentField) -> Option<(EventMember, &'static str)> {
    match field {
        IntentField::Id => Some((EventMember::Id, "ce_id")),
        IntentField::UserId => Some((EventMember::Subject, "ce_subject")),
        IntentField::CreatedAt => Some((EventMember::Time, "ce_time")),
        IntentField::Channel
        | IntentField::Category
        | IntentField::Campaign
        | IntentField::Cost
        | IntentField::ExpiresAt
        | IntentField::NotBefore
        | IntentField::Timezone => None,
    }
}

impl<'a> FoundFields<'a> for Found<'_, 'a> {
    #[inline(always)]
    fn usual(&self, field: IntentField) -> Usual<'a> {
        let piece = self.any(FieldSlot::Field(field));
        match piece.form {
            PieceForm::Nothing | PieceForm::Null => Usual::Absent,
            PieceForm::Text => Usual::Text(piece.of(self.text)),
            PieceForm::Digits => Usual::Digits(piece.of(self.text)),
            PieceForm::Escaped | PieceForm::Number | PieceForm::Object | PieceForm::Array | PieceForm::Boolean => {
                Usual::Other
            }
        }
    }

    fn scalar(&self, slot: FieldSlot) -> Result<Option<Scalar<'a>>, DeadLetter> {
        let Some(piece) = self.piece(slot) else { return Ok(None) };
        Ok(Some(match piece.kind() {
            // Escapes have been looked at before, so this cannot fail; should it, the record is still no intent.
            JsonKind::String => {
                Scalar::Text(piece.unescaped(self.text).ok_or_else(|| {
                    DeadLetter::new(NotJson, "the value is not JSON: a string's escapes make no text")
                })?)
            }
            JsonKind::Number => Scalar::Number(piece.of(self.text)),
            kind @ (JsonKind::Object | JsonKind::Array | JsonKind::Boolean | JsonKind::Null) => {
                Scalar::Other(kind.as_str())
            }
        }))
    }
}

impl<'a> FoundFields<'a> for SchemaFields<'a> {
    fn usual(&self, field: IntentField) -> Usual<'a> {
        if self[field as usize].is_none() { Usual::Absent } else { Usual::Other }
    }

    fn scalar(&self, slot: FieldSlot) -> Result<Option<Scalar<'a>>, DeadLetter> {
        let FieldSlot::Field(field) = slot else { return Ok(None) };
        Ok(self[field as usize].as_ref().map(|value| match value {
            SchemaValue::Text(text) => Scalar::Text(text.clone()),
            SchemaValue::Integer(integer) => Scalar::Integer(*integer),
            SchemaValue::Other(kind) => Scalar::Other(kind),
        }))
    }
}

impl<'t, 'a, F: FoundFields<'a>> FieldReader<'t, 'a, F> {
    /// What was given for a field, by the data or by the event; `None` where neither has it. Fails where a header that has to be read is
    /// not UTF-8.
    pub(super) fn given(&self, field: IntentField) -> Result<Option<FieldValue<'t, 'a>>, DeadLetter> {
        let name = (self.name)(field);
        if let Some(given) = self.at(name, FieldSlot::Field(field))? {
            return Ok(Some(given));
        }
        fallback(field).map_or(Ok(None), |(member, header)| self.by_event(name, member, header))
    }

    /// The event's source, in which its own id is unique; `None` where it has none. Fails where it is no text.
    pub(super) fn source(&self) -> Result<Option<Cow<'a, str>>, DeadLetter> {
        let member = EventMember::Source;
        self.by_event(member.as_str(), member, "ce_source")?.map(FieldValue::text).transpose()
    }

    /// The places at which a field is looked for, for messages.
    pub(super) fn places(&self, field: IntentField) -> String {
        let first = self.trie.pointer(FieldSlot::Field(field));
        match (fallback(field), self.mode) {
            (None, _) => first.to_owned(),
            (Some((member, _)), ContentMode::Structured) => {
                format!("{first} and {}", self.trie.pointer(FieldSlot::Event(member)))
            }
            (Some((_, header)), ContentMode::Plain(_)) => format!("{first} and header {header}"),
        }
    }

    /// What an event gives for a field that its data has not. Fails where an attribute in binary mode is not UTF-8.
    fn by_event(
        &self,
        name: &'static str,
        member: EventMember,
        header: &'static str,
    ) -> Result<Option<FieldValue<'t, 'a>>, DeadLetter> {
        let attributes = match self.mode {
            ContentMode::Structured => return self.at(name, FieldSlot::Event(member)),
            ContentMode::Plain(attributes) => attributes,
        };
        let bytes = match member {
            EventMember::Id => attributes.id,
            EventMember::Source => attributes.source,
            EventMember::Subject => attributes.subject,
            EventMember::Time => attributes.time,
            EventMember::Data | EventMember::DataBase64 => None,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let text = std::str::from_utf8(bytes)
            .map_err(|_| DeadLetter::new(NotUtf8, format!("header {header}, read as {name}, is not UTF-8")))?;
        let (place, scalar) = (FoundAt::Header(header), Scalar::Text(text.into()));
        Ok(Some(FieldValue { name, trie: self.trie, place, scalar }))
    }

    fn at(&self, name: &'static str, slot: FieldSlot) -> Result<Option<FieldValue<'t, 'a>>, DeadLetter> {
        let (trie, place) = (self.trie, FoundAt::Slot(slot));
        Ok(self.found.scalar(slot)?.map(|scalar| FieldValue { name, trie, place, scalar }))
    }
}

/// Whether a text is as long as an id may be.
pub(super) fn is_sized(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len())
}

impl<'a> FieldValue<'_, 'a> {
    /// Whether the event gave it, not its data.
    pub(super) const fn is_of_event(&self) -> bool {
        matches!(self.place, FoundAt::Header(_) | FoundAt::Slot(FieldSlot::Event(_)))
    }

    /// An intent id: a string of 1 to [`MAX_ID_BYTES`] bytes.
    pub(super) fn id(self) -> Result<Cow<'a, str>, DeadLetter> {
        self.sized("a string")
    }

    /// A user id: the same, or an integer from 0 to 2^64-1, which JSON writes as weir does.
    pub(super) fn user_id(self) -> Result<Cow<'a, str>, DeadLetter> {
        match self.scalar {
            Scalar::Number(number) if number.parse::<u64>().is_ok() => Ok(number.into()),
            Scalar::Integer(integer) if u64::try_from(integer).is_ok() => Ok(integer.to_string().into()),
            Scalar::Number(_) | Scalar::Text(_) | Scalar::Integer(_) | Scalar::Other(_) => {
                self.sized("a string or an integer from 0 to 2^64-1 without sign, fraction and exponent")
            }
        }
    }

    pub(super) fn text(self) -> Result<Cow<'a, str>, DeadLetter> {
        if let Scalar::Text(text) = self.scalar { Ok(text) } else { Err(self.wrong("a string")) }
    }

    /// An integer from 1 to 255.
    pub(super) fn cost(self) -> Result<u8, DeadLetter> {
        let cost = match self.scalar {
            Scalar::Number(number) => number.parse().ok(),
            Scalar::Integer(integer) => integer.try_into().ok(),
            Scalar::Text(_) | Scalar::Other(_) => None,
        }
        .filter(|&cost| cost > 0);
        cost.ok_or_else(|| self.wrong("an integer from 1 to 255"))
    }

    /// An RFC 3339 string, or integer milliseconds since 1970.
    pub(super) fn time(self) -> Result<Time, DeadLetter> {
        const OUTSIDE: &str = "is an integer, but outside the years 0 to 9999 in milliseconds since 1970";
        let (time, problem) = match &self.scalar {
            Scalar::Text(text) => (
                Time::from_rfc3339(text),
                "is a string, but not an RFC 3339 time of the years 0 to 9999, such as 2026-11-20T09:00:00Z",
            ),
            Scalar::Number(number) if !number.contains(['.', 'e', 'E']) => {
                (number.parse().ok().and_then(Time::from_millis), OUTSIDE)
            }
            Scalar::Integer(integer) => (i64::try_from(*integer).ok().and_then(Time::from_millis), OUTSIDE),
            Scalar::Number(_) | Scalar::Other(_) => {
                return Err(self.wrong("an RFC 3339 string or an integer of milliseconds since 1970"));
            }
        };
        time.ok_or_else(|| DeadLetter::new(BadTime, format!("{} {problem}", self.what())))
    }

    pub(super) fn zone(self) -> Result<Zone, DeadLetter> {
        let zone = if let Scalar::Text(name) = &self.scalar { Zone::named(name) } else { None };
        zone.ok_or_else(|| self.wrong("the IANA name of a time zone, such as Asia/Singapore"))
    }

    /// A string as long as an id may be.
    fn sized(self, expected: &str) -> Result<Cow<'a, str>, DeadLetter> {
        let Scalar::Text(text) = &self.scalar else { return Err(self.wrong(expected)) };
        if !is_sized(text) {
            let message = format!("{} has {} bytes, expected 1 to {MAX_ID_BYTES}", self.what(), text.len());
            return Err(DeadLetter::new(WrongType, message));
        }
        self.text()
    }

    fn wrong(&self, expected: &str) -> DeadLetter {
        let kind = match &self.scalar {
            Scalar::Text(_) => JsonKind::String.as_str(),
            Scalar::Number(_) => JsonKind::Number.as_str(),
            Scalar::Integer(_) => "an integer",
            Scalar::Other(kind) => kind,
        };
        DeadLetter::new(WrongType, format!("{} is {kind}, expected {expected}", self.what()))
    }

    /// The field and where it stood, for messages.
    fn what(&self) -> String {
        let name = self.name;
        match self.place {
            FoundAt::Slot(slot) => format!("{name} ({})", self.trie.pointer(slot)),
            FoundAt::Header(header) => format!("{name} (header {header})"),
        }
    }
}
