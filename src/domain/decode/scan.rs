//! Passes over JSON in one go: keeps to the grammar, to the levels allowed and to strings that are Unicode.
//!
//! It says that something is wrong and not what: nearly no value is, and [`super::json::refusal`] looks at those again.

use std::borrow::Cow;

use super::{
    super::{intent::MAX_DEPTH, json::plain_bytes},
    json::JsonKind,
};

/// That a text is not JSON, or nested too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// Whether a string has escapes in it, and so is not what it says as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    None,
    Some,
}

/// A value, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: JsonKind,
    pub(super) escapes: Escapes,
    /// Its first byte; of a string, the one behind the quote.
    start: usize,
    /// The byte behind it; of a string, the quote.
    end: usize,
}

impl Piece {
    /// The value in the text that was scanned; of a string, what is between the quotes.
    pub(super) fn of<'a>(&self, text: &'a str) -> &'a str {
        &text[self.start..self.end]
    }

    /// The text of a string; `None` where its escapes make none, which a scan lets not pass.
    pub(super) fn unescaped<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match self.escapes {
            Escapes::None => Some(self.of(text).into()),
            Escapes::Some => serde_json::from_str(&text[self.start - 1..=self.end]).ok().map(Cow::Owned),
        }
    }
}

/// A place in a text.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0 }
    }

    /// The next byte that is no white space, to be read next; `None` at the end.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Refuses anything behind the value.
    pub(super) fn end(&mut self) -> Result<(), Refused> {
        if self.next().is_none() { Ok(()) } else { Err(Refused) }
    }

    /// Enters the object or array that begins here, which is on this level, 1 for the outermost; whether there is
    /// anything before the bracket that closes it.
    pub(super) fn enter(&mut self, level: usize, close: u8) -> Result<bool, Refused> {
        if level > MAX_DEPTH {
            return Err(Refused);
        }
        self.at += 1;
        let empty = self.next() == Some(close);
        self.at += usize::from(empty);
        Ok(!empty)
    }

    /// Whether another member or element follows, or the bracket that closes.
    #[inline(always)]
    pub(super) fn more(&mut self, close: u8) -> Result<bool, Refused> {
        let byte = self.next();
        self.at += 1;
        match byte {
            Some(b',') => Ok(true),
            Some(byte) if byte == close => Ok(false),
            Some(_) | None => Err(Refused),
        }
    }

    /// Passes over a member's name and the colon behind it if they are these bytes.
    #[inline(always)]
    pub(super) fn skip_name(&mut self, name: &[u8]) -> bool {
        let is = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(name));
        self.at += if is { name.len() } else { 0 };
        is
    }

    /// The name of a member and the colon behind it.
    #[inline(always)]
    pub(super) fn name(&mut self) -> Result<Piece, Refused> {
        if self.next() != Some(b'"') {
            return Err(Refused);
        }
        let name = self.string()?;
        if self.next() != Some(b':') {
            return Err(Refused);
        }
        self.at += 1;
        Ok(name)
    }

    /// The value that begins here, inside of so many objects and arrays.
    #[inline(always)]
    pub(super) fn value(&mut self, level: usize) -> Result<Piece, Refused> {
        match self.next() {
            Some(b'"') => self.string(),
            Some(first) => self.other(first, level),
            None => Err(Refused),
        }
    }

    /// A value that is no string and begins with this byte.
    fn other(&mut self, first: u8, level: usize) -> Result<Piece, Refused> {
        let start = self.at;
        let kind = match first {
            b'{' => self.object(level + 1).map(|()| JsonKind::Object),
            b'[' => self.array(level + 1).map(|()| JsonKind::Array),
            b't' => self.literal("true").map(|()| JsonKind::Boolean),
            b'f' => self.literal("false").map(|()| JsonKind::Boolean),
            b'n' => self.literal("null").map(|()| JsonKind::Null),
            _ => self.number().map(|()| JsonKind::Number),
        }?;
        Ok(self.since(start, kind))
    }

    /// What was read since a place, as a piece without escapes.
    pub(super) fn since(&self, start: usize, kind: JsonKind) -> Piece {
        Piece { kind, escapes: Escapes::None, start, end: self.at }
    }

    /// A piece, as it stands.
    #[inline(always)]
    pub(super) fn bytes_of(&self, piece: &Piece) -> &'a [u8] {
        &self.bytes[piece.start..piece.end]
    }

    /// How many bytes have been read.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    fn object(&mut self, level: usize) -> Result<(), Refused> {
        let mut more = self.enter(level, b'}')?;
        while more {
            self.name()?;
            self.value(level)?;
            more = self.more(b'}')?;
        }
        Ok(())
    }

    fn array(&mut self, level: usize) -> Result<(), Refused> {
        let mut more = self.enter(level, b']')?;
        while more {
            self.value(level)?;
            more = self.more(b']')?;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<(), Refused> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(Refused);
        }
        self.at += word.len();
        Ok(())
    }

    /// A number of any size: a minus, an integer without leading zeros, a fraction, an exponent.
    fn number(&mut self) -> Result<(), Refused> {
        self.skip(b"-");
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(_) | None => self.digits()?,
        }
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), Refused> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(Refused) }
    }

    /// Passes over one byte if it is one of these.
    fn skip(&mut self, any: &[u8]) -> bool {
        let is = self.bytes.get(self.at).is_some_and(|byte| any.contains(byte));
        self.at += usize::from(is);
        is
    }

    /// The string that begins here.
    #[inline(always)]
    fn string(&mut self) -> Result<Piece, Refused> {
        let start = self.at + 1;
        let (mut at, mut escapes) = (start, Escapes::None);
        loop {
            at += plain_bytes(self.bytes.get(at..).unwrap_or_default());
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => (at, escapes) = (self.escape(at)?, Escapes::Some),
                Some(_) | None => return Err(Refused),
            }
        }
        self.at = at + 1;
        Ok(Piece { kind: JsonKind::String, escapes, start, end: at })
    }

    /// The place behind the escape at `at`. Half a surrogate pair is none.
    fn escape(&self, at: usize) -> Result<usize, Refused> {
        if let Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') = self.bytes.get(at + 1) {
            return Ok(at + 2);
        }
        match (utf16_escape(self.bytes, at), utf16_escape(self.bytes, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
            (Some(0xD800..=0xDFFF) | None, _) => Err(Refused),
            (Some(_), _) => Ok(at + 6),
        }
    }
}

/// The number in the escape `\uXXXX` that stands at `at`, if one does.
pub(super) fn utf16_escape(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0_u16, |number, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(number << 4 | u16::try_from(digit).ok()?)
    })
}
