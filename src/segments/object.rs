//! Reading one object of a set: parsed while it comes, and checked against what the manifest says of it.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use sha2::Digest;
use tokio::sync::mpsc;
use weir_core::segment::{
    ManifestSegment, Members, Sha256, UserIdKind,
    format::{FormatError, read_members},
};

use super::SegmentProblem;
use crate::object_store::{ObjectBody, ObjectError, ObjectProblem, StoredObject, Version};

/// How many pieces of an object may wait to be parsed; with pieces of at most 2 MiB, this bounds what a fast
/// store makes us hold.
const WAITING_PIECES: usize = 8;

pub(super) enum Loaded {
    Good(Members),
    /// Something else; the state in which it was, where the store tells.
    Bad(SegmentProblem, Option<Version>),
    /// Still in the state asked about; nothing was read.
    Unchanged,
}

/// Reads an object, unless it is in the state `last`.
pub(super) async fn load_object(
    object: &StoredObject,
    kind: UserIdKind,
    entry: &ManifestSegment,
    last: Option<&Version>,
) -> Result<Loaded, ObjectError> {
    // One byte more than declared is enough to know that there are too many.
    let body = match object.open(last, entry.bytes.saturating_add(1)).await {
        Ok(Some(body)) => body,
        Ok(None) => return Ok(Loaded::Unchanged),
        Err(error) => return oversized(error, entry.bytes, None),
    };
    let version = body.version.clone();
    if let Some(found) = body.declared_bytes.filter(|&found| found != entry.bytes) {
        return Ok(Loaded::Bad(SegmentProblem::Size { found, declared: entry.bytes }, version));
    }
    match parse_while_reading(body, kind).await {
        Ok(Ok((members, taken))) => Ok(match check_object(members, taken, entry) {
            Ok(members) => Loaded::Good(members),
            Err(problem) => Loaded::Bad(problem, version),
        }),
        Ok(Err(stopped)) => Ok(Loaded::Bad(stopped, None)),
        Err(error) => oversized(error, entry.bytes, version),
    }
}

/// An object over the limit is one of another size than the manifest says; other errors are what they are.
fn oversized(error: ObjectError, declared: u64, version: Option<Version>) -> Result<Loaded, ObjectError> {
    if let ObjectProblem::TooLarge { bytes: found, .. } = error.problem {
        return Ok(Loaded::Bad(SegmentProblem::Size { found, declared }, version));
    }
    Err(error)
}

/// A reader over pieces that another task sends, counting and hashing all of them. It blocks, so it belongs on a thread that may.
struct TakingReader {
    waiting: mpsc::Receiver<Bytes>,
    piece: Bytes,
    bytes: u64,
    hasher: sha2::Sha256,
}

impl TakingReader {
    /// Takes what is left, read or not, and tells how many bytes and which checksum all of it had.
    fn finish(mut self) -> (u64, Sha256) {
        while self.next_piece() {}
        (self.bytes, Sha256(self.hasher.finalize().into()))
    }

    fn next_piece(&mut self) -> bool {
        let Some(piece) = self.waiting.blocking_recv() else { return false };
        self.bytes += piece.len() as u64;
        self.hasher.update(&piece);
        self.piece = piece;
        true
    }
}

impl Read for TakingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            if !self.next_piece() {
                return Ok(0);
            }
        }
        let taken = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}

type Parsed = Result<(Result<Members, FormatError>, (u64, Sha256)), SegmentProblem>;

/// Parses an object on a thread that may block while its pieces come, so that it is never in memory as a whole.
async fn parse_while_reading(mut body: ObjectBody, kind: UserIdKind) -> Result<Parsed, ObjectError> {
    let (pieces, waiting) = mpsc::channel::<Bytes>(WAITING_PIECES);
    let bytes = body.declared_bytes;
    let parsing = tokio::task::spawn_blocking(move || {
        let mut reader = TakingReader { waiting, piece: Bytes::new(), bytes: 0, hasher: sha2::Sha256::new() };
        let members = read_members(kind, bytes, &mut reader);
        (members, reader.finish())
    });
    let read = loop {
        match body.next().await {
            Ok(Some(piece)) => {
                if pieces.send(piece).await.is_err() {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(pieces);
    let parsed = parsing.await.map_err(|stopped| SegmentProblem::Stopped(stopped.to_string()));
    read.map(|()| parsed)
}

/// Size and checksum are looked at first: where they differ, what the parser said is of no use.
fn check_object(
    members: Result<Members, FormatError>,
    (bytes, sha256): (u64, Sha256),
    entry: &ManifestSegment,
) -> Result<Members, SegmentProblem> {
    if bytes != entry.bytes {
        return Err(SegmentProblem::Size { found: bytes, declared: entry.bytes });
    }
    if sha256 != entry.sha256 {
        return Err(SegmentProblem::Checksum { found: sha256, declared: entry.sha256 });
    }
    let members = members.map_err(SegmentProblem::Format)?;
    check_cardinality(&members, entry).map(|()| members)
}

pub(super) fn check_cardinality(members: &Members, entry: &ManifestSegment) -> Result<(), SegmentProblem> {
    if members.len() == entry.cardinality {
        return Ok(());
    }
    Err(SegmentProblem::Cardinality { found: members.len(), declared: entry.cardinality })
}
