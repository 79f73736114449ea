//! An object's content while it comes.

use aws_sdk_s3::primitives::ByteStream;
use bytes::{Bytes, BytesMut};
use tokio::{fs::File, io::AsyncReadExt, time::timeout};

use super::{Location, ObjectError, ObjectProblem, STALL_TIMEOUT, Version};

/// How much of a file is read at once, in bytes.
const FILE_CHUNK_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) enum Pieces {
    File(File),
    Http(ByteStream),
}

/// An object that is being read, piece by piece and never beyond its limit.
#[derive(Debug)]
pub struct ObjectBody {
    location: Location,
    pub(crate) version: Option<Version>,
    pub(crate) declared_bytes: Option<u64>,
    limit_bytes: u64,
    taken_bytes: u64,
    pieces: Pieces,
}

impl ObjectBody {
    /// The content of an object whose store declares this size.
    pub(super) fn new(
        location: Location,
        version: Option<Version>,
        declared_bytes: Option<u64>,
        limit_bytes: u64,
        pieces: Pieces,
    ) -> Result<Self, ObjectError> {
        match declared_bytes {
            Some(bytes) if bytes > limit_bytes => {
                Err(ObjectError::read(location, ObjectProblem::TooLarge { bytes, limit_bytes }))
            }
            Some(_) | None => Ok(Self { location, version, declared_bytes, limit_bytes, taken_bytes: 0, pieces }),
        }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        let piece = match timeout(STALL_TIMEOUT, self.pieces.next()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(message)) => return Err(self.cut(message)),
            Err(_) => return Err(self.error(ObjectProblem::Stalled { seconds: STALL_TIMEOUT.as_secs() })),
        };
        let Some(piece) = piece else {
            return match self.declared_bytes {
                Some(declared) if self.taken_bytes < declared => Err(self.cut("it ended".to_owned())),
                Some(_) | None => Ok(None),
            };
        };
        self.taken_bytes += piece.len() as u64;
        if self.taken_bytes > self.limit_bytes {
            let (bytes, limit_bytes) = (self.taken_bytes, self.limit_bytes);
            return Err(self.error(ObjectProblem::TooLarge { bytes, limit_bytes }));
        }
        Ok(Some(piece))
    }

    pub async fn collect(mut self) -> Result<Bytes, ObjectError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    fn cut(&self, message: String) -> ObjectError {
        let declared_bytes = self.declared_bytes.unwrap_or(self.limit_bytes);
        self.error(ObjectProblem::Cut { bytes: self.taken_bytes, declared_bytes, message })
    }

    fn error(&self, problem: ObjectProblem) -> ObjectError {
        ObjectError::read(self.location.clone(), problem)
    }
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::File(file) => {
                let mut piece = BytesMut::with_capacity(FILE_CHUNK_BYTES);
                let taken = file.read_buf(&mut piece).await.map_err(|error| error.to_string())?;
                Ok((taken > 0).then(|| piece.freeze()))
            }
            Self::Http(stream) => stream.try_next().await.map_err(|error| {
                use std::error::Error;
                error.source().map_or_else(|| error.to_string(), ToString::to_string)
            }),
        }
    }
}
