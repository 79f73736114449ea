//! From the text of a schema to its plan.

use std::{collections::HashMap, iter::Peekable, str::Bytes, sync::Arc};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, prost::Message as _, prost_types,
};
use protox::{
    Compiler, Error,
    file::{File, FileResolver, GoogleFileResolver},
};

use super::{EnumNames, MessageMember, MessagePlan, ProtobufPlan, Scalar};
use crate::{place::Place, plan::Definition};

/// The name of the schema among the files that it imports.
const ROOT: &str = "the-schema-of-a-value.proto";
/// How deep brackets may be nested in a schema: its parser calls itself for each.
const MAX_NESTED: usize = 100;
const MAX_MESSAGES: usize = 4_096;
/// Messages, members and names of values of a plan, at most: each message that a value may be has its own members.
const MAX_PARTS: usize = 1 << 17;
const WRAPPED: [(&str, Scalar); 6] = [
    ("google.protobuf.StringValue", Scalar::Text),
    ("google.protobuf.Int32Value", Scalar::Signed),
    ("google.protobuf.Int64Value", Scalar::Signed),
    ("google.protobuf.UInt32Value", Scalar::Unsigned),
    ("google.protobuf.UInt64Value", Scalar::Unsigned),
    ("google.protobuf.BoolValue", Scalar::Other("a boolean")),
];

/// The files of a schema. Google's own are known.
struct Files(Definition);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        let Self(Definition { text, references, .. }) = self;
        let reference = references.iter().find_map(|(known, text)| (known == name).then_some(text));
        let Some(text) = (if name == ROOT { Some(text) } else { reference }) else {
            return GoogleFileResolver::new().open_file(name);
        };
        match descriptor(text) {
            Some(descriptor) => {
                Ok(prost_types::FileDescriptorProto { name: Some(name.to_owned()), ..descriptor }.into())
            }
            None => match nested(text) {
                Some(levels) if levels <= MAX_NESTED => File::from_source(name, text),
                Some(_) => Err(Error::new("its brackets are nested too deep")),
                None => Err(Error::new("it has a string or a comment that is none")),
            },
        }
    }
}

/// A descriptor in base64: Confluent's serializer for Python registers schemas so, and registries may return them.
fn descriptor(text: &str) -> Option<prost_types::FileDescriptorProto> {
    let bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
    prost_types::FileDescriptorProto::decode(bytes.as_slice()).ok()
}

/// How deep brackets are nested outside of comments and strings; `None` where these are not as Protobuf has them, so that its parser might
/// take them for something else.
pub(super) fn nested(text: &str) -> Option<usize> {
    let (mut level, mut deepest, mut within) = (0_usize, 0, Within::Code);
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match (within, byte) {
            (Within::Code, b'{' | b'[' | b'(' | b'<') => level += 1,
            (Within::Code, b'}' | b']' | b')' | b'>') => level = level.saturating_sub(1),
            (Within::Code, b'/') if bytes.next_if_eq(&b'/').is_some() => within = Within::Line,
            (Within::Code, b'/') if bytes.next_if_eq(&b'*').is_some() => within = Within::Block,
            (Within::Code, b'"' | b'\'') => within = Within::Text(byte),
            (Within::Line, b'\n') => within = Within::Code,
            (Within::Block, b'*') if bytes.next_if_eq(&b'/').is_some() => within = Within::Code,
            (Within::Text(quote), _) if byte == quote => within = Within::Code,
            (Within::Text(_), b'\\') => pass_escape(&mut bytes)?,
            // No comment begins with it in a schema; comments have no comments in them; and strings end in their line.
            (Within::Code, b'#') | (Within::Text(_), b'\n' | 0) => return None,
            (Within::Block, b'/') if bytes.peek() == Some(&b'*') => return None,
            _ => {}
        }
        deepest = deepest.max(level);
    }
    Some(deepest)
}

/// Passes over what stands behind a backslash; `None`: that is no escape.
fn pass_escape(bytes: &mut Peekable<Bytes<'_>>) -> Option<()> {
    let digits = match bytes.next()? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'?' | b'\\' | b'\'' | b'"' | b'0'..=b'7' => 0,
        b'x' | b'X' => 1,
        b'u' => 4,
        b'U' => 8,
        _ => return None,
    };
    (0..digits).try_for_each(|_| bytes.next_if(u8::is_ascii_hexdigit).map(drop))
}

/// Where a byte of a schema is.
#[derive(Debug, Clone, Copy)]
enum Within {
    Code,
    /// A comment to the end of the line.
    Line,
    /// A comment to its end.
    Block,
    /// A string, until this quote.
    Text(u8),
}

pub(super) fn file(definition: &Definition) -> Result<FileDescriptor, String> {
    let invalid = |error: Error| format!("is not a schema of Protobuf: {error}");
    let mut compiler = Compiler::with_file_resolver(Files(definition.clone()));
    compiler.include_imports(true).open_file(ROOT).map_err(invalid)?;
    let file = compiler.descriptor_pool().get_file_by_name(ROOT);
    file.ok_or_else(|| "is not a schema of Protobuf: it is empty".to_owned())
}

