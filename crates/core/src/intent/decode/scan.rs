//! Passes over JSON in one go: keeps to the grammar, to the levels allowed and to strings that are Unicode.
//!
//! Of what is wrong it tells what a parser would let pass: nearly no value is, and [`super::json::refusal`] looks at the others again.

use std::borrow::Cow;

use super::super::fields::trie::QuotedName;
use super::json::JsonKind;
use crate::{
    basis::json::{BLOCK, leading_digits, marks},
    intent::MAX_DEPTH,
};

/// That a text is not JSON, or nested too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// What is wrong that a parser would let pass, and the byte that it begins at, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanProblem {
    /// A level too many.
    TooDeep(usize),
    /// An escape of half a surrogate pair.
    HalfPair(usize),
}

/// What a value is, as far as it is read in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceForm {
    Nothing,
    Null,
    /// A string without escapes: it says what it is as it stands.
    Text,
    /// A string with escapes.
    Escaped,
    /// A number of digits alone.
    Digits,
    /// Any other number.
    Number,
    Boolean,
    Object,
    Array,
}

/// A value, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) form: PieceForm,
    /// Its first byte; of a string, the one behind the quote. A value is far below 4 GiB.
    start: u32,
    /// The byte behind it; of a string, the quote.
    end: u32,
}

impl Piece {
    pub(super) const NOTHING: Self = Self { form: PieceForm::Nothing, start: 0, end: 0 };

    #[inline(always)]
    const fn new(form: PieceForm, start: usize, end: usize) -> Self {
        Self { form, start: start as u32, end: end as u32 }
    }

    /// Its type; that of nothing is null.
    pub(super) const fn kind(&self) -> JsonKind {
        match self.form {
            PieceForm::Nothing | PieceForm::Null => JsonKind::Null,
            PieceForm::Text | PieceForm::Escaped => JsonKind::String,
            PieceForm::Digits | PieceForm::Number => JsonKind::Number,
            PieceForm::Boolean => JsonKind::Boolean,
            PieceForm::Object => JsonKind::Object,
            PieceForm::Array => JsonKind::Array,
        }
    }

    /// The value in the text that was scanned; of a string, what is between the quotes.
    #[inline(always)]
    pub(super) fn of<'a>(&self, text: &'a str) -> &'a str {
        &text[self.start as usize..self.end as usize]
    }

    /// The text of a string; `None` where its escapes make none, which a scan lets not pass.
    pub(super) fn unescaped<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        if self.form != PieceForm::Escaped {
            return Some(self.of(text).into());
        }
        let quoted = &text[self.start as usize - 1..=self.end as usize];
        serde_json::from_str(quoted).ok().map(Cow::Owned)
    }
}

