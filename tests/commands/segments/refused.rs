//! A set that is refused is not downloaded again until what was wrong with it has changed.

use testkit::s3::S3;
use weir::segments::SegmentSource;
use weir_core::segment::UserIdKind;

use super::{
    from_s3::{gets, in_bucket, put, source, start},
    support::{entry, load, manifest, members, names, object, set},
};

/// The error of a read, how many GETs it took, and how many of those without a download.
async fn refused(s3: &S3, source: &mut SegmentSource) -> (String, u64, u64) {
    let (loaded, gets, not_modified) = gets(s3, source.load()).await;
    (loaded.unwrap_err().to_string(), gets, not_modified)
}

#[tokio::test]
async fn a_set_with_a_bad_object_is_looked_at_and_not_downloaded() {
    let s3 = start();
    put(s3.bucket(), set("good", &[("a", &[1]), ("b", &[2])]));
    let mut source = source(s3.bucket()).await;
    let first = load(&mut source).await;

    let mut bad = set("bad", &[("a", &[1, 3]), ("b", &[2, 4]), ("c", &[5])]);
    let good_b = bad[1].1.clone();
    bad[1].1[12] ^= 1;
    put(s3.bucket(), bad);
    let (error, gets, not_modified) = refused(&s3, &mut source).await;
    assert!(error.contains("b.roaring") && error.contains("SHA-256"), "{error}");
    assert_eq!((gets, not_modified), (3, 0), "the manifest, a, and b at which it ended");
    for _ in 0..3 {
        let again = refused(&s3, &mut source).await;
        assert_eq!(again, (error.clone(), 2, 2), "the manifest and b are asked for, and neither is downloaded");
    }
    s3.bucket().delete("segments/eu/b.roaring").unwrap();
    let (gone, gets, not_modified) = refused(&s3, &mut source).await;
    assert!(gone.contains("b.roaring") && gone.contains("does not exist"), "{gone}");
    assert_eq!((gets, not_modified), (2, 1), "a is not downloaded for nothing");

    put(s3.bucket(), vec![("b.roaring".to_owned(), good_b)]);
    let second = load(&mut source).await;
    assert_eq!(second.version(), "bad");
    assert_eq!(names(&second, &["3", "4", "5"]), [Some("a"), Some("b"), Some("c")]);
    assert_eq!(names(&first, &["3"]), [None]);
    assert!(source.load().await.unwrap().is_none());
}

#[tokio::test]
async fn a_manifest_that_is_wrong_is_not_downloaded_again_and_taking_it_back_brings_nothing_new() {
    let s3 = start();
    let good = set("good", &[("a", &[1])]);
    put(s3.bucket(), good.clone());
    let mut source = source(s3.bucket()).await;
    load(&mut source).await;
    put(s3.bucket(), vec![("manifest.json".to_owned(), b"{}".to_vec())]);
    let (error, ..) = refused(&s3, &mut source).await;
    assert_eq!(refused(&s3, &mut source).await, (error, 1, 1));

    put(s3.bucket(), vec![good[1].clone()]);
    assert!(source.load().await.unwrap().is_none(), "the set in use is good as it is");
    assert!(source.load().await.unwrap().is_none());
}

#[tokio::test]
async fn a_set_refused_for_its_size_or_count_is_taken_once_its_manifest_is_mended() {
    let s3 = start();
    let bytes = object(&members(UserIdKind::U32, [1, 2]));
    let mut says = entry("a", &bytes, 7);
    let with = |says| manifest("v1", UserIdKind::U32, vec![says]).to_json().into_bytes();
    put(s3.bucket(), vec![("a.roaring".to_owned(), bytes), ("manifest.json".to_owned(), with(says.clone()))]);
    let mut source = SegmentSource::new(in_bucket(s3.bucket(), "segments/eu/manifest.json").await, "");
    let (error, ..) = refused(&s3, &mut source).await;
    assert!(error.contains("has 2 users, the manifest says 7"), "{error}");
    assert_eq!(refused(&s3, &mut source).await, (error, 2, 2));
    says.cardinality = 2;
    says.bytes += 1;
    put(s3.bucket(), vec![("manifest.json".to_owned(), with(says.clone()))]);
    let (error, ..) = refused(&s3, &mut source).await;
    assert!(error.contains("bytes, the manifest says"), "{error}");
    assert_eq!(refused(&s3, &mut source).await.0, error);
    says.bytes -= 1;
    put(s3.bucket(), vec![("manifest.json".to_owned(), with(says))]);
    assert_eq!(names(&*load(&mut source).await, &["2"]), [Some("a")]);
}
