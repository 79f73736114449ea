//! Protobuf's encoding, field by field.

use weir_core::intent::MAX_DEPTH;

use crate::cursor::{Cursor, Misfit};

/// What stands behind a field's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    /// A string, bytes, a message or a packed list.
    Sized(&'a [u8]),
    /// A group, which is passed over.
    Group,
}

impl<'a> Cursor<'a> {
    /// The next field, and its number; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, Misfit> {
        if self.rest().is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        if wire_type == END_GROUP {
            return Err(self.misfit("a group ends that has not begun"));
        }
        Ok(Some((number, self.raw((number, wire_type), 1)?)))
    }

    fn tag(&mut self) -> Result<(u32, u8), Misfit> {
        let tag = u32::try_from(self.varint()?).map_err(|_| self.misfit("a field's number is too large"))?;
        match tag >> 3 {
            0 => Err(self.misfit("a field's number is 0")),
            number => Ok((number, (tag & 7) as u8)),
        }
    }

    fn raw(&mut self, (number, wire_type): (u32, u8), level: usize) -> Result<Raw<'a>, Misfit> {
        Ok(match wire_type {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(self.take_chunk()?),
            2 => {
                let size = usize::try_from(self.varint()?).map_err(|_| self.misfit("a length is too large"))?;
                Raw::Sized(self.take(size)?)
            }
            3 => {
                self.pass_group(number, level)?;
                Raw::Group
            }
            5 => Raw::Fixed32(self.take_chunk()?),
            _ => return Err(self.misfit("a field has no known wire type")),
        })
    }

    fn pass_group(&mut self, number: u32, level: usize) -> Result<(), Misfit> {
        if level > MAX_DEPTH {
            return Err(self.misfit("it is nested deeper than 64 levels"));
        }
        loop {
            match self.tag()? {
                (end, END_GROUP) if end == number => return Ok(()),
                (_, END_GROUP) => return Err(self.misfit("a group ends that has not begun")),
                tag => drop(self.raw(tag, level + 1)?),
            }
        }
    }

    fn take_chunk<const N: usize>(&mut self) -> Result<[u8; N], Misfit> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.misfit("it ends too early"))
    }
}

const END_GROUP: u8 = 4;
