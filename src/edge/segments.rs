//! Loading a set: the manifest, then each object, checked; all of it or nothing.

mod format;
mod intake;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::object_store::{Fetched, Location, ObjectBody, ObjectError, ObjectProblem, Opened, StoredObject, Version};
use crate::domain::segment::{
    MAX_MANIFEST_BYTES, Manifest, ManifestError, ManifestSegment, Members, Segment, SegmentSet, Sha256, UserIdKind,
    UserIds,
};

pub use format::{FormatError, read_members, write_members};
pub use intake::{Taken, TakingReader};

/// How many pieces of an object may wait to be parsed; with pieces of at most 2 MiB, this bounds what a fast
/// store makes us hold.
const WAITING_PIECES: usize = 8;

/// Why a set was refused, as a whole.
#[derive(Debug, thiserror::Error)]
pub enum SegmentsError {
    /// The manifest, or an object, could not be read.
    #[error("segments: {0}")]
    Object(ObjectError),
    /// The manifest is wrong.
    #[error("segments: manifest {location}: {problem}")]
    Manifest {
        /// Where the manifest is.
        location: Location,
        /// What is wrong with it.
        problem: ManifestError,
    },
    /// An object is not what the manifest says.
    #[error(
        "segments: object {location} of segment `{segment}` {problem}; the set `{version}` is refused; build it again"
    )]
    Segment {
        /// The segment.
        segment: String,
        /// The set's version.
        version: String,
        /// Where the object is.
        location: Location,
        /// What is wrong with it.
        problem: Box<SegmentProblem>,
    },
}

impl From<ObjectError> for SegmentsError {
    /// Not by `#[from]`: the message has all of the object's error already, and a chain would tell it twice.
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

/// How an object differs from what the manifest says.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentProblem {
    /// It has another size.
    #[error("has {found} bytes, the manifest says {declared}")]
    Size {
        /// The object's.
        found: u64,
        /// The manifest's.
        declared: u64,
    },
    /// It has another content.
    #[error("has SHA-256 {found}, the manifest says {declared}")]
    Checksum {
        /// The object's.
        found: Sha256,
        /// The manifest's.
        declared: Sha256,
    },
    /// It is no bitmap of the set's kind.
    #[error("{0}")]
    Format(FormatError),
    /// It has another number of users.
    #[error("has {found} users, the manifest says {declared}")]
    Cardinality {
        /// The object's.
        found: u64,
        /// The manifest's.
        declared: u64,
    },
    /// The parser stopped, which it should not.
    #[error("could not be parsed: {0}")]
    Stopped(String),
}

/// A set's manifest, and what was last read from there.
#[derive(Debug)]
pub struct SegmentSource {
    manifest: StoredObject,
    user_id_prefix: String,
    version: Option<Version>,
    set: Option<Arc<SegmentSet>>,
}

impl SegmentSource {
    /// The set of this manifest; `user_id_prefix` is taken off ids that are numbers (empty for none).
    #[must_use]
    pub fn new(manifest: StoredObject, user_id_prefix: impl Into<String>) -> Self {
        Self { manifest, user_id_prefix: user_id_prefix.into(), version: None, set: None }
    }

    /// Where the manifest is.
    #[must_use]
    pub fn location(&self) -> Location {
        self.manifest.location()
    }

    /// Reads the set if the manifest is not the one of the last set read; `None` if it is.
    ///
    /// Objects that the last set had already are not read again. After an error, the next call tries anew: a
    /// manifest that was replaced while its objects were being read is read in its new state.
    ///
    /// # Errors
    /// Something could not be read, or is not what the manifest says; nothing of the set is kept.
    pub async fn load(&mut self) -> Result<Option<Arc<SegmentSet>>, SegmentsError> {
        let (bytes, version) = match self.manifest.get_if_changed(self.version.as_ref(), MAX_MANIFEST_BYTES).await? {
            Fetched::Unchanged => return Ok(None),
            Fetched::Object { bytes, version } => (bytes, version),
        };
        let manifest = Manifest::parse(&bytes)
            .map_err(|problem| SegmentsError::Manifest { location: self.manifest.location(), problem })?;
        let mut segments = Vec::with_capacity(manifest.segments.len());
        for entry in &manifest.segments {
            let members = match self.loaded_already(&manifest, entry) {
                Some(members) => check_cardinality(&members, entry).map(|()| members),
                None => self.load_object(&manifest, entry).await?.map(Arc::new),
            };
            let members = members.map_err(|problem| self.refusal(&manifest, entry, problem))?;
            segments.push(Segment { name: entry.name.clone(), sha256: entry.sha256, bytes: entry.bytes, members });
        }
        let set = Arc::new(self.assemble(manifest, segments).await?);
        self.version = version;
        self.set = Some(Arc::clone(&set));
        Ok(Some(set))
    }

