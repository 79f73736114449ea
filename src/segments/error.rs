//! Why a set was refused.

use weir_core::segment::{ManifestError, Sha256, format::FormatError};

use crate::object_store::{Location, ObjectError};

#[derive(Debug, Clone, thiserror::Error)]
pub enum SegmentsError {
    #[error("segments: {0}")]
    Object(ObjectError),
    #[error("segments: manifest {location}: {problem}")]
    Manifest { location: Location, problem: ManifestError },
    #[error(
        "segments: object {location} of segment `{segment}` {problem}; the set `{version}` is refused; build it again"
    )]
    Segment { segment: String, version: String, location: Location, problem: Box<SegmentProblem> },
}

impl From<ObjectError> for SegmentsError {
    /// Not by `#[from]`: the message has all of the object's error already, and a chain would tell it twice.
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

/// How an object differs from what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentProblem {
    #[error("has {found} bytes, the manifest says {declared}")]
    Size { found: u64, declared: u64 },
    #[error("has SHA-256 {found}, the manifest says {declared}")]
    Checksum { found: Sha256, declared: Sha256 },
    #[error("{0}")]
    Format(FormatError),
    #[error("has {found} users, the manifest says {declared}")]
    Cardinality { found: u64, declared: u64 },
    /// The parser stopped, which it should not.
    #[error("could not be parsed: {0}")]
    Stopped(String),
}
