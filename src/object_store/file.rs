//! Files as objects.

use std::{
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use super::{Location, MAX_PUT_BYTES, ObjectBody, ObjectError, ObjectProblem, Upload, Version, body::Pieces};

/// What tells one state of a file from another: a writer may replace it, or write into it within one tick of the
/// clock, or give it an old time; hardly all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl FileVersion {
    /// That of the file at this path; `None` where there is none.
    pub(super) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }

    fn of(metadata: &std::fs::Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Opens a file; `None` where it is in the state `last`.
pub(super) async fn open(
    path: &Path,
    last: Option<&Version>,
    limit_bytes: u64,
) -> Result<Option<ObjectBody>, ObjectError> {
    let location = || Location::File(path.to_owned());
    let failed = |problem: ObjectProblem| ObjectError::read(location(), problem);
    let seen = tokio::fs::metadata(path).await.map_err(|error| failed(error.into()))?;
    if !seen.is_file() {
        // Opening a pipe would wait for somebody to write into it.
        return Err(failed(ObjectProblem::NotAFile));
    }
    if last == Some(&Version::File(FileVersion::of(&seen))) {
        return Ok(None);
    }
    let file = tokio::fs::File::open(path).await.map_err(|error| failed(error.into()))?;
    let metadata = file.metadata().await.map_err(|error| failed(error.into()))?;
    let version = Version::File(FileVersion::of(&metadata));
    ObjectBody::new(location(), Some(version), Some(metadata.len()), limit_bytes, Pieces::File(file)).map(Some)
}

pub(super) async fn put(path: &Path, upload: Upload) -> Result<(), ObjectError> {
    let target = path.to_owned();
    let written = tokio::task::spawn_blocking(move || replace(&target, upload)).await;
    let problem = match written {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(problem)) => problem,
        Err(stopped) => ObjectProblem::FileSystem(stopped.to_string()),
    };
    Err(ObjectError::write(Location::File(path.to_owned()), problem))
}

/// Writes beside the file, makes it last, and puts it in the file's place.
fn replace(path: &Path, upload: Upload) -> Result<(), ObjectProblem> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    std::fs::create_dir_all(folder)?;
    let everyone_reads = std::fs::Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(everyone_reads).tempfile_in(folder)?;
    match upload {
        Upload::Bytes(bytes) => file.write_all(&bytes)?,
        Upload::File(from) => {
            let mut from = std::fs::File::open(from)?;
            let bytes = from.metadata()?.len();
            if bytes > MAX_PUT_BYTES {
                return Err(ObjectProblem::TooLarge { bytes, limit_bytes: MAX_PUT_BYTES });
            }
            std::io::copy(&mut from, file.as_file_mut())?;
        }
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}
