//! Files and standard input, of which no line or record can take more memory than its bound.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
};

use anyhow::Context;
use indicatif::ProgressBar;

use crate::cli::exit::UsageError;

/// The longest line of a file of ids, in bytes: an id with some white space around it.
const MAX_LINE_BYTES: u64 = 1024;
/// The longest record of a CSV file, in bytes: an id and a name among many other columns. A quote that is never
/// closed would otherwise make one record of the rest of the file.
const MAX_RECORD_BYTES: usize = 64 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;

/// Opens a file; `-` is standard input.
fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(path);
    let file =
        opened.map_err(|error| UsageError(format!("cannot open {}: {error}; check the path", path.display())))?;
    Ok(Box::new(file))
}

fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn in_line(name: &str, line: u64, problem: impl std::fmt::Display) -> UsageError {
    UsageError(format!("{name}:{line}: {problem}"))
}

/// An id as text. Any text can be hashed. Without this check, text in UTF-16 that has no byte order mark would be, as ids that nobody has.
pub(super) fn id_text(id: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(id).map_err(|_| format!("`{}` is not UTF-8", shown(id)))?;
    if text.contains('\0') {
        let shown = shown(id).escape_debug().to_string();
        return Err(format!("`{shown}` has a byte 0, as text in UTF-16 has; save the file as UTF-8"));
    }
    Ok(text)
}

/// The beginning of an id, for an error.
pub(super) fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(&id[..id.len().min(64)]).into_owned()
}

/// The lines of a file that have an id.
pub(super) struct Lines {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Those of this file; `progress` counts what is read.
    pub(super) fn open(path: &Path, progress: &ProgressBar) -> anyhow::Result<Self> {
        let input: Box<dyn Read> = Box::new(progress.wrap_read(open(path)?));
        let reader = BufReader::with_capacity(BUFFER_BYTES, input);
        Ok(Self { name: name_of(path), reader, line: Vec::new(), number: 0 })
    }

    /// The next line without the white space around it; blank ones and a byte order mark are left out.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            self.number += 1;
            let taken = (&mut self.reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
            let taken = taken.with_context(|| format!("cannot read {}", self.name))?;
            if taken == 0 {
                return Ok(None);
            }
            if taken as u64 == MAX_LINE_BYTES && self.line.last() != Some(&b'\n') {
                let problem = format!("a line of more than {MAX_LINE_BYTES} bytes; give one user id a line");
                return Err(self.wrong(problem).into());
            }
            if self.number == 1 && self.line.starts_with(b"\xEF\xBB\xBF") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(self.line.trim_ascii()));
            }
        }
    }

    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> UsageError {
        in_line(&self.name, self.number, problem)
    }
}

/// The records of a CSV file whose header names two columns.
pub(super) struct Records {
    name: String,
    reader: csv::Reader<Bounded>,
    left_bytes: Rc<Cell<usize>>,
    columns: [usize; 2],
    record: csv::ByteRecord,
}

impl Records {
    /// Those of this file; `progress` counts what is read.
    pub(super) fn open(path: &Path, columns: [&str; 2], progress: &ProgressBar) -> anyhow::Result<Self> {
        let left_bytes = Rc::new(Cell::new(0));
        let inner = Box::new(progress.wrap_read(open(path)?));
        let input = Bounded { inner, left_bytes: Rc::clone(&left_bytes) };
        // The header is read as a record, so that its bound is the same.
        let mut csv = csv::ReaderBuilder::new();
        let reader = csv.trim(csv::Trim::All).has_headers(false).buffer_capacity(BUFFER_BYTES).from_reader(input);
        let record = csv::ByteRecord::new();
        let mut records = Self { name: name_of(path), reader, left_bytes, columns: [0; 2], record };
        records.read()?;
        for (at, column) in columns.into_iter().enumerate() {
            let found = records.record.iter().position(|field| field == column.as_bytes());
            let missing = || in_line(&records.name, 1, format!("no column `{column}`; the header must name it"));
            records.columns[at] = found.ok_or_else(missing)?;
        }
        Ok(records)
    }

    pub(super) fn next(&mut self) -> anyhow::Result<Option<[&[u8]; 2]>> {
        if !self.read()? {
            return Ok(None);
        }
        Ok(Some(self.columns.map(|at| self.record.get(at).unwrap_or_default())))
    }

    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> UsageError {
        in_line(&self.name, self.record.position().map_or(0, csv::Position::line), problem)
    }

    fn read(&mut self) -> anyhow::Result<bool> {
        // What the reader took ahead for this record is at most its buffer.
        self.left_bytes.set(MAX_RECORD_BYTES + BUFFER_BYTES);
        let read = self.reader.read_byte_record(&mut self.record);
        let endless = matches!(&read, Err(error) if self.left_bytes.get() == 0 && error.is_io_error());
        if endless || self.record.as_slice().len() > MAX_RECORD_BYTES {
            let problem = "a record of more than 64 KiB begins here; is a quote not closed?";
            return Err(self.wrong(problem).into());
        }
        read.map_err(|error| match error.is_io_error() {
            true => anyhow::Error::from(error).context(format!("cannot read {}", self.name)),
            false => UsageError(format!("{}: {error}", self.name)).into(),
        })
    }
}

/// A reader that stops where a record has become too long.
struct Bounded {
    inner: Box<dyn Read>,
    left_bytes: Rc<Cell<usize>>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left_bytes.get());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record is too long"));
        }
        let taken = self.inner.read(&mut buffer[..most])?;
        self.left_bytes.set(self.left_bytes.get() - taken);
        Ok(taken)
    }
}
