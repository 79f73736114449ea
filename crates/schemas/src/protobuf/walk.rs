//! One walk along a plan.

use weir_core::{
    intent::MAX_DEPTH,
    ports::{SchemaFields, SchemaValue},
};

use super::{MessageMember, MessagePlan, ProtobufPlan, Scalar, wire::Raw};
use crate::cursor::{Cursor, Misfit, zigzag};

const KEY: u32 = 1;
const VALUE: u32 = 2;
/// Of `google.protobuf.Timestamp`, and of a wrapper's value.
const SECONDS: u32 = 1;
const NANOS: u32 = 2;
const WRAPPED: u32 = 1;
const WRONG_TYPE: Misfit = Misfit { at: 0, what: "a field is written in another type than its schema has" };

impl ProtobufPlan {
    /// The fields of a value: of the message whose indexes it begins with.
    pub(crate) fn read<'a>(&self, content: &'a [u8]) -> Result<SchemaFields<'a>, Misfit> {
        let mut wire = Cursor::new(content);
        let indexes = indexes(&mut wire)?;
        let message = self.messages.binary_search_by(|(known, _)| (**known).cmp(&*indexes));
        let message = message.map_err(|_| wire.misfit("the schema has no message with its indexes"))?;
        let mut found = SchemaFields::default();
        of_message(&self.messages[message].1, wire.rest(), &mut found)?;
        Ok(found)
    }
}

/// The indexes of a message: their count and each, in zigzag; no bytes but a 0 for the first message of a schema.
fn indexes(wire: &mut Cursor<'_>) -> Result<Vec<usize>, Misfit> {
    let number = |wire: &mut Cursor<'_>| {
        usize::try_from(zigzag(wire.varint()?)).map_err(|_| wire.misfit("a message's index is negative"))
    };
    match number(wire)? {
        0 => Ok(vec![0]),
        count if count > MAX_DEPTH => Err(wire.misfit("its message lies deeper than 64 levels")),
        count => (0..count).map(|_| number(wire)).collect(),
    }
}

/// Reads a message. Of a field that is given several times, the last one counts; of a message, its members.
fn of_message<'a>(plan: &MessagePlan, bytes: &'a [u8], found: &mut SchemaFields<'a>) -> Result<(), Misfit> {
    let mut wire = Cursor::new(bytes);
    let mut elements = Vec::new();
    while let Some((number, raw)) = wire.field()? {
        for (at, (_, member)) in plan.0.iter().enumerate().filter(|(_, (known, _))| *known == number) {
            match member {
                MessageMember::List(wanted) => {
                    elements.resize(plan.0.len(), 0_usize);
                    if let Some((_, element)) = wanted.iter().find(|(wanted, _)| *wanted == elements[at]) {
                        one(element, raw, found)?;
                    }
                    elements[at] += 1;
                }
                MessageMember::Map(wanted) => entry(wanted, raw, found)?,
                MessageMember::Field(..) | MessageMember::Message(_) => one(member, raw, found)?,
            }
        }
    }
    Ok(())
}

/// Reads what is not repeated.
fn one<'a>(member: &MessageMember, raw: Raw<'a>, found: &mut SchemaFields<'a>) -> Result<(), Misfit> {
    match (member, raw) {
        (MessageMember::Message(message), Raw::Sized(bytes)) => of_message(message, bytes, found),
        // Steps do not lead into a group.
        (MessageMember::Message(_), Raw::Group) | (MessageMember::List(_) | MessageMember::Map(_), _) => Ok(()),
        (MessageMember::Message(_), Raw::Varint(_) | Raw::Fixed32(_) | Raw::Fixed64(_)) => Err(WRONG_TYPE),
        (MessageMember::Field(fields, scalar), raw) => {
            let value = scalar.value(raw)?;
            for field in fields {
                found[*field as usize] = Some(value.clone());
            }
            Ok(())
        }
    }
}

