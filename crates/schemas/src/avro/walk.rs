//! One walk along a plan.

use weir_core::{
    intent::MAX_DEPTH,
    ports::{SchemaFields, SchemaValue},
};

use super::{AvroPlan, Kind, Meaning};
use crate::cursor::{Cursor, Misfit, zigzag};

/// Steps for each byte of a value, at most. Types without bytes (null, an empty record) could be repeated without end in a few
/// bytes.
const STEPS_PER_BYTE: usize = 16;
/// Steps beside those.
const FREE_STEPS: usize = 1 << 16;

impl AvroPlan {
    pub(crate) fn read<'a>(&self, content: &'a [u8]) -> Result<SchemaFields<'a>, Misfit> {
        let steps = content.len() * STEPS_PER_BYTE + FREE_STEPS;
        let mut walk = Walk { plan: self, cursor: Cursor::new(content), steps, found: SchemaFields::default() };
        walk.value(self.root, 1)?;
        if walk.cursor.rest().is_empty() { Ok(walk.found) } else { Err(walk.misfit("bytes are left behind the value")) }
    }
}

struct Walk<'p, 'a> {
    plan: &'p AvroPlan,
    cursor: Cursor<'a>,
    /// Steps that are left.
    steps: usize,
    found: SchemaFields<'a>,
}

impl<'p, 'a> Walk<'p, 'a> {
    fn misfit(&self, what: &'static str) -> Misfit {
        self.cursor.misfit(what)
    }

    /// A value of a type, inside of so many others.
    fn value(&mut self, number: usize, level: usize) -> Result<(), Misfit> {
        self.steps = self.steps.checked_sub(1).ok_or_else(|| self.misfit("it repeats values without bytes"))?;
        let plan = self.plan;
        let node = &plan.nodes[number];
        let is_read = !node.fields.is_empty();
        let value = match &node.kind {
            Kind::Null => None,
            Kind::Union(branches) => {
                let branch = usize::try_from(self.whole()?).ok().and_then(|branch| branches.get(branch));
                return self.value(*branch.ok_or_else(|| self.misfit("a union has no such branch"))?, level);
            }
            Kind::Boolean => {
                self.cursor.take(1)?;
                Some(SchemaValue::Other("a boolean"))
            }
            Kind::Whole(meaning) => Some(meaning.value(self.whole()?)),
            Kind::Fixed(size, what) => {
                self.cursor.take(*size)?;
                Some(SchemaValue::Other(what))
            }
            Kind::Uuid => Some(SchemaValue::Text(uuid(self.cursor.take(16)?).into())),
            Kind::Bytes(what) => {
                self.sized()?;
                Some(SchemaValue::Other(what))
            }
            Kind::Text => {
                let bytes = self.sized()?;
                if is_read { Some(SchemaValue::Text(self.text(bytes)?.into())) } else { None }
            }
            Kind::Enum(symbols) => {
                let symbol = usize::try_from(self.whole()?).ok().and_then(|symbol| symbols.get(symbol));
                let symbol = symbol.ok_or_else(|| self.misfit("an enum has no such symbol"))?;
                is_read.then(|| SchemaValue::Text(symbol.to_string().into()))
            }
            Kind::Array { item, at } => {
                self.array(*item, at, level)?;
                Some(SchemaValue::Other("an array"))
            }
            Kind::Map { value, at } => {
                self.map(*value, at, level)?;
                Some(SchemaValue::Other("a map"))
            }
            Kind::Record(members) => {
                self.enter(level)?;
                for member in members {
                    self.value(*member, level + 1)?;
                }
                Some(SchemaValue::Other("a record"))
            }
        };
        for field in &node.fields {
            self.found[*field as usize] = value.clone();
        }
        Ok(())
    }

    fn enter(&self, level: usize) -> Result<(), Misfit> {
        if level > MAX_DEPTH { Err(self.misfit("it is nested deeper than 64 levels")) } else { Ok(()) }
    }

    fn array(&mut self, item: usize, at: &'p [(u64, usize)], level: usize) -> Result<(), Misfit> {
        self.enter(level)?;
        let mut number = 0;
        while let Some(count) = self.block(at.is_empty())? {
            for _ in 0..count {
                let node = at.iter().find_map(|(wanted, node)| (*wanted == number).then_some(*node));
                self.value(node.unwrap_or(item), level + 1)?;
                number += 1;
            }
        }
        Ok(())
    }

    fn map(&mut self, value: usize, at: &'p [(Box<str>, usize)], level: usize) -> Result<(), Misfit> {
        self.enter(level)?;
        while let Some(count) = self.block(at.is_empty())? {
            for _ in 0..count {
                let key = self.sized()?;
                let node = at.iter().find_map(|(wanted, node)| (wanted.as_bytes() == key).then_some(*node));
                self.value(node.unwrap_or(value), level + 1)?;
            }
        }
        Ok(())
    }

    /// How many items the next block has; `None` behind the last one. Blocks that say how long they are are passed over where
    /// nothing in them is read: then they count as empty.
    fn block(&mut self, may_skip: bool) -> Result<Option<u64>, Misfit> {
        self.steps = self.steps.checked_sub(1).ok_or_else(|| self.misfit("it has too many blocks"))?;
        let count = self.whole()?;
        if count < 0 {
            let bytes = usize::try_from(self.whole()?).map_err(|_| self.misfit("a block has a negative size"))?;
            if may_skip {
                self.cursor.take(bytes)?;
                return Ok(Some(0));
            }
        }
        Ok((count != 0).then_some(count.unsigned_abs()))
    }

    /// An `int` or a `long`.
    fn whole(&mut self) -> Result<i64, Misfit> {
        Ok(zigzag(self.cursor.varint()?))
    }

    fn sized(&mut self) -> Result<&'a [u8], Misfit> {
        let size = usize::try_from(self.whole()?).map_err(|_| self.misfit("a length is negative"))?;
        self.cursor.take(size)
    }

    fn text(&self, bytes: &'a [u8]) -> Result<&'a str, Misfit> {
        std::str::from_utf8(bytes).map_err(|_| self.misfit("a string is not UTF-8"))
    }
}

impl Meaning {
    fn value(self, number: i64) -> SchemaValue<'static> {
        match self {
            Self::Number => SchemaValue::Integer(number.into()),
            Self::Micros => SchemaValue::Integer(number.div_euclid(1_000).into()),
            Self::Nanos => SchemaValue::Integer(number.div_euclid(1_000_000).into()),
            Self::Other(what) => SchemaValue::Other(what),
        }
    }
}

fn uuid(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
