//! What the tests of weir rely on when they load segments and policies from S3.

use testkit::s3::{Fault, S3};

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
