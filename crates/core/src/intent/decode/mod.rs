//! From a record to an intent, or to the reason why it is none.
//!
//! Only the fields that weir needs are read, in place; the rest of the value is passed over, but has to be JSON.
//! The value is walked once, never copied, and no tree of it is built; only a value that is refused is looked at again, to
//! say what is wrong with it.
//!
//! # What is wrong first
//!
//! A record may be wrong in several ways; the first of these names the reason:
//!
//! 1. `empty`: a null value or one without bytes, CloudEvents without data in binary mode included;
//! 2. `too_large`: more than 1 MiB (a value of exactly 1 MiB is read);
//! 3. `not_utf8`: anywhere in the value;
//! 4. `too_deep` or `not_json`: whichever comes first in the value. A byte order mark, anything behind the value, and
//!    an escape of half a surrogate pair (which no string can hold, and which would make the envelope that the
//!    value is put into unreadable) are `not_json`, in ignored parts too. Numbers of any size are JSON;
//! 5. `wrong_type` for the value as a whole: no object, or a field that is read, or an object on the way to one, given
//!    twice. Other members may be given as often as they like;
//! 6. the fields, in the order of the table in docs/records.md, `id` first: `missing_field`, `wrong_type`, `bad_time`.
//!
//! # Where fields are looked for
//!
//! At their pointers. null, a missing member and a step into something that is no object or array (RFC 6901) are
//! all "absent". Names are compared as text: `"\u0069d"` is `id`. A step that is a number also leads to that element
//! of an array.
//!
//! # The frame of a Schema Registry
//!
//! Where the map has [`super::fields::schemas::Schemas`], a value has a frame. After `empty` and `too_large`, in this order:
//! `not_decodable` (no frame), `unknown_schema`, `not_decodable` (the value does not fit its schema), and the fields. JSON behind a
//! frame is held to all the rules of JSON.
//!
//! # CloudEvents
//!
//! An event in structured mode is known by its header `content-type`, in any case and with any parameters. In structured mode pointers start at the event's `data`, which has to
//! be an object, null or absent; in binary mode the value is the data. Where the data has no `id`, `user_id` or
//! `created_at`, the event's `id`, `subject` and `time` are taken instead and held to the same rules. An event's own `id`
//! is unique in its `source` alone, so that both name the intent: its hash is of both; a source that is no text is
//! `wrong_type`, as a part of `id`. `data_base64` is
//! `wrong_type`: it carries what is not JSON, and taking the event's attributes without the class in its data could
//! lead around a cap.

mod cloud_events;
mod field_value;
mod json;
mod scan;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use self::cloud_events::Header;
use self::{
    cloud_events::{Attributes, ContentMode},
    field_value::{FieldReader, FieldValue, FoundFields, Usual},
    walk::Found,
};
use super::{
    dead_letter::{
        DeadLetter,
        DeadLetterReason::{Empty, MissingField, NotUtf8, TooLarge, WrongType},
    },
    fields::{
        FieldMap, IntentField,
        schemas::{Content, Schemas},
        trie::{EventMember, FieldSlot},
    },
};
use crate::{
    basis::{
        number,
        shard::{IdHash, UserHash},
        time::Time,
    },
    intent::{Intent, IntentValue, MAX_INTENT_BYTES},
};

/// Reads an intent from a record's value and headers. Fails with the dead letter that the record becomes; the module's documentation says
/// which reason wins.
pub fn decode<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>>,
    fields: &FieldMap,
) -> Result<Intent<'a>, DeadLetter> {
    match &fields.schemas {
        None => read_json(value, headers, fields),
        Some(schemas) => read_framed(value, headers, fields, &**schemas),
    }
}

/// Reads an intent in JSON without a frame.
#[inline]
fn read_json<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>>,
    fields: &FieldMap,
) -> Result<Intent<'a>, DeadLetter> {
    read(value, headers, fields, |text, source| intent(IntentValue::Json(text), source))
}

