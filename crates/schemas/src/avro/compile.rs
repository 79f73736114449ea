//! From the text of a schema to its plan.

use std::{collections::HashMap, ptr, sync::Arc};

use apache_avro::schema::{InnerDecimalSchema, Name, NamesRef, NamespaceRef, ResolvedSchema, Schema, UuidSchema};

use super::{AvroNode, AvroPlan, Kind, Meaning};
use crate::{place::Place, plan::Definition};

/// Types, fields, branches and symbols of a plan, at most. A type is compiled once for each way to a field, so a few names in a schema
/// could make a plan without end.
const MAX_PARTS: usize = 1 << 17;
/// The deepest nesting of brackets in a schema, its references included: the parser calls itself for each level.
const MAX_NESTED: usize = 1_000;
const UUID_BYTES: usize = 16;
const DURATION_BYTES: usize = 12;

impl AvroPlan {
    /// The plan of a schema, or why it is none.
    pub(crate) fn new(place: &Place, definition: &Definition) -> Result<Self, String> {
        let invalid = |error: apache_avro::Error| format!("is not a schema of Avro: {error}");
        if definition.texts().map(nested).sum::<usize>() > MAX_NESTED {
            return Err(format!("is nested deeper than {MAX_NESTED} levels, with what it refers to"));
        }
        let references = definition.references.iter().map(|(_, text)| text.as_str());
        let (schema, others) = Schema::parse_str_with_list(&definition.text, references).map_err(invalid)?;
        let all = others.iter().chain([&schema]).collect();
        let resolved = ResolvedSchema::new_with_schemata(all).map_err(invalid)?;
        let (passed_over, symbols) = (HashMap::new(), HashMap::new());
        let mut compiler = Compiler { names: resolved.get_names(), nodes: Vec::new(), parts: 0, passed_over, symbols };
        let root = compiler.node(&schema, Some(place), None)?;
        Ok(Self { nodes: compiler.nodes, root, parts: compiler.parts })
    }
}

