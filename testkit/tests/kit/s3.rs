//! What the tests of weir rely on when they load segments and policies from S3.

use testkit::s3::{Bucket, Counts, Fault, S3};

/// Asks for an object unless it is `tag` still; the tag it has now, or none for "not modified".
fn get_unless(bucket: &Bucket, key: &str, tag: &str) -> Result<Option<String>, Option<u16>> {
    let request = bucket.client().get_object().bucket(bucket.name()).key(key).if_none_match(tag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    match runtime.block_on(request.send()) {
        Ok(object) => Ok(object.e_tag),
        Err(error) => match error.raw_response().map(|response| response.status().as_u16()) {
            Some(304) => Ok(None),
            status => Err(status),
        },
    }
}

#[test]
fn objects_are_kept_and_a_conditional_get_downloads_nothing_new() {
    let s3 = S3::start().unwrap();
    let bucket = s3.bucket();
    bucket.put("segments/new.roaring", [1, 2, 3]).unwrap();
    assert_eq!(bucket.get("segments/new.roaring").unwrap(), [1, 2, 3]);
    let tag = get_unless(bucket, "segments/new.roaring", "\"other\"").unwrap().unwrap();
    assert_eq!(get_unless(bucket, "segments/new.roaring", &tag), Ok(None));
    assert_eq!(s3.counts(), Counts { gets: 3, not_modified: 1, puts: 1 });

    bucket.put("segments/new.roaring", [4]).unwrap();
    let changed = get_unless(bucket, "segments/new.roaring", &tag).unwrap().unwrap();
    assert_ne!(changed, tag);
    bucket.delete("segments/new.roaring").unwrap();
    assert!(bucket.get("segments/new.roaring").unwrap_err().to_string().contains("NoSuchKey"));
}

#[test]
fn wrong_credentials_are_refused() {
    let s3 = S3::start().unwrap();
    let credentials = aws_sdk_s3::config::Credentials::new("nobody", "nothing", None, None, "test");
    let config = s3.bucket().client().config().to_builder().credentials_provider(credentials).build();
    let client = aws_sdk_s3::Client::from_conf(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(client.get_object().bucket("weir").key("k").send()).unwrap_err();
    assert_eq!(refused.raw_response().unwrap().status().as_u16(), 403);
}

#[test]
fn faults_strike_as_often_as_told_and_then_no_more() {
    let s3 = S3::start().unwrap();
    let bucket = s3.bucket();
    let bytes = vec![7; 1_000_000];
    bucket.put("k", bytes.clone()).unwrap();
    // More than the three tries of the SDK, which asks again after a 503.
    for (fault, times, said) in [
        (Fault::Forbidden, 1, "AccessDenied"),
        (Fault::NotFound, 1, "NoSuchKey"),
        (Fault::SlowDown, 3, "SlowDown"),
        (Fault::CutBody, 1, "GET s3://weir/k"),
    ] {
        s3.fail_next(times, fault);
        let error = format!("{:#}", bucket.get("k").unwrap_err());
        assert!(error.contains(said), "{fault:?}: {error}");
        assert_eq!(bucket.get("k").unwrap(), bytes, "after {fault:?}");
    }
}
