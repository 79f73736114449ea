//! Writing objects: small ones in one request, large files in parts.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use aws_config::timeout::TimeoutConfig;
use aws_sdk_s3::{
    config::Builder,
    error::DisplayErrorContext,
    primitives::{ByteStream, Length},
    types::{CompletedMultipartUpload, CompletedPart},
};
use tokio::task::JoinSet;

use super::{S3Object, problem};
use crate::object_store::{
    CONNECT_TIMEOUT, MAX_ATTEMPTS, MAX_PUT_BYTES, MULTIPART_ABOVE_BYTES, ObjectError, ObjectProblem, PART_BYTES,
    PARTS_AT_ONCE, Upload,
};

/// How long a write may take whatever its size.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The slowest link that a write puts up with, for all parts that are on their way together.
const SLOWEST_WRITE_BYTES_PER_SECOND: u64 = 256 * 1024;

impl S3Object {
    pub(in crate::object_store) async fn put(&self, upload: Upload) -> Result<(), ObjectError> {
        self.connection.can_be_asked().map_err(|problem| ObjectError::write(self.location(), problem))?;
        let written = match upload {
            Upload::Bytes(bytes) => self.put_whole(ByteStream::from(bytes.clone()), bytes.len() as u64).await,
            Upload::File(path) => self.put_file(path).await,
        };
        written.map_err(|problem| ObjectError::write(self.location(), self.naming_right(problem, "s3:PutObject")))
    }

    async fn put_file(&self, path: PathBuf) -> Result<(), ObjectProblem> {
        let bytes = tokio::fs::metadata(&path).await?.len();
        if bytes > MAX_PUT_BYTES {
            return Err(ObjectProblem::TooLarge { bytes, limit_bytes: MAX_PUT_BYTES });
        }
        if bytes > MULTIPART_ABOVE_BYTES {
            return self.put_in_parts(path, bytes).await;
        }
        self.put_whole(piece_of(&path, 0..bytes).await?, bytes).await
    }

    async fn put_whole(&self, body: ByteStream, bytes: u64) -> Result<(), ObjectProblem> {
        let request = self.connection.client().put_object().bucket(&self.bucket).key(&self.key).body(body);
        let request = request.set_request_payer(self.connection.payer());
        let request = request.customize().config_override(patience(bytes));
        request.send().await.map(|_| ()).map_err(|error| problem(&error))
    }

    /// The store shows the object once all of it is there. What a failure leaves is given up, so that nobody pays
    /// for parts of nothing.
    async fn put_in_parts(&self, path: PathBuf, bytes: u64) -> Result<(), ObjectProblem> {
        let created = self.connection.client().create_multipart_upload().bucket(&self.bucket).key(&self.key);
        let created = created.set_request_payer(self.connection.payer());
        let created = created.send().await.map_err(|error| problem(&error))?;
        let id = created.upload_id.unwrap_or_default();
        let written = match self.put_parts(&id, path, bytes).await {
            Ok(parts) => self.complete(&id, parts).await,
            Err(problem) => Err(problem),
        };
        if written.is_err() {
            // Where this fails too, the bucket's rule for unfinished uploads has to do.
            let abort =
                self.connection.client().abort_multipart_upload().bucket(&self.bucket).key(&self.key).upload_id(id);
            let _ = abort.set_request_payer(self.connection.payer()).send().await;
        }
        written
    }

    async fn put_parts(&self, id: &str, path: PathBuf, bytes: u64) -> Result<Vec<CompletedPart>, ObjectProblem> {
        let (mut on_their_way, mut ended) = (JoinSet::new(), Vec::<Part>::new());
        for (number, from) in (1..).zip((0..bytes).step_by(usize::try_from(PART_BYTES).unwrap_or(usize::MAX))) {
            if on_their_way.len() == PARTS_AT_ONCE {
                ended.push(finished(on_their_way.join_next().await));
            }
            if ended.iter().any(Result::is_err) {
                break;
            }
            let range = from..bytes.min(from + PART_BYTES);
            on_their_way.spawn(put_part(self.clone(), id.to_owned(), number, path.clone(), range));
        }
        // Also after an error: a part that arrives when the upload is given up would stay.
        while !on_their_way.is_empty() {
            ended.push(finished(on_their_way.join_next().await));
        }
        let mut parts = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        parts.sort_unstable_by_key(|part| part.part_number);
        Ok(parts)
    }

    async fn complete(&self, id: &str, parts: Vec<CompletedPart>) -> Result<(), ObjectProblem> {
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let request =
            self.connection.client().complete_multipart_upload().bucket(&self.bucket).key(&self.key).upload_id(id);
        let request = request.set_request_payer(self.connection.payer());
        // The store may take its time to put the parts together.
        let request = request.multipart_upload(parts).customize().config_override(patience(PART_BYTES));
        request.send().await.map(|_| ()).map_err(|error| problem(&error))
    }
}

async fn put_part(
    object: S3Object,
    id: String,
    number: i32,
    path: PathBuf,
    range: Range<u64>,
) -> Result<CompletedPart, ObjectProblem> {
    let shared_bytes = (range.end - range.start) * PARTS_AT_ONCE as u64;
    let body = piece_of(&path, range).await?;
    let request = object.connection.client().upload_part().bucket(&object.bucket).key(&object.key).upload_id(id);
    let request = request.set_request_payer(object.connection.payer());
    let request = request.part_number(number).body(body).customize().config_override(patience(shared_bytes));
    let written = request.send().await.map_err(|error| problem(&error))?;
    Ok(CompletedPart::builder().part_number(number).set_e_tag(written.e_tag).build())
}

type Part = Result<CompletedPart, ObjectProblem>;

fn finished(joined: Option<Result<Part, tokio::task::JoinError>>) -> Part {
    match joined {
        Some(Ok(part)) => part,
        Some(Err(stopped)) => Err(ObjectProblem::FileSystem(format!("the upload of a part stopped: {stopped}"))),
        None => Err(ObjectProblem::FileSystem("the upload of a part got lost".to_owned())),
    }
}

/// A piece of a file, which is read while it is sent, and again when it is sent again.
async fn piece_of(path: &Path, range: Range<u64>) -> Result<ByteStream, ObjectProblem> {
    let length = Length::Exact(range.end - range.start);
    let piece = ByteStream::read_from().path(path).offset(range.start).length(length).build().await;
    piece.map_err(|error| ObjectProblem::FileSystem(DisplayErrorContext(error).to_string()))
}

/// The time to the first byte of the answer is, in a write, the time to send everything.
fn patience(bytes: u64) -> Builder {
    let patience = WRITE_TIMEOUT + Duration::from_secs(bytes / SLOWEST_WRITE_BYTES_PER_SECOND);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(patience)
        .operation_timeout(patience * MAX_ATTEMPTS)
        .build();
    Builder::new().timeout_config(timeouts)
}