/// A place in a text.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the block begins that was looked at last; not behind the next byte that strings are read from.
    block: usize,
    /// Its bytes that do not stand in a string as they are, one bit each.
    marks: u64,
    /// Why it has refused, where a parser would not.
    pub(super) problem: Option<ScanProblem>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let (block, marks) = block_at(text.as_bytes(), 0);
        Self { bytes: text.as_bytes(), at: 0, block, marks, problem: None }
    }

    /// The next byte that is no white space, to be read next; `None` at the end.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
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
            return Err(self.refuse(ScanProblem::TooDeep(self.at)));
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

    /// Passes over a member's name and the colon behind it if they stand here as nearly all write them.
    #[inline(always)]
    pub(super) fn skip_name(&mut self, member: &QuotedName) -> bool {
        let is = self.bytes.get(self.at..).is_some_and(|rest| member.begins(rest));
        self.at += if is { member.len() } else { 0 };
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
    #[inline(never)]
    fn other(&mut self, first: u8, level: usize) -> Result<Piece, Refused> {
        let start = self.at;
        let form = match first {
            b'{' => self.object(level + 1).map(|()| PieceForm::Object),
            b'[' => self.array(level + 1).map(|()| PieceForm::Array),
            b't' => self.literal("true").map(|()| PieceForm::Boolean),
            b'f' => self.literal("false").map(|()| PieceForm::Boolean),
            b'n' => self.literal("null").map(|()| PieceForm::Null),
            _ => self.number(),
        }?;
        Ok(self.since(start, form))
    }

    /// What was read since a place.
    pub(super) fn since(&self, start: usize, form: PieceForm) -> Piece {
        Piece::new(form, start, self.at)
    }

    #[inline(always)]
    pub(super) fn bytes_of(&self, piece: &Piece) -> &'a [u8] {
        &self.bytes[piece.start as usize..piece.end as usize]
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
    fn number(&mut self) -> Result<PieceForm, Refused> {
        let start = self.at;
        self.skip(b"-");
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(_) | None => self.digits()?,
        }
        if let Some(b'.' | b'e' | b'E') = self.bytes.get(self.at) {
            self.fraction_and_exponent()?;
            return Ok(PieceForm::Number);
        }
        Ok(if self.bytes.get(start) == Some(&b'-') { PieceForm::Number } else { PieceForm::Digits })
    }

    fn fraction_and_exponent(&mut self) -> Result<(), Refused> {
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
    #[inline(always)]
    fn digits(&mut self) -> Result<(), Refused> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digits = match rest.first_chunk() {
            Some(vector) => leading_digits(vector),
            None => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        };
        if digits == 0 {
            return Err(Refused);
        }
        self.at += digits;
        if digits == 16 {
            self.more_digits()
        }
        Ok(())
    }

    #[inline(never)]
    fn more_digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// Passes over one byte if it is one of these.
    fn skip(&mut self, any: &[u8]) -> bool {
        let is = self.bytes.get(self.at).is_some_and(|byte| any.contains(byte));
        self.at += usize::from(is);
        is
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Piece, Refused> {
        let start = self.at + 1;
        let end = self.mark(start);
        if self.bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Piece::new(PieceForm::Text, start, end));
        }
        self.string_with_escapes(start, end)
    }

    /// The string from `start` on, whose first byte that does not stand as it is, is at `at` and no quote.
    #[inline(never)]
    fn string_with_escapes(&mut self, start: usize, mut at: usize) -> Result<Piece, Refused> {
        loop {
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at = self.escape(at)?,
                Some(_) | None => return Err(Refused),
            }
            at = self.mark(at);
        }
        self.at = at + 1;
        Ok(Piece::new(PieceForm::Escaped, start, at))
    }

    /// The first byte from `at` on that does not stand in a string as it is, or a place behind the text.
    #[inline(always)]
    fn mark(&mut self, at: usize) -> usize {
        match self.marks.checked_shr((at - self.block) as u32) {
            Some(ahead) if ahead != 0 => at + ahead.trailing_zeros() as usize,
            Some(_) | None => self.next_mark(at),
        }
    }

    /// The same, where nothing more is marked in the block that was looked at last.
    #[inline(never)]
    fn next_mark(&mut self, at: usize) -> usize {
        let mut from = at.max(self.block + BLOCK);
        while from < self.bytes.len() {
            (self.block, self.marks) = block_at(self.bytes, from);
            let ahead = self.marks >> (from - self.block);
            if ahead != 0 {
                return from + ahead.trailing_zeros() as usize;
            }
            from += BLOCK;
        }
        self.bytes.len()
    }

    #[cold]
    fn refuse(&mut self, problem: ScanProblem) -> Refused {
        self.problem = Some(problem);
        Refused
    }

    /// The place behind the escape at `at`. Half a surrogate pair is none.
    fn escape(&mut self, at: usize) -> Result<usize, Refused> {
        if let Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') = self.bytes.get(at + 1) {
            return Ok(at + 2);
        }
        match (utf16_escape(self.bytes, at), utf16_escape(self.bytes, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
            (Some(0xD800..=0xDFFF), _) => Err(self.refuse(ScanProblem::HalfPair(at))),
            (None, _) => Err(Refused),
            (Some(_), _) => Ok(at + 6),
        }
    }
}

/// A block of a text that holds the byte at `from` (which is there, but for an empty text), as late as there is one: where
/// it begins, and its marks.
#[inline(always)]
fn block_at(bytes: &[u8], from: usize) -> (usize, u64) {
    match (bytes[from..].first_chunk(), bytes.last_chunk::<BLOCK>()) {
        (Some(block), _) => (from, marks(block)),
        (None, Some(end)) => (bytes.len() - BLOCK, marks(end)),
        (None, None) => {
            let mut block = [0; BLOCK];
            block[..bytes.len()].copy_from_slice(bytes);
            (0, marks(&block))
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
