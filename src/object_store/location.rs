//! Where an object is.

use std::path::{Path, PathBuf};

/// A place as a user writes it: a path, or `s3://bucket/key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    File(PathBuf),
    S3 { bucket: String, key: String },
}

impl Location {
    /// Reads a location. The error says what is wrong, and what to give.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |problem| Err(format!("`{text}` {problem}; give a path, or s3://bucket/key"));
        let Some(rest) = text.strip_prefix("s3://") else {
            return match text {
                "" => wrong("is empty"),
                _ if text.contains("://") => wrong("has a scheme that is not supported"),
                _ if text.contains('\0') => wrong("has a NUL character"),
                _ => Ok(Self::File(PathBuf::from(text))),
            };
        };
        match rest.split_once('/') {
            Some(("", _)) | None if rest.is_empty() || rest.starts_with('/') => wrong("names no bucket"),
            Some((_, "")) | None => wrong("names no object"),
            Some((bucket, key)) => Ok(Self::S3 { bucket: bucket.to_owned(), key: key.to_owned() }),
        }
    }

    /// The object of this name in a folder, given as a path or `s3://bucket/prefix`.
    pub fn in_folder(folder: &str, name: &str) -> Result<Self, String> {
        match folder {
            "" => Self::parse(""),
            _ if folder.ends_with('/') => Self::parse(&format!("{folder}{name}")),
            _ => Self::parse(&format!("{folder}/{name}")),
        }
    }

    /// The same, with a relative path taken from this folder.
    #[must_use]
    pub fn relative_to(self, folder: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(folder.join(path)),
            Self::S3 { bucket, key } => Self::S3 { bucket, key },
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_or_a_bucket_and_key() {
        for text in ["policy.toml", "/etc/weir/policy.toml", "s3://bucket/a", "s3://bucket/a/b.json"] {
            assert_eq!(Location::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "s3://", "s3:///key", "s3://bucket", "s3://bucket/", "https://host/policy.toml", "a\0b"] {
            assert!(Location::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_folder_may_end_with_a_slash_or_not() {
        let cases = [
            ("out", "out/m.json"),
            ("out/", "out/m.json"),
            ("/", "/m.json"),
            ("s3://b", "s3://b/m.json"),
            ("s3://b/p/", "s3://b/p/m.json"),
        ];
        for (folder, object) in cases {
            assert_eq!(Location::in_folder(folder, "m.json").unwrap().to_string(), object);
        }
        assert!(Location::in_folder("", "m.json").is_err());
        assert!(Location::in_folder("s3://", "m.json").is_err());
    }

    #[test]
    fn only_relative_paths_move_with_their_folder() {
        let cases = [("a.toml", "/etc/a.toml"), ("/b/a.toml", "/b/a.toml"), ("s3://b/a", "s3://b/a")];
        for (text, moved) in cases {
            assert_eq!(Location::parse(text).unwrap().relative_to(Path::new("/etc")).to_string(), moved);
        }
    }
}
