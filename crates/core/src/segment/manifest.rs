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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or a field is missing or of the wrong type.
    #[error("{0}")]
    Shape(String),
    #[error("{field}: {problem}")]
    Field {
        /// The field, as a path.
        field: String,
        problem: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(String);

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestSegment {
    /// The segment's name, one of its kind in the set.
    pub name: String,
    /// Where its bitmap is.
    pub object: ObjectKey,
    pub bytes: u64,
    pub sha256: Sha256,
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
            ManifestError::Shape(if path == "." { inner.to_string() } else { format!("{path}: {inner}") })
        })?;
        reader.end().map_err(|error| ManifestError::Shape(error.to_string()))?;
        raw.check()
    }

    /// The manifest as JSON text, ending with a new line.
    pub fn to_json(&self) -> String {
        let raw = RawManifest {
            version: self.version.clone(),
            user_id: self.user_id,
            hash: (self.user_id == UserIdKind::Hash64).then_some(RawHash::Xxh3),
            segments: self.segments.iter().map(RawSegment::from).collect(),
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
    segments: Vec<RawSegment>,
}

/// The hash functions.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RawHash {
    /// XXH3, 64 bits, seed 0.
    Xxh3,
}

/// One segment.
#[derive(Serialize, Deserialize, JsonSchema)]
struct RawSegment {
    /// The name that the policy uses, unique in the set.
    #[schemars(length(min = 1, max = 256))]
    name: String,
    /// The bitmap's path, relative to the manifest, below its folder.
    #[schemars(length(min = 1, max = 256))]
    object: String,
    /// The object's size in bytes, at most 64 GiB.
    #[schemars(range(max = 68_719_476_736_u64))]
    bytes: u64,
    /// The object's SHA-256, in hexadecimal.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    sha256: String,
    /// How many users are in it.
    cardinality: u64,
}

impl From<&ManifestSegment> for RawSegment {
    fn from(segment: &ManifestSegment) -> Self {
        Self {
            name: segment.name.clone(),
            object: segment.object.as_str().to_owned(),
            bytes: segment.bytes,
            sha256: segment.sha256.to_string(),
            cardinality: segment.cardinality,
        }
    }
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
        let mut segments: Vec<ManifestSegment> = Vec::with_capacity(self.segments.len());
        for (at, raw) in self.segments.into_iter().enumerate() {
            let segment = raw.check(at)?;
            if segments.iter().any(|other| other.name == segment.name) {
                return Err(field(&format!("segments[{at}].name"), format!("`{}` is there twice", segment.name)));
            }
            segments.push(segment);
        }
        Ok(Manifest { version: self.version, user_id: self.user_id, segments })
    }
}

impl RawSegment {
    fn check(self, at: usize) -> Result<ManifestSegment, ManifestError> {
        let here = |name: &str, problem: String| field(&format!("segments[{at}].{name}"), problem);
        if let Some(problem) = text_problem(&self.name) {
            return Err(here("name", problem));
        }
        let object = ObjectKey::parse(&self.object).map_err(|problem| here("object", problem))?;
        if self.bytes > MAX_OBJECT_BYTES {
            return Err(here("bytes", format!("{} is over the {MAX_OBJECT_BYTES} of one object", self.bytes)));
        }
        let mut sha256 = [0; 32];
        hex::decode_to_slice(&self.sha256, &mut sha256)
            .map_err(|_| here("sha256", "not 64 hexadecimal digits".to_owned()))?;
        Ok(ManifestSegment {
            name: self.name,
            object,
            bytes: self.bytes,
            sha256: Sha256(sha256),
            cardinality: self.cardinality,
        })
    }
}

fn field(path: &str, problem: impl Into<String>) -> ManifestError {
    ManifestError::Field { field: path.to_owned(), problem: problem.into() }
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
