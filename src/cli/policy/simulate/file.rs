//! Intents from a file, one a line, in the order of their times.
//!
//! Read twice: first for the times, of which an index is kept (24 bytes an intent), then in their order. So files that
//! are not sorted (one partition behind the other, say) are replayed as they came, and memory does not grow with values.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::time::Time,
    intent::{MAX_INTENT_BYTES, decode::decode},
    replay::ReplaySource,
};

use super::{
    Input,
    args::Plan,
    past::{Batch, Past, Unwrapped, unwrap_line},
};
use crate::cli::output::progress;

/// What of a line is kept at most, in bytes: an intent of the largest size inside its envelope, and one byte more than
/// an intent may have. What is longer is counted as too large.
const MAX_LINE_BYTES: usize = 2 * MAX_INTENT_BYTES;
const BUFFER_BYTES: usize = 1024 * 1024;

/// Where an intent's line is.
#[derive(Debug, Clone, Copy)]
struct Line {
    time: Time,
    at: u64,
    bytes: u32,
}

/// Reads the times; what is no intent is counted.
pub(super) fn input(
    path: &Path,
    plan: &Plan,
    source: &mut ReplaySource,
    stop: &CancellationToken,
) -> anyhow::Result<Input> {
    let name = || format!("--intents {}: cannot be read", path.display());
    let mut reader = LineReader::open(path, stop).with_context(name)?;
    let mut lines = Vec::new();
    while let Some(line) = reader.next().with_context(name)? {
        let Unwrapped { intent, at, wrong_time, .. } = unwrap_line(line.text);
        let intent = match decode(Some(intent), [], &plan.fields) {
            Ok(intent) => intent,
            Err(letter) => {
                // Nothing says when it came, so it is counted whatever times were asked for.
                source.records += 1;
                source.dead_letter(wrong_time.unwrap_or(letter.reason));
                continue;
            }
        };
        match at.or(intent.created_at) {
            Some(time) if plan.between.covers(time) => {
                let bytes = u32::try_from(line.text.len()).unwrap_or(u32::MAX);
                lines.push(Line { time, at: line.at, bytes });
            }
            Some(_) => {}
            None => {
                source.records += 1;
                source.without_time += 1;
            }
        }
        if stop.is_cancelled() {
            break;
        }
    }
    // Stable: intents of one time stay in the order of the file.
    lines.sort_by_key(|line| line.time);
    let (first, records) = (lines.first().map(|line| line.time), lines.len() as u64);
    let (file, mut lines) = (reader.file.into_inner(), lines.into_iter());
    Ok(Input { first, records, next: Box::new(move |batch: &mut Batch| fill(&file, &mut lines, batch)) })
}

fn fill(file: &File, lines: &mut impl Iterator<Item = Line>, batch: &mut Batch) -> anyhow::Result<()> {
    batch.clear();
    while !batch.is_full()
        && let Some(Line { at, bytes, .. }) = lines.next()
    {
        let mut line = vec![0; bytes as usize];
        // At its place and unbuffered: in a file that is not sorted, the next one is anywhere.
        let read = file.read_exact_at(&mut line, at);
        read.context("--intents: cannot be read a second time; was the file changed?")?;
        let Unwrapped { intent, at: timestamp, .. } = unwrap_line(&line);
        let intent = if intent.len() == line.len() { None } else { Some(intent.to_vec()) };
        batch.taken += 1;
        batch.push(Past {
            value: Some(intent.unwrap_or(line)),
            headers: Vec::new(),
            partition: 0,
            offset: at.cast_signed(),
            timestamp,
        });
    }
    Ok(())
}

/// A line without its end, and where it begins.
pub(super) struct FoundLine<'l> {
    pub(super) at: u64,
    pub(super) text: &'l [u8],
}

/// Reads a file line by line, with a progress bar; standard input and pipes are put into a temporary file first.
pub(super) struct LineReader {
    file: BufReader<File>,
    position: u64,
    line: Vec<u8>,
    bar: ProgressBar,
}

impl LineReader {
    pub(super) fn open(path: &Path, stop: &CancellationToken) -> anyhow::Result<Self> {
        let file = if path == Path::new("-") {
            spool(&mut io::stdin().lock(), stop)?
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_file() { file } else { spool(&mut BufReader::new(file), stop)? }
        };
        let length = file.metadata()?.len();
        let bar = progress(Some(length), "reading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left");
        Ok(Self { file: BufReader::with_capacity(BUFFER_BYTES, file), position: 0, line: Vec::new(), bar })
    }

    /// The next line that is not blank; of one that is too long, its begin. A byte order mark is left out.
    pub(super) fn next(&mut self) -> io::Result<Option<FoundLine<'_>>> {
        loop {
            self.line.clear();
            let at = self.position;
            let limit = MAX_LINE_BYTES as u64;
            let read = self.file.by_ref().take(limit).read_until(b'\n', &mut self.line)? as u64;
            self.position += read;
            if read == limit && self.line.last() != Some(&b'\n') {
                self.position += self.file.skip_until(b'\n')? as u64;
            }
            self.bar.set_position(self.position);
            if read == 0 {
                self.bar.finish_and_clear();
                return Ok(None);
            }
            let mark = if at == 0 && self.line.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
            let blank = mark + self.line[mark..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if blank < self.line.len() {
                let end = self.line.trim_ascii_end().len();
                return Ok(Some(FoundLine { at: at + blank as u64, text: &self.line[blank..end] }));
            }
        }
    }
}

/// Standard input, or a pipe, as a file, which is gone when it is closed.
fn spool(input: &mut impl BufRead, stop: &CancellationToken) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile().context("cannot make a temporary file; check TMPDIR")?;
    loop {
        let piece = input.fill_buf()?;
        if piece.is_empty() || stop.is_cancelled() {
            break;
        }
        file.write_all(piece).context("cannot write a temporary file; check the space in TMPDIR")?;
        let length = piece.len();
        input.consume(length);
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
