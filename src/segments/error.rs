//! Why a set was refused.

use weir_core::segment::{ManifestError, Sha256, format::FormatError};

use crate::object_store::{Location, ObjectError};

/// Why a set was refused, as a whole.
#[derive(Debug, Clone, thiserror::Error)]
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

impl SegmentsError {
    /// Whether it may be gone in a moment, with nobody changing anything.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Object(error) => error.problem.is_temporary(),
            Self::Manifest { .. } | Self::Segment { .. } => false,
        }
    }
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
