//! JSON that is written piece by piece, where serde would cost too much: the bytes are those that serde_json writes. And
//! what reading and writing have in common.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use wide::u8x16;

use super::time::Time;

/// JSON so far. Each call adds to it.
#[derive(Debug, Default)]
pub(crate) struct Json(pub(crate) Vec<u8>);

impl Json {
    /// Adds JSON as it stands. Most of it is known where it is written: then a few moves do for it.
    #[inline]
    pub(crate) fn raw(&mut self, json: &str) -> &mut Self {
        self.bytes(json.as_bytes())
    }

    /// Adds JSON as it stands.
    #[inline]
    pub(crate) fn bytes(&mut self, json: &[u8]) -> &mut Self {
        self.0.extend_from_slice(json);
        self
    }

    /// Adds a string.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        if !is_plain(text.as_bytes()) {
            serde_json::to_writer(&mut self.0, text).expect("memory takes every write");
            return self;
        }
        self.0.reserve(text.len() + 2);
        self.0.push(b'"');
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
        self
    }

    pub(crate) fn text_or_null(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }

    /// Adds a time as it is shown, or null for none.
    pub(crate) fn time_or_null(&mut self, time: Option<Time>) -> &mut Self {
        let Some(time) = time else { return self.raw("null") };
        self.raw("\"").bytes(&time.rfc3339()).raw("\"")
    }

    /// Adds bytes in base64, without quotes.
    pub(crate) fn base64(&mut self, bytes: &[u8]) -> &mut Self {
        self.raw(&BASE64_STANDARD.encode(bytes))
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }
}

/// Bytes that [`marks`] looks at together.
pub(crate) const BLOCK: usize = 64;

/// Which bytes mean something in a JSON string, or may not stand there: quotes, backslashes and control characters, one bit
/// each, the first byte's lowest.
#[inline(always)]
pub(crate) fn marks(block: &[u8; BLOCK]) -> u64 {
    let (vectors, _) = block.as_chunks();
    vectors.iter().rev().fold(0, |marks, vector| marks << 16 | u64::from(marks_of(*vector)))
}

/// The same of 16 bytes.
#[inline(always)]
fn marks_of(bytes: [u8; 16]) -> u32 {
    let bytes = u8x16::new(bytes);
    let quote_or_backslash = bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\'));
    let control = bytes.min(u8x16::splat(b' ' - 1)).simd_eq(bytes);
    (quote_or_backslash | control).to_bitmask()
}

/// How many of 16 bytes are digits, from the first one on.
#[inline(always)]
pub(crate) fn leading_digits(bytes: &[u8; 16]) -> usize {
    // What is below `0` wraps around to far above 9.
    let values = u8x16::new(*bytes) - u8x16::splat(b'0');
    values.min(u8x16::splat(9)).simd_eq(values).to_bitmask().trailing_ones() as usize
}

/// Whether all of a text stands in a JSON string as it is.
fn is_plain(text: &[u8]) -> bool {
    let (vectors, rest) = text.as_chunks();
    // The last sixteen bytes are looked at together, some of them for the second time.
    let end = text.last_chunk().map_or_else(|| !rest.iter().any(is_marked), |end| marks_of(*end) == 0);
    end && vectors.iter().all(|vector| marks_of(*vector) == 0)
}

/// Whether a byte means something in a JSON string, or may not stand there.
const fn is_marked(byte: &u8) -> bool {
    matches!(*byte, b'"' | b'\\' | ..b' ')
}