fn entry<'a>(wanted: &[(Box<str>, MessageMember)], raw: Raw<'a>, found: &mut SchemaFields<'a>) -> Result<(), Misfit> {
    let Raw::Sized(bytes) = raw else { return Err(WRONG_TYPE) };
    let (mut wire, mut key, mut value) = (Cursor::new(bytes), [].as_slice(), None);
    while let Some((number, raw)) = wire.field()? {
        match (number, raw) {
            (KEY, Raw::Sized(bytes)) => key = bytes,
            (VALUE, raw) => value = Some(raw),
            (..) => {}
        }
    }
    let member = wanted.iter().find_map(|(wanted, member)| (wanted.as_bytes() == key).then_some(member));
    member.zip(value).map_or(Ok(()), |(member, value)| one(member, value, found))
}

impl Scalar {
    fn value<'a>(&self, raw: Raw<'a>) -> Result<SchemaValue<'a>, Misfit> {
        Ok(match (self, raw) {
            (Self::Signed, Raw::Varint(number)) => SchemaValue::Integer(number.cast_signed().into()),
            (Self::Unsigned, Raw::Varint(number)) => SchemaValue::Integer(number.into()),
            (Self::ZigZag, Raw::Varint(number)) => SchemaValue::Integer(zigzag(number).into()),
            (Self::Fixed32, Raw::Fixed32(bytes)) => SchemaValue::Integer(u32::from_le_bytes(bytes).into()),
            (Self::SignedFixed32, Raw::Fixed32(bytes)) => SchemaValue::Integer(i32::from_le_bytes(bytes).into()),
            (Self::Fixed64, Raw::Fixed64(bytes)) => SchemaValue::Integer(u64::from_le_bytes(bytes).into()),
            (Self::SignedFixed64, Raw::Fixed64(bytes)) => SchemaValue::Integer(i64::from_le_bytes(bytes).into()),
            (Self::Text, Raw::Sized(bytes)) => {
                let text = std::str::from_utf8(bytes);
                SchemaValue::Text(text.map_err(|_| Misfit { at: 0, what: "a string is not UTF-8" })?.into())
            }
            (Self::Enum(values), Raw::Varint(number)) => {
                // An enum is 32 bits wide; what is more is cut off, as by other readers.
                let number = number as i32;
                let place = values.binary_search_by_key(&number, |(value, _)| *value);
                place.map_or(SchemaValue::Integer(number.into()), |place| {
                    SchemaValue::Text(values[place].1.to_string().into())
                })
            }
            (Self::Timestamp, Raw::Sized(bytes)) => timestamp(bytes)?,
            (Self::Wrapper(scalar), Raw::Sized(bytes)) => wrapped(scalar, bytes)?,
            (Self::Other(what), _) => SchemaValue::Other(what),
            (..) => return Err(WRONG_TYPE),
        })
    }
}

/// Milliseconds since 1970.
fn timestamp(bytes: &[u8]) -> Result<SchemaValue<'static>, Misfit> {
    let (mut wire, mut seconds, mut nanos) = (Cursor::new(bytes), 0, 0);
    while let Some((number, raw)) = wire.field()? {
        match (number, raw) {
            (SECONDS, Raw::Varint(number)) => seconds = number.cast_signed(),
            (NANOS, Raw::Varint(number)) => nanos = number.cast_signed(),
            (..) => {}
        }
    }
    Ok(SchemaValue::Integer(i128::from(seconds) * 1_000 + i128::from(nanos).div_euclid(1_000_000)))
}

/// The value of a wrapper; absent, it is the default of its type.
fn wrapped<'a>(scalar: &Scalar, bytes: &'a [u8]) -> Result<SchemaValue<'a>, Misfit> {
    let mut wire = Cursor::new(bytes);
    let mut value = scalar.value(if *scalar == Scalar::Text { Raw::Sized(&[]) } else { Raw::Varint(0) })?;
    while let Some((number, raw)) = wire.field()? {
        if number == WRAPPED {
            value = scalar.value(raw)?;
        }
    }
    Ok(value)
}
