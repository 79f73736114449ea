//! Objects that weir reads and writes as a whole: files, and objects of S3 or a store that speaks its protocol.
//!
//! An object is read under a limit that is checked against its declared size before any memory is taken, and read
//! again only when it has changed. Every wait has an end; the constants below say which.

mod body;
mod error;
mod file;
mod location;
mod s3;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;

pub use body::ObjectBody;
pub use error::{ObjectError, ObjectProblem};
pub use location::Location;
pub use s3::{S3Object, S3Options};

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a store may take to begin its answer to a read.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a read may take until its answer begins, all attempts together.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a body may go without giving another byte.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a request is sent at most.
pub const MAX_ATTEMPTS: u32 = 3;
/// The largest object that is written, in bytes: 4,096 of the 10,000 parts that S3 allows.
pub const MAX_PUT_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// A file above this size goes to S3 in parts, so that on a slow link a break costs one part. (S3 itself takes up to
/// 5 GiB in one request.)
pub const MULTIPART_ABOVE_BYTES: u64 = 32 * 1024 * 1024;
/// The size of a part; S3 wants 5 MiB at least.
pub const PART_BYTES: u64 = 16 * 1024 * 1024;
/// How many parts are on their way at once.
pub const PARTS_AT_ONCE: usize = 4;

/// The state of an object that a read gave: as long as it is the same, so is the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    ETag(String),
    File(file::FileVersion),
}

#[derive(Debug, Clone)]
pub enum Upload {
    Bytes(Bytes),
    File(PathBuf),
}

/// One object, with all that is needed to reach it.
#[derive(Debug, Clone)]
pub enum StoredObject {
    File(PathBuf),
    S3(S3Object),
}

impl StoredObject {
    /// The object at this location. Nothing is asked of the store yet, but the AWS default chain may be gone
    /// through to find a region.
    pub async fn connect(location: &Location, options: &S3Options) -> Self {
        match location {
            Location::File(path) => Self::File(path.clone()),
            Location::S3 { bucket, key } => Self::S3(S3Object::connect(bucket, key, options).await),
        }
    }

    pub fn location(&self) -> Location {
        match self {
            Self::File(path) => Location::File(path.clone()),
            Self::S3(object) => object.location(),
        }
    }

    /// The object of this relative path from the same folder, over the same connection.
    pub fn beside(&self, relative: &str) -> Self {
        match self {
            Self::File(path) => Self::File(path.parent().unwrap_or(Path::new("")).join(relative)),
            Self::S3(object) => Self::S3(object.beside(relative)),
        }
    }

    /// Opens it; `None` where it is in the state `last`.
    pub async fn open(&self, last: Option<&Version>, limit_bytes: u64) -> Result<Option<ObjectBody>, ObjectError> {
        match self {
            Self::File(path) => file::open(path, last, limit_bytes).await,
            Self::S3(object) => object.open(last, limit_bytes).await,
        }
    }

    /// Reads it, and its state, if the store tells; `None` where it is in the state `last`: nothing is read.
    pub async fn get_if_changed(
        &self,
        last: Option<&Version>,
        limit_bytes: u64,
    ) -> Result<Option<(Bytes, Option<Version>)>, ObjectError> {
        let Some(mut body) = self.open(last, limit_bytes).await? else { return Ok(None) };
        let version = body.version.take();
        Ok(Some((body.collect().await?, version)))
    }

    /// Writes it; a reader sees either what was there before or all of the new content.
    pub async fn put(&self, upload: Upload) -> Result<(), ObjectError> {
        match self {
            Self::File(path) => file::put(path, upload).await,
            Self::S3(object) => object.put(upload).await,
        }
    }
}