/// How deep brackets are nested in JSON.
fn nested(text: &str) -> usize {
    let (mut level, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => level += 1,
            b'}' | b']' if !in_string => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

struct Compiler<'s> {
    names: &'s NamesRef<'s>,
    nodes: Vec<AvroNode>,
    parts: usize,
    /// The nodes of named types that no field lies in, by where the type is defined.
    passed_over: HashMap<*const Schema, usize>,
    /// The symbols of enums, likewise.
    symbols: HashMap<*const Schema, Arc<[Box<str>]>>,
}

impl<'s> Compiler<'s> {
    /// The node of a type, in an enclosing namespace, at a place; `None`: no field lies there.
    fn node(&mut self, schema: &'s Schema, place: Option<&Place>, within: NamespaceRef<'_>) -> Result<usize, String> {
        if let Schema::Ref { name } = schema {
            let schema =
                *self.named(name, within).ok_or_else(|| format!("does not define {}", name.fullname(within)))?;
            // A name stands for a type, never for another name.
            if matches!(schema, Schema::Ref { .. }) {
                return Err(format!("defines {} by itself", name.fullname(within)));
            }
            return self.node(schema, place, within);
        }
        let own_name = schema.name().map(|name| name.fullname(within));
        let is_passed_over = own_name.is_some() && place.is_none();
        if is_passed_over && let Some(known) = self.passed_over.get(&ptr::from_ref(schema)) {
            return Ok(*known);
        }
        self.add(1)?;
        let number = self.nodes.len();
        let fields = place.map_or_else(Box::default, |place| place.fields.clone().into_boxed_slice());
        self.nodes.push(AvroNode { kind: Kind::Null, fields });
        if is_passed_over {
            self.passed_over.insert(ptr::from_ref(schema), number);
        }
        let namespace = own_name.as_deref().and_then(|name| Some(name.rsplit_once('.')?.0)).or(within);
        self.nodes[number].kind = self.kind(schema, place, namespace)?;
        Ok(number)
    }

    fn add(&mut self, parts: usize) -> Result<(), String> {
        self.parts += parts;
        if self.parts > MAX_PARTS {
            return Err(format!("has more than {MAX_PARTS} types, fields and symbols"));
        }
        Ok(())
    }

    fn named(&self, name: &Name, within: NamespaceRef<'_>) -> Option<&&'s Schema> {
        self.names.get(name).or_else(|| self.names.get(&*name.fully_qualified_name(within)))
    }

    fn kind(&mut self, schema: &'s Schema, place: Option<&Place>, within: NamespaceRef<'_>) -> Result<Kind, String> {
        Ok(match schema {
            Schema::Null | Schema::Ref { .. } => Kind::Null,
            Schema::Boolean => Kind::Boolean,
            Schema::Int | Schema::Long | Schema::TimestampMillis => Kind::Whole(Meaning::Number),
            Schema::TimestampMicros => Kind::Whole(Meaning::Micros),
            Schema::TimestampNanos => Kind::Whole(Meaning::Nanos),
            Schema::Date => Kind::Whole(Meaning::Other("a date")),
            Schema::TimeMillis | Schema::TimeMicros => Kind::Whole(Meaning::Other("a time of day")),
            Schema::LocalTimestampMillis | Schema::LocalTimestampMicros | Schema::LocalTimestampNanos => {
                Kind::Whole(Meaning::Other("a local time, which is no moment"))
            }
            Schema::Float => Kind::Fixed(size_of::<f32>(), "a float"),
            Schema::Double => Kind::Fixed(size_of::<f64>(), "a double"),
            Schema::Bytes => Kind::Bytes("bytes"),
            Schema::String | Schema::Uuid(UuidSchema::String) => Kind::Text,
            Schema::Uuid(UuidSchema::Bytes) => Kind::Bytes("a UUID in bytes"),
            Schema::Uuid(UuidSchema::Fixed(fixed)) if fixed.size == UUID_BYTES => Kind::Uuid,
            Schema::Uuid(UuidSchema::Fixed(fixed)) | Schema::Fixed(fixed) => Kind::Fixed(fixed.size, "fixed bytes"),
            Schema::BigDecimal => Kind::Bytes("a decimal"),
            Schema::Decimal(decimal) => match &decimal.inner {
                InnerDecimalSchema::Bytes => Kind::Bytes("a decimal"),
                InnerDecimalSchema::Fixed(fixed) => Kind::Fixed(fixed.size, "a decimal"),
            },
            Schema::Duration(_) => Kind::Fixed(DURATION_BYTES, "a duration"),
            Schema::Enum(symbols) => Kind::Enum(self.symbols(schema, &symbols.symbols)?),
            Schema::Array(array) => {
                let item = self.node(&array.items, None, within)?;
                let elements = place.into_iter().flat_map(Place::elements);
                let at = elements.map(|(number, place)| Ok((number, self.node(&array.items, Some(place), within)?)));
                Kind::Array { item, at: at.collect::<Result<_, String>>()? }
            }
            Schema::Map(map) => {
                let value = self.node(&map.types, None, within)?;
                let steps = place.into_iter().flat_map(|place| &place.steps);
                let at =
                    steps.map(|(key, place)| Ok((key.as_str().into(), self.node(&map.types, Some(place), within)?)));
                Kind::Map { value, at: at.collect::<Result<_, String>>()? }
            }
            Schema::Union(union) => {
                self.add(union.variants().len())?;
                let branches = union.variants().iter().map(|branch| self.node(branch, place, within));
                Kind::Union(branches.collect::<Result<_, String>>()?)
            }
            Schema::Record(record) => {
                self.add(record.fields.len())?;
                let members = record
                    .fields
                    .iter()
                    .map(|field| self.node(&field.schema, place.and_then(|place| place.step(&field.name)), within));
                Kind::Record(members.collect::<Result<_, String>>()?)
            }
        })
    }

    /// The symbols of an enum, which all its nodes share.
    fn symbols(&mut self, schema: &'s Schema, symbols: &[String]) -> Result<Arc<[Box<str>]>, String> {
        if let Some(known) = self.symbols.get(&ptr::from_ref(schema)) {
            return Ok(Arc::clone(known));
        }
        self.add(symbols.len())?;
        let symbols: Arc<[Box<str>]> = symbols.iter().map(|symbol| symbol.as_str().into()).collect();
        self.symbols.insert(ptr::from_ref(schema), Arc::clone(&symbols));
        Ok(symbols)
    }
}
