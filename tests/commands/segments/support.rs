//! Writes sets and reads them.

use std::{path::Path, sync::Arc};

use sha2::Digest;
use weir::{
    object_store::{Location, S3Options, StoredObject},
    segments::SegmentSource,
};
use weir_core::segment::{
    Manifest, ManifestSegment, Members, ObjectKey, SegmentSet, Sha256, UserIdKind, format::write_members,
};

pub fn members(kind: UserIdKind, numbers: impl IntoIterator<Item = u64>) -> Members {
    match kind {
        UserIdKind::U32 => Members::U32(numbers.into_iter().map(|number| u32::try_from(number).unwrap()).collect()),
        UserIdKind::U64 => Members::U64(numbers.into_iter().collect()),
        UserIdKind::Hash64 => Members::Hash64(numbers.into_iter().collect()),
    }
}

pub fn object(members: &Members) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_members(members, &mut bytes).unwrap();
    bytes
}

/// What a manifest truly says of an object; it is called like the segment.
pub fn entry(name: &str, bytes: &[u8], cardinality: u64) -> ManifestSegment {
    ManifestSegment {
        name: name.to_owned(),
        object: ObjectKey::parse(&format!("{name}.roaring")).unwrap(),
        bytes: bytes.len() as u64,
        sha256: Sha256(sha2::Sha256::digest(bytes).into()),
        cardinality,
    }
}

pub fn manifest(version: &str, user_id: UserIdKind, segments: Vec<ManifestSegment>) -> Manifest {
    Manifest { version: version.to_owned(), user_id, segments }
}

/// A set of u32 segments, as `(key, content)`: the objects, then the manifest.
pub fn set(version: &str, segments: &[(&str, &[u64])]) -> Vec<(String, Vec<u8>)> {
    let mut written = Vec::new();
    let mut entries = Vec::new();
    for (name, numbers) in segments {
        let bytes = object(&members(UserIdKind::U32, numbers.iter().copied()));
        let entry = entry(name, &bytes, numbers.len() as u64);
        written.push((entry.object.as_str().to_owned(), bytes));
        entries.push(entry);
    }
    written.push(("manifest.json".to_owned(), manifest(version, UserIdKind::U32, entries).to_json().into_bytes()));
    written
}

pub fn put(folder: &Path, objects: &[(String, Vec<u8>)]) {
    objects.iter().for_each(|(key, bytes)| std::fs::write(folder.join(key), bytes).unwrap());
}

/// The set of a folder's manifest.
pub async fn source(folder: &Path) -> SegmentSource {
    let location = Location::File(folder.join("manifest.json"));
    SegmentSource::new(StoredObject::connect(&location, &S3Options::default()).await, "")
}

/// Loads a set that must be new and good.
pub async fn load(source: &mut SegmentSource) -> Arc<SegmentSet> {
    source.load().await.unwrap().expect("a new set")
}

pub fn names<'a>(set: &'a SegmentSet, users: &[&str]) -> Vec<Option<&'a str>> {
    users.iter().map(|user: &&str| set.lookup(user).segment().map(|at| set.segments()[at].name.as_str())).collect()
}
