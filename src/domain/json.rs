//! JSON that is written piece by piece, where serde would cost too much: the bytes are those that serde_json writes. And
//! what reading and writing have in common.

use super::time::Time;

/// JSON so far. Each call adds to it.
#[derive(Debug, Default)]
pub(super) struct Json(pub(super) Vec<u8>);

impl Json {
    /// Adds text as it stands.
    pub(super) fn raw(&mut self, json: &str) -> &mut Self {
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    /// Adds a string.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        if plain_until(text.as_bytes(), 0) < text.len() {
            serde_json::to_writer(&mut self.0, text).expect("memory takes every write");
            return self;
        }
        self.0.reserve(text.len() + 2);
        self.0.push(b'"');
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
        self
    }

    /// Adds a string, or null for none.
    pub(super) fn text_or_null(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }

    /// Adds a time as it is shown, or null for none.
    pub(super) fn time_or_null(&mut self, time: Option<Time>) -> &mut Self {
        let Some(time) = time else { return self.raw("null") };
        self.0.push(b'"');
        self.0.extend_from_slice(&time.rfc3339());
        self.0.push(b'"');
        self
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }
}

/// The place of the first byte from `at` on that means something in a string: a quote, a backslash, or a control
/// character, which may not stand there; the text's end where none does. Looks at eight bytes at a time.
#[inline(always)]
pub(super) fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = ONES << 7;
    // The highest bit of each byte that is below `bound`; beyond the first one there may be bytes that are not.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let equal = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*eight);
        let found = (equal(word, b'"') | equal(word, b'\\') | below(word, b' ')) & HIGHEST;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let means_something = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(means_something).map_or(bytes.len(), |step| at + step)
}
