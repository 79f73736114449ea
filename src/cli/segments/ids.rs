//! Reads user ids from files, in bounded memory apart from what is made of them.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use anyhow::Context;
use indicatif::ProgressBar;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::InvalidInput;
use crate::domain::segment::{MAX_SEGMENTS, Members, UserIdKind, UserIds};

/// The longest user id, in bytes, as in an intent.
const MAX_USER_ID_BYTES: usize = 256;
/// The longest line of a file: an id with some white space around it.
const MAX_LINE_BYTES: u64 = 1024;
/// How much of a file is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A segment whose members are still being gathered.
#[derive(Debug)]
enum Gathering {
    U32(RoaringBitmap),
    U64(RoaringTreemap),
    Hash64(Vec<u64>),
}

/// Segments whose members are still being gathered, in the order in which they were named.
#[derive(Debug)]
pub(super) struct Gatherer {
    ids: UserIds,
    segments: Vec<(String, Gathering)>,
    places: HashMap<String, usize>,
}

impl Gatherer {
    pub(super) fn new(ids: UserIds) -> Self {
        Self { ids, segments: Vec::new(), places: HashMap::new() }
    }

    /// The place of the segment of this name, which is a new one if there is none yet.
    pub(super) fn segment(&mut self, name: &str) -> Result<usize, InvalidInput> {
        if let Some(&at) = self.places.get(name) {
            return Ok(at);
        }
        if self.segments.len() == MAX_SEGMENTS {
            return Err(InvalidInput(format!(
                "segment `{name}` is one too many: a set has at most {MAX_SEGMENTS}; is this column really the segment?"
            )));
        }
        let gathering = match self.ids.kind() {
            UserIdKind::U32 => Gathering::U32(RoaringBitmap::new()),
            UserIdKind::U64 => Gathering::U64(RoaringTreemap::new()),
            UserIdKind::Hash64 => Gathering::Hash64(Vec::new()),
        };
        self.segments.push((name.to_owned(), gathering));
        self.places.insert(name.to_owned(), self.segments.len() - 1);
        Ok(self.segments.len() - 1)
    }

    /// Puts a user into the segment at this place; tells what is wrong with an id that cannot be in one.
    fn put(&mut self, segment: usize, user_id: &[u8]) -> Result<(), String> {
        let shown = || String::from_utf8_lossy(&user_id[..user_id.len().min(64)]).into_owned();
        let text = std::str::from_utf8(user_id).map_err(|_| format!("`{}` is not UTF-8", shown()))?;
        if text.is_empty() || text.len() > MAX_USER_ID_BYTES {
            return Err(format!("an id of {} bytes; ids have 1 to {MAX_USER_ID_BYTES}", text.len()));
        }
        let kind = self.ids.kind();
        let number = self.ids.number(text).ok_or_else(|| {
            format!("`{}` is not a {kind} id (digits, no leading zero or sign, in range); see --user-id", shown())
        })?;
        match &mut self.segments[segment].1 {
            Gathering::U32(ids) => {
                let id = u32::try_from(number).map_err(|_| format!("`{}` is not below 2^32", shown()))?;
                ids.insert(id);
            }
            Gathering::U64(ids) => {
                ids.insert(number);
            }
            Gathering::Hash64(hashes) => hashes.push(number),
        }
        Ok(())
    }

    /// Reads a file of ids, one a line, into a segment.
    pub(super) fn lines(&mut self, segment: usize, path: &Path, progress: &ProgressBar) -> anyhow::Result<()> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, progress.wrap_read(open(path)?));
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let taken = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let taken = taken.with_context(|| format!("cannot read {}", path.display()))?;
            if taken == 0 {
                break;
            }
            let wrong = |problem| InvalidInput(format!("{}:{number}: {problem}", path.display()));
            if taken as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
                return Err(
                    wrong(format!("a line of more than {MAX_LINE_BYTES} bytes; give one user id a line")).into()
                );
            }
            let id = line.strip_prefix(b"\xEF\xBB\xBF").filter(|_| number == 1).unwrap_or(&line).trim_ascii();
            if !id.is_empty() {
                self.put(segment, id).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Reads a CSV file with the columns `user_id` and `segment`, among others.
    pub(super) fn csv(&mut self, path: &Path, progress: &ProgressBar) -> anyhow::Result<()> {
        let input = BufReader::with_capacity(BUFFER_BYTES, progress.wrap_read(open(path)?));
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let broken = |error: csv::Error| match error.is_io_error() {
            true => anyhow::Error::from(error).context(format!("cannot read {}", path.display())),
            false => InvalidInput(format!("{}: {error}", path.display())).into(),
        };
        let header = reader.byte_headers().map_err(broken)?.clone();
        let column = |name: &str| {
            header.iter().position(|field| field == name.as_bytes()).ok_or_else(|| {
                InvalidInput(format!("{}:1: no column `{name}`; the header must name it", path.display()))
            })
        };
        let (user_id, segment) = (column("user_id")?, column("segment")?);
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(broken)? {
            let line = record.position().map_or(0, csv::Position::line);
            let wrong = |problem| InvalidInput(format!("{}:{line}: {problem}", path.display()));
            let name = record.get(segment).unwrap_or_default();
            let name = std::str::from_utf8(name).map_err(|_| wrong("the segment is not UTF-8".to_owned()))?;
            if name.is_empty() {
                return Err(wrong("no segment; give each user one".to_owned()).into());
            }
            let place = self.segment(name).map_err(|error| wrong(error.to_string()))?;
            self.put(place, record.get(user_id).unwrap_or_default()).map_err(wrong)?;
        }
        Ok(())
    }

    /// The segments with their members, made small.
    pub(super) fn finish(self) -> Vec<(String, Members)> {
        let finish = |gathering| match gathering {
            Gathering::U32(mut ids) => {
                ids.optimize();
                Members::U32(ids)
            }
            Gathering::U64(mut ids) => {
                ids.optimize();
                Members::U64(ids)
            }
            Gathering::Hash64(mut hashes) => {
                hashes.sort_unstable();
                hashes.dedup();
                Members::Hash64(hashes.into_boxed_slice())
            }
        };
        self.segments.into_iter().map(|(name, gathering)| (name, finish(gathering))).collect()
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(path);
    let file =
        opened.map_err(|error| InvalidInput(format!("cannot open {}: {error}; check the path", path.display())))?;
    Ok(Box::new(file))
}
