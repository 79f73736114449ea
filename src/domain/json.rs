//! JSON that is written piece by piece, where serde would cost too much: the bytes are those that serde_json writes. And
//! what reading and writing have in common.

use super::time::Time;

/// JSON so far. Each call adds to it.
#[derive(Debug, Default)]
pub(super) struct Json(pub(super) Vec<u8>);

impl Json {
    /// Adds JSON as it stands.
    pub(super) fn raw(&mut self, json: &str) -> &mut Self {
        self.bytes(json.as_bytes())
    }

    /// Adds JSON as it stands.
    #[inline]
    pub(super) fn bytes(&mut self, json: &[u8]) -> &mut Self {
        self.0.extend_from_slice(json);
        self
    }

    /// Adds a string.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
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
        self.raw("\"").bytes(&time.rfc3339()).raw("\"")
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }
}

/// How many bytes a text begins with that stand in a JSON string as they are: up to the first quote, backslash or control
/// character. Looks at eight at a time.
#[inline(always)]
pub(super) fn plain_bytes(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks();
    for (at, eight) in words.iter().enumerate() {
        let found = not_plain(*eight);
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let plain = rest.iter().position(is_not_plain).unwrap_or(rest.len());
    words.len() * 8 + plain
}

/// Whether all of a text stands in a JSON string as it is.
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks();
    // The last eight bytes are looked at together, some of them for the second time.
    let end = text.last_chunk().map_or_else(|| !rest.iter().any(is_not_plain), |end| not_plain(*end) == 0);
    end && words.iter().all(|eight| not_plain(*eight) == 0)
}

/// Whether a byte means something in a JSON string, or may not stand there.
const fn is_not_plain(byte: &u8) -> bool {
    matches!(*byte, b'"' | b'\\' | ..b' ')
}

/// The same of eight bytes: the highest bit of the first such byte is set, and of none before it.
#[inline(always)]
const fn not_plain(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    /// The highest bit of each byte that is below `bound`; beyond the first one there may be bytes that are not.
    const fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * bound as u64) & !word
    }
    let word = u64::from_le_bytes(bytes);
    let (quote, backslash) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    (below(quote, 1) | below(backslash, 1) | below(word, b' ')) & (ONES << 7)
}