    fn loaded_already(&self, manifest: &Manifest, entry: &ManifestSegment) -> Option<Arc<Members>> {
        let set = self.set.as_ref().filter(|set| set.user_id() == manifest.user_id)?;
        let same = |segment: &&Segment| segment.sha256 == entry.sha256 && segment.bytes == entry.bytes;
        set.segments().iter().find(same).map(|segment| Arc::clone(&segment.members))
    }

    async fn load_object(
        &self,
        manifest: &Manifest,
        entry: &ManifestSegment,
    ) -> Result<Result<Members, SegmentProblem>, SegmentsError> {
        let object = self.manifest.beside(entry.object.as_str());
        // One byte more than declared is enough to know that there are too many.
        let body = match object.open(None, entry.bytes.saturating_add(1)).await {
            Ok(Opened::Body(body)) => body,
            Ok(Opened::Unchanged) => return Ok(Err(SegmentProblem::Stopped("nothing was read".to_owned()))),
            Err(error) => return oversized(error, entry.bytes),
        };
        if let Some(found) = body.declared_bytes().filter(|&found| found != entry.bytes) {
            return Ok(Err(SegmentProblem::Size { found, declared: entry.bytes }));
        }
        match parse_while_reading(*body, manifest.user_id).await {
            Ok(Ok((members, taken))) => Ok(check_object(members, &taken, entry)),
            Ok(Err(problem)) => Ok(Err(problem)),
            Err(error) => oversized(error, entry.bytes),
        }
    }

    async fn assemble(&self, manifest: Manifest, segments: Vec<Segment>) -> Result<SegmentSet, SegmentsError> {
        let ids = UserIds::new(manifest.user_id, self.user_id_prefix.as_str());
        let first = manifest.segments[0].clone();
        let version = manifest.version.clone();
        tokio::task::spawn_blocking(move || SegmentSet::new(version, ids, segments))
            .await
            .map_err(|stopped| self.refusal(&manifest, &first, SegmentProblem::Stopped(stopped.to_string())))
    }

    fn refusal(&self, manifest: &Manifest, entry: &ManifestSegment, problem: SegmentProblem) -> SegmentsError {
        SegmentsError::Segment {
            segment: entry.name.clone(),
            version: manifest.version.clone(),
            location: self.manifest.beside(entry.object.as_str()).location(),
            problem: Box::new(problem),
        }
    }
}

/// An object over the limit is one of another size than the manifest says; other errors are what they are.
fn oversized<T>(error: ObjectError, declared: u64) -> Result<Result<T, SegmentProblem>, SegmentsError> {
    if let ObjectProblem::TooLarge { bytes: found, .. } = error.problem {
        return Ok(Err(SegmentProblem::Size { found, declared }));
    }
    Err(error.into())
}

type Parsed = Result<(Result<Members, FormatError>, Taken), SegmentProblem>;

/// Parses an object on a thread that may block while its pieces come, so that it is never in memory as a whole.
async fn parse_while_reading(mut body: ObjectBody, kind: UserIdKind) -> Result<Parsed, ObjectError> {
    let (pieces, waiting) = mpsc::channel::<Bytes>(WAITING_PIECES);
    let bytes = body.declared_bytes();
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
    taken: &Taken,
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

fn check_cardinality(members: &Members, entry: &ManifestSegment) -> Result<(), SegmentProblem> {
    if members.len() == entry.cardinality {
        return Ok(());
    }
    Err(SegmentProblem::Cardinality { found: members.len(), declared: entry.cardinality })
}

impl crate::worker::refresh::Source for SegmentSource {
    type Value = SegmentSet;
    type Error = SegmentsError;

    const NAME: &'static str = "segments";

    fn version(value: &SegmentSet) -> &str {
        value.version()
    }

    async fn load(&mut self) -> Result<Option<Arc<SegmentSet>>, SegmentsError> {
        Self::load(self).await
    }
}
