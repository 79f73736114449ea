//! Objects of S3, and of stores that speak its protocol.

mod connection;
mod upload;

use std::sync::Arc;

use aws_sdk_s3::{
    config::Credentials,
    error::{ProvideErrorMetadata, SdkError},
    operation::get_object::GetObjectOutput,
};

use self::connection::Connection;
use super::{Location, ObjectBody, ObjectError, ObjectProblem, Version, body::Pieces};
use crate::authorities::Authorities;

/// How S3 is reached; what is not set comes from the AWS default chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Whether the bucket is named in the path rather than in the host name.
    pub force_path_style: bool,
    /// Whether who asks pays, where a bucket charges them; else it denies them access.
    pub requester_pays: bool,
    /// Who vouches for the store's certificate; the system's authorities where there is none.
    pub authorities: Option<Authorities>,
    /// Who asks; `None`: whoever the AWS default chain finds (environment, profile, web identity, container, machine).
    pub credentials: Option<Credentials>,
}

#[derive(Debug, Clone)]
pub struct S3Object {
    connection: Arc<Connection>,
    bucket: String,
    key: String,
}

impl S3Object {
    pub async fn connect(bucket: &str, key: &str, options: &S3Options) -> Self {
        let connection = Arc::new(Connection::new(options).await);
        Self { connection, bucket: bucket.to_owned(), key: key.to_owned() }
    }

    pub fn location(&self) -> Location {
        Location::S3 { bucket: self.bucket.clone(), key: self.key.clone() }
    }

    pub(super) fn beside(&self, relative: &str) -> Self {
        let folder = self.key.rfind('/').map_or("", |end| &self.key[..=end]);
        let (connection, bucket) = (Arc::clone(&self.connection), self.bucket.clone());
        Self { connection, bucket, key: format!("{folder}{relative}") }
    }

    pub(super) async fn open(
        &self,
        last: Option<&Version>,
        limit_bytes: u64,
    ) -> Result<Option<ObjectBody>, ObjectError> {
        let etag = match last {
            Some(Version::ETag(etag)) => Some(etag.clone()),
            Some(Version::File(_)) | None => None,
        };
        let client = self.connection.fresh_client().await;
        self.connection.can_be_asked().map_err(|problem| ObjectError::read(self.location(), problem))?;
        let request = client.get_object().bucket(&self.bucket).key(&self.key);
        let request = request.set_request_payer(self.connection.payer()).set_if_none_match(etag);
        match request.send().await {
            Ok(response) => self.body(response, limit_bytes).map(Some),
            Err(error) if status(&error) == Some(304) => Ok(None),
            Err(error) => Err(ObjectError::read(self.location(), self.naming_right(problem(&error), "s3:GetObject"))),
        }
    }

    fn body(&self, response: GetObjectOutput, limit_bytes: u64) -> Result<ObjectBody, ObjectError> {
        let version = response.e_tag.map(Version::ETag);
        let declared_bytes = response.content_length.and_then(|bytes| u64::try_from(bytes).ok());
        ObjectBody::new(self.location(), version, declared_bytes, limit_bytes, Pieces::Http(response.body))
    }

    /// The same problem, with the right that the request takes where it was denied.
    fn naming_right(&self, mut problem: ObjectProblem, action: &str) -> ObjectProblem {
        if let ObjectProblem::Denied(message) = &mut problem {
            let (bucket, key) = (&self.bucket, &self.key);
            message.push_str(&format!("; it takes {action} on arn:aws:s3:::{bucket}/{key}"));
        }
        problem
    }
}

fn status<E>(error: &SdkError<E>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

fn problem<E>(error: &SdkError<E>) -> ObjectProblem
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let Some(status) = status(error) else { return unanswered(error) };
    let message = match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, Some(message)) => message.to_owned(),
        (None, None) => format!("status {status}"),
    };
    match status {
        404 => ObjectProblem::NotFound(message),
        401 | 403 => ObjectProblem::Denied(message),
        429 | 500..=599 => ObjectProblem::Unavailable(format!("status {status}, {message}")),
        _ => ObjectProblem::Rejected { status, message },
    }
}

/// The SDK gives text alone for what went wrong before a server answered.
fn unanswered<E: std::error::Error + 'static>(error: &SdkError<E>) -> ObjectProblem {
    let chain = causes(error);
    let lower = chain.to_lowercase();
    if lower.contains("credentials") {
        ObjectProblem::NoCredentials(chain)
    } else if lower.contains("region must be set") || lower.contains("missing region") {
        ObjectProblem::NoRegion
    } else if lower.contains("certificate") || lower.contains("tls") || lower.contains("invalidcontenttype") {
        ObjectProblem::Tls(chain)
    } else {
        ObjectProblem::Unavailable(chain)
    }
}

/// An error and what caused it, each once.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in anyhow::Chain::new(error) {
        let text = cause.to_string();
        if !texts.iter().any(|seen| seen.contains(&text)) {
            texts.push(text);
        }
    }
    // Some are lists over many lines; an error is a paragraph.
    texts.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}
