//! A place in the bytes of a value, what Avro and Protobuf write alike (whole numbers), and that a value does not fit its schema.

use weir_core::{
    intent::dead_letter::{DeadLetter, DeadLetterReason::NotDecodable},
    ports::SchemaId,
};

/// What is wrong with a value, and at which of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// From 0, behind the frame.
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

impl Misfit {
    /// The dead letter of a value of this schema whose content has so many bytes.
    pub(crate) fn letter(self, id: SchemaId, bytes: usize) -> DeadLetter {
        let Self { at, what } = self;
        DeadLetter::new(
            NotDecodable,
            format!("the value does not fit schema {id}: {what}, at byte {at} of {bytes} behind the frame"),
        )
    }
}

/// The bytes of a value, read from the first one on.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) const fn misfit(&self, what: &'static str) -> Misfit {
        Misfit { at: self.at, what }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn take(&mut self, size: usize) -> Result<&'a [u8], Misfit> {
        let end = self.at.checked_add(size).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.misfit("it ends too early"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A whole number: seven bits to a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<u64, Misfit> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.misfit("an integer has more than 64 bits"))
    }
}

/// A number that is written so that small negative ones are short.
pub(crate) const fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
