//! A set with any defect is rejected as a whole, the error names the object, and the last good set stays.

use std::path::Path;

use weir_core::segment::{ManifestSegment, UserIdKind};
use weir_worker::refresh::{Refreshed, refresh};

use crate::support::contains_all;

use super::support::{entry, load, manifest, members, names, object, put, set, source};

/// A bitmap of 3000 users.
fn bitmap(kind: UserIdKind) -> Vec<u8> {
    object(&members(kind, (0..3000).map(|n| n * 5)))
}

/// Takes up a good set, then what `spoil` leaves in its folder, then a better set; gives the refusal.
async fn refusal(spoil: impl FnOnce(&Path)) -> String {
    let folder = testkit::folder();
    put(folder.path(), &set("good", &[("first", &[1, 2]), ("second", &[3])]));
    let mut source = source(folder.path()).await;
    let refreshed = Refreshed::new(load(&mut source).await);
    spoil(folder.path());
    for _ in 0..2 {
        refresh(&mut source, &refreshed).await;
        let current = refreshed.current();
        assert_eq!(current.version(), "good");
        assert_eq!(names(&current, &["1", "3", "4"]), [Some("first"), Some("second"), None]);
    }
    assert_eq!(refreshed.failures(), 2, "a bad set is tried again, for it may have been in the making");
    let error = refreshed.last_error().expect("an error is told").to_string();
    put(folder.path(), &set("better", &[("first", &[4])]));
    refresh(&mut source, &refreshed).await;
    assert_eq!(refreshed.current().version(), "better");
    assert_eq!(refreshed.last_error(), None);
    error
}

/// Writes a set with a good first segment, and a second one with this content and this manifest entry.
fn put_bad(folder: &Path, kind: UserIdKind, bytes: &[u8], says: ManifestSegment) {
    let first = object(&members(kind, [1, 2]));
    let json = manifest("bad", kind, vec![entry("first", &first, 2), says]).to_json().into_bytes();
    let names = ["first.roaring", "second.roaring", "manifest.json"].map(str::to_owned);
    put(folder, &names.into_iter().zip([first, bytes.to_vec(), json]).collect::<Vec<_>>());
}

/// The refusal of such a set, which names the object.
async fn refusal_of(kind: UserIdKind, bytes: &[u8], says: ManifestSegment) -> String {
    let error = refusal(|folder| put_bad(folder, kind, bytes, says)).await;
    contains_all(&error, &["second.roaring", "`second`"]);
    error
}

#[tokio::test]
async fn an_object_that_is_not_what_the_manifest_says_refuses_the_set() {
    type Spoil = fn(&mut Vec<u8>, &mut ManifestSegment);
    let cases: &[(&str, Spoil)] = &[
        ("has 100 bytes, the manifest says", |bytes, _| bytes.truncate(100)),
        ("bytes, the manifest says", |bytes, _| bytes.push(0)),
        ("has 0 bytes, the manifest says", |bytes, _| bytes.clear()),
        ("has SHA-256", |bytes, _| bytes[40] ^= 1),
        ("bytes, the manifest says", |_, says| says.bytes -= 1),
        ("bytes, the manifest says 0", |_, says| says.bytes = 0),
        ("the manifest says 5368709120", |_, says| says.bytes = 5 << 30),
        ("has SHA-256", |_, says| says.sha256.0[0] ^= 1),
        ("has 3000 users, the manifest says 3001", |_, says| says.cardinality += 1),
        ("has 3000 users, the manifest says 0", |_, says| says.cardinality = 0),
    ];
    for &(expected, spoil) in cases {
        let mut bytes = bitmap(UserIdKind::U32);
        let mut says = entry("second", &bytes, 3000);
        spoil(&mut bytes, &mut says);
        contains_all(&refusal_of(UserIdKind::U32, &bytes, says).await, &[expected]);
    }
}

#[tokio::test]
async fn an_object_that_is_no_bitmap_of_the_sets_kind_refuses_the_set() {
    let narrow = bitmap(UserIdKind::U32);
    let wide = bitmap(UserIdKind::U64);
    let mut disorderly = narrow.clone();
    let end = narrow.len();
    disorderly[end - 4..].rotate_left(2);
    let cases = [
        (UserIdKind::U32, Vec::new(), "ends too early"),
        (UserIdKind::U32, narrow[..end / 2].to_vec(), "ends too early"),
        (UserIdKind::U32, vec![7; 4096], "portable format of kind u32"),
        (UserIdKind::U32, b"1\n2\n3\n".to_vec(), "portable format of kind u32"),
        (UserIdKind::U32, wide.clone(), "portable format of kind u32"),
        (UserIdKind::U32, disorderly, "portable format of kind u32"),
        (UserIdKind::U32, [narrow.clone(), vec![0]].concat(), "bytes after the end"),
        (UserIdKind::U64, narrow.clone(), "portable format of kind u64"),
        (UserIdKind::U64, [wide.clone(), vec![0]].concat(), "bytes after the end"),
        (UserIdKind::Hash64, narrow, "portable format of kind hash64"),
        (UserIdKind::Hash64, wide[..100].to_vec(), "ends too early"),
    ];
    for (kind, bytes, expected) in cases {
        contains_all(&refusal_of(kind, &bytes, entry("second", &bytes, 3000)).await, &[expected]);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_refuses_the_set() {
    type Spoil = fn(&Path);
    let cases: &[(&str, &str, Spoil)] = &[
        ("manifest.json", "does not exist", |folder| std::fs::remove_file(folder.join("manifest.json")).unwrap()),
        ("manifest.json", "EOF while parsing", |folder| std::fs::write(folder.join("manifest.json"), "{").unwrap()),
        ("manifest.json", "at most", |folder| {
            std::fs::write(folder.join("manifest.json"), vec![b' '; 3 << 20]).unwrap();
        }),
        ("second.roaring", "does not exist", |folder| {
            put_bad(folder, UserIdKind::U32, b"", entry("second", b"x", 1));
            std::fs::remove_file(folder.join("second.roaring")).unwrap();
        }),
    ];
    for &(file, expected, spoil) in cases {
        contains_all(&refusal(spoil).await, &[expected, file]);
    }
}