/// Reads an intent with the frame of a Schema Registry.
fn read_framed<'a>(
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
    let mode = match ContentMode::of(headers) {
        plain @ ContentMode::Plain(_) => plain,
        // Such an event is JSON, and this value is not: the header is about something else.
        ContentMode::Structured => ContentMode::Plain(Attributes::default()),
    };
    intent(IntentValue::Bytes(value), &FieldReader { trie: &fields.plain, found: &found, mode, name: fields.name })
}

/// Reads a user and a time, where one is given, from a record's value and headers: the fields `user_id` and `created_at`, by the rules
/// of an intent's.
pub fn decode_user_and_time<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>>,
    fields: &FieldMap,
) -> Result<(UserHash, Option<Time>), DeadLetter> {
    read(value, headers, fields, |_, source| Ok((UserHash::of(&user_id(source)?), created_at(source)?)))
}

type JsonReader<'t, 'a> = FieldReader<'t, 'a, Found<'t, 'a>>;

#[inline(always)]
fn read<'a, T>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>>,
    fields: &FieldMap,
    judge: impl FnOnce(&'a str, &JsonReader<'_, 'a>) -> Result<T, DeadLetter>,
) -> Result<T, DeadLetter> {
    let text = text(value)?;
    let mode = ContentMode::of(headers);
    let trie = match mode {
        ContentMode::Structured => &fields.event,
        ContentMode::Plain(_) => &fields.plain,
    };
    let mut found = Found::nothing(text);
    walk::walk(trie, &mut found)?;
    if let Some(pointer) = found.twice {
        return Err(DeadLetter::new(WrongType, format!("{pointer} is given twice")));
    }
    check_event(&found)?;
    judge(text, &FieldReader { trie, found: &found, mode, name: fields.name })
}

/// The value, if it has a size that is read.
fn sized(value: Option<&[u8]>) -> Result<&[u8], DeadLetter> {
    let bytes = match value {
        None => return Err(DeadLetter::new(Empty, "the value is null")),
        Some([]) => return Err(DeadLetter::new(Empty, "the value has no bytes")),
        Some(bytes) => bytes,
    };
    if bytes.len() > MAX_INTENT_BYTES {
        let message = format!("the value has {} bytes, an intent has at most {MAX_INTENT_BYTES}", bytes.len());
        return Err(DeadLetter::new(TooLarge, message));
    }
    Ok(bytes)
}

/// The value as text, if it has a size and an encoding that are read.
fn text(value: Option<&[u8]>) -> Result<&str, DeadLetter> {
    let bytes = sized(value)?;
    std::str::from_utf8(bytes).map_err(|error| {
        let (at, of) = (error.valid_up_to() + 1, bytes.len());
        DeadLetter::new(NotUtf8, format!("the value is not UTF-8 at byte {at} of {of}"))
    })
}

/// Refuses the data of a structured CloudEvent that cannot hold fields.
fn check_event(found: &Found<'_, '_>) -> Result<(), DeadLetter> {
    if found.piece(FieldSlot::Event(EventMember::DataBase64)).is_some() {
        return Err(DeadLetter::new(WrongType, "the event has data_base64, an intent is JSON in data"));
    }
    let data = found.piece(FieldSlot::Event(EventMember::Data));
    data.map_or(Ok(()), |data| json::object(data.kind(), "the event's data"))
}

/// Judges the fields, in the order of the table in docs/records.md.
#[inline]
fn intent<'a>(
    value: IntentValue<'a>,
    source: &FieldReader<'_, 'a, impl FoundFields<'a>>,
) -> Result<Intent<'a>, DeadLetter> {
    let (id, id_hash) = id(source)?;
    let user_id = user_id(source)?;
    Ok(Intent {
        id_hash,
        user: UserHash::of(&user_id),
        id,
        user_id,
        channel: text_of(source, IntentField::Channel)?,
        category: text_of(source, IntentField::Category)?,
        campaign: text_of(source, IntentField::Campaign)?,
        cost: optional(source, IntentField::Cost, FieldValue::cost)?.unwrap_or(1),
        created_at: created_at(source)?,
        expires_at: optional(source, IntentField::ExpiresAt, FieldValue::time)?,
        not_before: optional(source, IntentField::NotBefore, FieldValue::time)?,
        timezone: optional(source, IntentField::Timezone, FieldValue::zone)?,
        value,
    })
}

