//! Why an object could not be read or written.

use super::Location;

/// An object that could not be read or written: what, where, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {attempt} {location}: {problem}")]
pub struct ObjectError {
    /// What was tried: `read` or `write`.
    attempt: &'static str,
    pub location: Location,
    pub problem: ObjectProblem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectProblem {
    #[error("it does not exist ({0}); check the name, or put the object there")]
    NotFound(String),
    #[error("access was denied ({0}); allow this user or role to do it, and check the credentials")]
    Denied(String),
    #[error(
        "no usable credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role ({0})"
    )]
    NoCredentials(String),
    #[error(
        "no region is known, or its name has a blank, a line's end or a character beyond ASCII; set s3.region or AWS_REGION"
    )]
    NoRegion,
    #[error(
        "the address of the store, {0:?}, is no URL that begins with http:// or https:// and has no `?`, `#`, blank or line's end; \
         correct s3.endpoint (--s3-endpoint), AWS_ENDPOINT_URL or the endpoint_url of the AWS profile"
    )]
    Address(String),
    #[error(
        "the TLS connection failed ({0}); check s3.endpoint, and s3.ca_file or the certificate authorities of this machine"
    )]
    Tls(String),
    #[error("the store is not available ({0}); check s3.endpoint, s3.force_path_style and the network, or try later")]
    Unavailable(String),
    #[error("the store answered with status {status} ({message}); check bucket, region and s3.endpoint")]
    Rejected { status: u16, message: String },
    #[error("it has {bytes} bytes and at most {limit_bytes} are allowed; check that it is the right object")]
    TooLarge {
        /// Its size, or how much of it there is at least.
        bytes: u64,
        limit_bytes: u64,
    },
    #[error("it was cut off after {bytes} of {declared_bytes} bytes ({message}); read it again")]
    Cut { bytes: u64, declared_bytes: u64, message: String },
    #[error("no more bytes came for {seconds} s; check the network, and read it again")]
    Stalled { seconds: u64 },
    #[error("it is not a file; give the path of one")]
    NotAFile,
    #[error("{0}")]
    FileSystem(String),
}

impl ObjectError {
    pub const fn read(location: Location, problem: ObjectProblem) -> Self {
        Self { attempt: "read", location, problem }
    }

    pub const fn write(location: Location, problem: ObjectProblem) -> Self {
        Self { attempt: "write", location, problem }
    }
}

impl ObjectProblem {
    /// Whether it may be gone in a moment, with nobody changing anything.
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Cut { .. } | Self::Stalled { .. } => true,
            Self::NotFound(_)
            | Self::Denied(_)
            | Self::NoCredentials(_)
            | Self::NoRegion
            | Self::Address(_)
            | Self::Tls(_)
            | Self::Rejected { .. }
            | Self::TooLarge { .. }
            | Self::NotAFile
            | Self::FileSystem(_) => false,
        }
    }
}

impl From<std::io::Error> for ObjectProblem {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound {
            Self::NotFound(error.to_string())
        } else if error.kind() == std::io::ErrorKind::PermissionDenied {
            Self::Denied(error.to_string())
        } else {
            Self::FileSystem(error.to_string())
        }
    }
}
