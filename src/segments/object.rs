//! Reading one object of a set: parsed while it comes, and checked against what the manifest says of it.

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_core::segment::{
    ManifestSegment, Members, UserIdKind,
    format::{FormatError, read_members},
};

use super::{SegmentProblem, TakenObject, TakingReader};
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
        Ok(Ok((members, taken))) => Ok(match check_object(members, &taken, entry) {
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

type Parsed = Result<(Result<Members, FormatError>, TakenObject), SegmentProblem>;

/// Parses an object on a thread that may block while its pieces come, so that it is never in memory as a whole.
async fn parse_while_reading(mut body: ObjectBody, kind: UserIdKind) -> Result<Parsed, ObjectError> {
    let (pieces, waiting) = mpsc::channel::<Bytes>(WAITING_PIECES);
    let bytes = body.declared_bytes;
    let parsing = tokio::task::spawn_blocking(move || {
        let mut reader = TakingReader::new(waiting);
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
    taken: &TakenObject,
    entry: &ManifestSegment,
) -> Result<Members, SegmentProblem> {
    if taken.bytes != entry.bytes {
        return Err(SegmentProblem::Size { found: taken.bytes, declared: entry.bytes });
    }
    if taken.sha256 != entry.sha256 {
        return Err(SegmentProblem::Checksum { found: taken.sha256, declared: entry.sha256 });
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