#[inline(always)]
fn id<'a>(source: &FieldReader<'_, 'a, impl FoundFields<'a>>) -> Result<(Cow<'a, str>, IdHash), DeadLetter> {
    if let Usual::Text(id) = source.found.usual(IntentField::Id)
        && field_value::is_sized(id)
    {
        return Ok((id.into(), IdHash::of(id)));
    }
    let given = required(source, IntentField::Id)?;
    let is_of_event = given.is_of_event();
    let id = given.id()?;
    let of = if is_of_event { source.source()? } else { None };
    let hash = of.map_or_else(|| IdHash::of(&id), |of| IdHash::of_event(&of, &id));
    Ok((id, hash))
}

#[inline(always)]
fn user_id<'a>(source: &FieldReader<'_, 'a, impl FoundFields<'a>>) -> Result<Cow<'a, str>, DeadLetter> {
    match source.found.usual(IntentField::UserId) {
        Usual::Text(id) if field_value::is_sized(id) => Ok(id.into()),
        // Whatever they are, so few digits are below 2^64.
        Usual::Digits(id) if id.len() <= number::MAX_DIGITS => Ok(id.into()),
        Usual::Absent | Usual::Text(_) | Usual::Digits(_) | Usual::Other => {
            required(source, IntentField::UserId)?.user_id()
        }
    }
}

#[inline(always)]
fn created_at<'a>(source: &FieldReader<'_, 'a, impl FoundFields<'a>>) -> Result<Option<Time>, DeadLetter> {
    if let Usual::Digits(digits) = source.found.usual(IntentField::CreatedAt)
        && let Some(millis) = number::value(digits.as_bytes())
        && let Some(time) = i64::try_from(millis).ok().and_then(Time::from_millis)
    {
        return Ok(Some(time));
    }
    source.given(IntentField::CreatedAt)?.map(FieldValue::time).transpose()
}

fn required<'t, 'a>(
    source: &FieldReader<'t, 'a, impl FoundFields<'a>>,
    field: IntentField,
) -> Result<FieldValue<'t, 'a>, DeadLetter> {
    source.given(field)?.ok_or_else(|| {
        let places = source.places(field);
        DeadLetter::new(
            MissingField,
            format!("{} is required and absent: looked for at {places}", (source.name)(field)),
        )
    })
}

/// A field that is any string. No event stands in for it.
#[inline(always)]
fn text_of<'a>(
    source: &FieldReader<'_, 'a, impl FoundFields<'a>>,
    field: IntentField,
) -> Result<Option<Cow<'a, str>>, DeadLetter> {
    match source.found.usual(field) {
        Usual::Absent => Ok(None),
        Usual::Text(text) => Ok(Some(text.into())),
        Usual::Digits(_) | Usual::Other => source.given(field)?.map(FieldValue::text).transpose(),
    }
}

/// A field that few intents have. No event stands in for it.
#[inline(always)]
fn optional<'t, 'a, T>(
    source: &FieldReader<'t, 'a, impl FoundFields<'a>>,
    field: IntentField,
    read: impl FnOnce(FieldValue<'t, 'a>) -> Result<T, DeadLetter>,
) -> Result<Option<T>, DeadLetter> {
    match source.found.usual(field) {
        Usual::Absent => Ok(None),
        Usual::Text(_) | Usual::Digits(_) | Usual::Other => source.given(field)?.map(read).transpose(),
    }
}
