//! Sets from files.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use weir::object_store::{Location, ObjectProblem, S3Options, StoredObject, Upload};
use weir_core::segment::{Manifest, UserIdKind};

use super::support::{entry, load, manifest, members, names, object, put, set, source};

async fn file(path: std::path::PathBuf) -> StoredObject {
    StoredObject::connect(&Location::File(path), &S3Options::default()).await
}

#[tokio::test]
async fn an_unchanged_manifest_gives_no_new_set_and_a_changed_one_keeps_the_objects_it_still_names() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1]), ("b", &[2])]));
    let mut source = source(folder.path()).await;
    let first = load(&mut source).await;
    assert!(source.load().await.unwrap().is_none());

    put(folder.path(), &set("v2", &[("a", &[1]), ("b", &[2, 3])]));
    // Not needed: the set has it already.
    std::fs::remove_file(folder.path().join("a.roaring")).unwrap();
    let second = load(&mut source).await;
    assert_eq!((first.version(), second.version()), ("v1", "v2"));
    assert!(Arc::ptr_eq(&first.segments()[0].members, &second.segments()[0].members));
    assert_eq!(names(&first, &["2", "3"]), [Some("b"), None], "who holds the old set goes on with it");
    assert_eq!(names(&second, &["2", "3"]), [Some("b"), Some("b")]);
}

#[tokio::test]
async fn an_old_set_is_freed_by_its_source_and_not_by_the_lane_that_lets_go_of_it_last() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1])]));
    let mut source = source(folder.path()).await;
    let lanes = load(&mut source).await;
    put(folder.path(), &set("v2", &[("a", &[2])]));
    load(&mut source).await;
    let old = Arc::downgrade(&lanes);
    // This runtime has one thread, so nothing else comes in between.
    drop(lanes);
    assert!(old.strong_count() > 0, "the lane freed it");
    let began = Instant::now();
    while old.strong_count() > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody freed it");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_object_that_was_kept_is_still_checked_against_the_new_manifest() {
    let folder = testkit::folder();
    put(folder.path(), &set("v1", &[("a", &[1])]));
    let mut source = source(folder.path()).await;
    load(&mut source).await;
    let says = entry("a", &object(&members(UserIdKind::U32, [1])), 7);
    let json = manifest("v2", UserIdKind::U32, vec![says]).to_json();
    std::fs::write(folder.path().join("manifest.json"), json).unwrap();
    let error = source.load().await.unwrap_err().to_string();
    assert!(error.contains("has 1 users, the manifest says 7"), "{error}");
}

#[tokio::test]
async fn a_set_of_another_kind_shares_nothing_with_the_last_one() {
    let folder = testkit::folder();
    for kind in [UserIdKind::U64, UserIdKind::Hash64] {
        let bytes = object(&members(kind, [1 << 40]));
        let json = manifest(kind.as_str(), kind, vec![entry("a", &bytes, 1)]).to_json();
        put(folder.path(), &[("a.roaring".to_owned(), bytes), ("manifest.json".to_owned(), json.into_bytes())]);
        let set = load(&mut source(folder.path()).await).await;
        assert!(set.segments()[0].members.contains(1 << 40));
        assert_eq!(set.lookup("1099511627776").segment().is_some(), kind == UserIdKind::U64);
    }
    let mut source = source(folder.path()).await;
    load(&mut source).await;
    let says = Manifest::parse(&std::fs::read(folder.path().join("manifest.json")).unwrap()).unwrap();
    let json = manifest("as numbers", UserIdKind::U64, says.segments).to_json();
    std::fs::write(folder.path().join("manifest.json"), json).unwrap();
    assert!(load(&mut source).await.lookup("1099511627776").segment().is_some());
}

#[tokio::test]
async fn what_is_not_a_plain_file_is_not_opened() {
    let error = file("/dev/zero".into()).await.get_if_changed(None, 10).await.unwrap_err();
    assert_eq!(error.problem, ObjectProblem::NotAFile);
}

#[tokio::test]
async fn a_file_is_replaced_whole_and_never_read_beyond_its_limit() {
    let folder = testkit::folder();
    let object = file(folder.path().join("new/folder/policy.toml")).await;
    object.put(Upload::Bytes("first".into())).await.unwrap();
    let (bytes, version) = object.get_if_changed(None, 5).await.unwrap().unwrap();
    assert_eq!(bytes, "first");
    assert!(object.get_if_changed(version.as_ref(), 5).await.unwrap().is_none());

    object.put(Upload::Bytes("other".into())).await.unwrap();
    let (bytes, _) = object.get_if_changed(version.as_ref(), 5).await.unwrap().unwrap();
    assert_eq!(bytes, "other");
    let left: Vec<_> = std::fs::read_dir(folder.path().join("new/folder")).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing temporary is left");

    let error = object.get_if_changed(None, 4).await.unwrap_err();
    assert_eq!(error.problem, ObjectProblem::TooLarge { bytes: 5, limit_bytes: 4 });
}