impl ProtobufPlan {
    /// The plan of a schema, or why it is none.
    pub(crate) fn new(place: &Place, definition: &Definition) -> Result<Self, String> {
        let file = file(definition)?;
        let mut compiler = Compiling { enums: HashMap::new(), parts: 0 };
        let mut messages = Vec::new();
        let mut open: Vec<(Vec<usize>, MessageDescriptor)> =
            file.messages().enumerate().map(|(index, message)| (vec![index], message)).collect();
        while let Some((indexes, message)) = open.pop() {
            if messages.len() >= MAX_MESSAGES {
                return Err(format!("has more than {MAX_MESSAGES} messages"));
            }
            let inner = message.child_messages().enumerate();
            open.extend(inner.map(|(index, inner)| ([indexes.as_slice(), &[index]].concat(), inner)));
            compiler.add(1)?;
            messages.push((indexes.into_boxed_slice(), compiler.of_message(place, &message)?));
        }
        messages.sort_by(|(before, _), (after, _)| before.cmp(after));
        Ok(Self { messages, parts: compiler.parts })
    }
}

/// The parts of a plan so far.
struct Compiling {
    /// The names of enums' values, which all members share, by the enums' names.
    enums: HashMap<String, EnumNames>,
    parts: usize,
}

impl Compiling {
    fn add(&mut self, parts: usize) -> Result<(), String> {
        self.parts += parts;
        if self.parts > MAX_PARTS {
            return Err(format!("has more than {MAX_PARTS} messages, fields and names"));
        }
        Ok(())
    }

    fn of_message(&mut self, place: &Place, message: &MessageDescriptor) -> Result<MessagePlan, String> {
        let mut members = Vec::new();
        for (name, place) in &place.steps {
            let field = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
            if let Some(field) = field {
                members.push((field.number(), self.member(place, &field)?));
            }
        }
        Ok(MessagePlan(members.into()))
    }

    fn member(&mut self, place: &Place, field: &FieldDescriptor) -> Result<MessageMember, String> {
        let kind = field.kind();
        if !field.is_list() && !field.is_map() {
            return self.single(place, &kind);
        }
        if !place.fields.is_empty() {
            let what = if field.is_map() { "a map" } else { "a list" };
            return Ok(MessageMember::Field(place.fields.clone().into(), Scalar::Other(what)));
        }
        match kind.as_message().filter(|_| field.is_map()) {
            Some(entry) if entry.map_entry_key_field().kind() == Kind::String => {
                let value = entry.map_entry_value_field().kind();
                let steps = place.steps.iter();
                let keys = steps.map(|(key, place)| Ok((key.as_str().into(), self.single(place, &value)?)));
                Ok(MessageMember::Map(keys.collect::<Result<_, String>>()?))
            }
            // Steps do not lead into a map with other keys.
            Some(_) => Ok(MessageMember::List(Box::default())),
            None => {
                let elements = place.elements();
                let elements = elements.filter_map(|(number, place)| Some((usize::try_from(number).ok()?, place)));
                let elements = elements.map(|(number, place)| Ok((number, self.single(place, &kind)?)));
                Ok(MessageMember::List(elements.collect::<Result<_, String>>()?))
            }
        }
    }

    /// A value that is not repeated.
    fn single(&mut self, place: &Place, kind: &Kind) -> Result<MessageMember, String> {
        self.add(1)?;
        match kind.as_message() {
            Some(message) if place.fields.is_empty() => Ok(MessageMember::Message(self.of_message(place, message)?)),
            Some(_) | None => Ok(MessageMember::Field(place.fields.clone().into(), self.scalar(kind)?)),
        }
    }

    fn scalar(&mut self, kind: &Kind) -> Result<Scalar, String> {
        Ok(match kind {
            Kind::Int32 | Kind::Int64 => Scalar::Signed,
            Kind::Uint32 | Kind::Uint64 => Scalar::Unsigned,
            Kind::Sint32 | Kind::Sint64 => Scalar::ZigZag,
            Kind::Fixed32 => Scalar::Fixed32,
            Kind::Fixed64 => Scalar::Fixed64,
            Kind::Sfixed32 => Scalar::SignedFixed32,
            Kind::Sfixed64 => Scalar::SignedFixed64,
            Kind::String => Scalar::Text,
            Kind::Bool => Scalar::Other("a boolean"),
            Kind::Float => Scalar::Other("a float"),
            Kind::Double => Scalar::Other("a double"),
            Kind::Bytes => Scalar::Other("bytes"),
            Kind::Enum(values) => Scalar::Enum(self.names(values)?),
            Kind::Message(message) if message.full_name() == "google.protobuf.Timestamp" => Scalar::Timestamp,
            Kind::Message(message) => WRAPPED
                .iter()
                .find(|(name, _)| *name == message.full_name())
                .map_or(Scalar::Other("a message"), |(_, scalar)| Scalar::Wrapper(Box::new(scalar.clone()))),
        })
    }

    /// The names of an enum's values, in ascending order of the values; of several names of one value, the first.
    fn names(&mut self, of: &EnumDescriptor) -> Result<EnumNames, String> {
        if let Some(known) = self.enums.get(of.full_name()) {
            return Ok(Arc::clone(known));
        }
        let mut names: Vec<(i32, Box<str>)> = of.values().map(|value| (value.number(), value.name().into())).collect();
        names.sort_by_key(|(number, _)| *number);
        names.dedup_by_key(|(number, _)| *number);
        self.add(names.len())?;
        let names: EnumNames = names.into();
        self.enums.insert(of.full_name().to_owned(), Arc::clone(&names));
        Ok(names)
    }
}
