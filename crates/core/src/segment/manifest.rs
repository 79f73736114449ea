//! The manifest: what a set consists of, checked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UserIdKind;

/// The longest manifest that is read, in bytes: room for [`MAX_SEGMENTS`] with long names.
pub const MAX_MANIFEST_BYTES: u64 = 2 * 1024 * 1024;
/// The most segments of a set; a lookup may ask each of them.
pub const MAX_SEGMENTS: usize = 1000;
/// The largest object of a set, in bytes: some three billion hashed users in one segment.
pub const MAX_OBJECT_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// The longest version, name or object key, in bytes; version and name travel in record headers.
pub const MAX_TEXT_BYTES: usize = 256;

/// What is wrong with a manifest, and in which field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(String);

/// As JSON: in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256(pub [u8; 32]);

impl TryFrom<String> for Sha256 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let mut sha256 = [0; 32];
        hex::decode_to_slice(text, &mut sha256).map_err(|_| "not 64 hexadecimal digits")?;
        Ok(Self(sha256))
    }
}

impl From<Sha256> for String {
    fn from(sha256: Sha256) -> Self {
        sha256.to_string()
    }
}

impl std::fmt::Display for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sha256({self})")
    }
}

/// Names an object beside its manifest: a relative path that stays below the manifest's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ObjectKey(String);

impl TryFrom<String> for ObjectKey {
    type Error = String;

    fn try_from(key: String) -> Result<Self, String> {
        Self::parse(&key)
    }
}

impl ObjectKey {
    /// Checks a key; tells what is wrong with one that is empty, too long, absolute, a URL, or climbs out of the folder.
    pub fn parse(key: &str) -> Result<Self, String> {
        if let Some(problem) = text_problem(key) {
            return Err(problem);
        }
        if key.contains("://") || key.starts_with('/') || key.contains('\\') {
            return Err(format!("`{key}` is not relative to the manifest; give a path below the manifest's folder"));
        }
        if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("`{key}` has an empty part, `.` or `..`; give a path below the manifest's folder"));
        }
        Ok(Self(key.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestSegment {
    /// The name that the policy uses, unique in the set.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The bitmap's path, relative to the manifest, below its folder.
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub object: ObjectKey,
    /// The object's size in bytes, at most 64 GiB.
    #[schemars(range(max = 68_719_476_736_u64))]
    pub bytes: u64,
    /// The object's SHA-256, in hexadecimal.
    #[schemars(with = "String", regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Sha256,
    /// How many users are in it.
    pub cardinality: u64,
}

/// What a set consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Names this state of the set; any text.
    pub version: String,
    pub user_id: UserIdKind,
    /// The segments, in order of precedence: a user in two of them is in the first. At least one.
    pub segments: Vec<ManifestSegment>,
}

impl Manifest {
    /// Reads a manifest. Unknown fields are ignored, so that later versions may add some. The error says what is wrong first, and where.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        // Some editors begin a file with a byte order mark, which JSON does not allow.
        let mut reader = serde_json::Deserializer::from_slice(json.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(json));
        let raw: RawManifest = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner();
            ManifestError(if path == "." { inner.to_string() } else { format!("{path}: {inner}") })
        })?;
        reader.end().map_err(|error| ManifestError(error.to_string()))?;
        raw.check()
    }

    /// The manifest as JSON text, ending with a new line.
    pub fn to_json(&self) -> String {
        let raw = RawManifest {
            version: self.version.clone(),
            user_id: self.user_id,
            hash: (self.user_id == UserIdKind::Hash64).then_some(RawHash::Xxh3),
            segments: self.segments.clone(),
        };
        let mut text = serde_json::to_string_pretty(&raw).expect("strings and numbers are always JSON");
        text.push('\n');
        text
    }

    /// The JSON Schema of a manifest, as checked in under `schemas/`.
    pub fn json_schema() -> schemars::Schema {
        schemars::schema_for!(RawManifest)
    }
}

/// A set of segments for weir, in order of precedence.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir segments manifest", extend("$id" = "segments.schema.json"))]
struct RawManifest {
    /// The version of the set: any text, 1 to 256 bytes, such as a time or a job's number.
    #[schemars(length(min = 1, max = 256))]
    version: String,
    /// The kind of ids in the bitmaps: `u32` and `u64` are the ids themselves, `hash64` the hash of each id's bytes.
    user_id: UserIdKind,
    /// The hash function: required for `hash64`, not allowed otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<RawHash>,
    /// The segments; a user in two of them counts in the first.
    #[schemars(length(min = 1, max = 1000))]
    segments: Vec<ManifestSegment>,
}

/// The hash functions.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RawHash {
    /// XXH3, 64 bits, seed 0.
    Xxh3,
}

impl RawManifest {
    fn check(self) -> Result<Manifest, ManifestError> {
        if let Some(problem) = text_problem(&self.version) {
            return Err(field("version", problem));
        }
        match (self.user_id, self.hash) {
            (UserIdKind::Hash64, Some(RawHash::Xxh3)) | (UserIdKind::U32 | UserIdKind::U64, None) => {}
            (UserIdKind::Hash64, None) => return Err(field("hash", "hash64 needs it; set it to \"xxh3\"")),
            (UserIdKind::U32 | UserIdKind::U64, Some(_)) => {
                return Err(field(
                    "hash",
                    format!("{} has none; leave it out, or set user_id to hash64", self.user_id),
                ));
            }
        }
        if self.segments.is_empty() || self.segments.len() > MAX_SEGMENTS {
            return Err(field("segments", format!("{} of them; a set has 1 to {MAX_SEGMENTS}", self.segments.len())));
        }
        for (at, ManifestSegment { name, bytes, .. }) in self.segments.iter().enumerate() {
            let here = |name: &str, problem: String| Err(field(&format!("segments[{at}].{name}"), problem));
            if let Some(problem) = text_problem(name) {
                return here("name", problem);
            }
            if *bytes > MAX_OBJECT_BYTES {
                return here("bytes", format!("{bytes} is over the {MAX_OBJECT_BYTES} of one object"));
            }
            if self.segments[..at].iter().any(|other| other.name == *name) {
                return here("name", format!("`{name}` is there twice"));
            }
        }
        Ok(Manifest { version: self.version, user_id: self.user_id, segments: self.segments })
    }
}

fn field(path: &str, problem: impl std::fmt::Display) -> ManifestError {
    ManifestError(format!("{path}: {problem}"))
}

/// What keeps a text from being a version, a segment's name or an object's key.
pub fn text_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if text.len() > MAX_TEXT_BYTES {
        return Some(format!("has {} bytes; at most {MAX_TEXT_BYTES} are allowed", text.len()));
    }
    text.chars().any(char::is_control).then(|| "has a control character".to_owned())
}

#[cfg(test)]
mod tests;
