//! `weir segments` and S3: what is written in which order, what a failure half way leaves, and how S3 is reached.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
};

use testkit::s3::{Bucket, Fault, S3};
use weir::object_store::{MULTIPART_ABOVE_BYTES, Upload};

use crate::support::contains_all;

use super::{
    from_s3::{canned, in_bucket, serve, source, start},
    support::{load, names},
};

/// Runs the program with the bucket's settings, given by the environment or in another way.
fn weir(bucket: &Bucket, settings: &[(&str, &str)], args: &[String]) -> Output {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("segments").args(args).envs(bucket.env()).envs(settings.iter().copied());
    testkit::process::output(&mut weir).unwrap()
}

/// Builds a set of two segments there.
fn build(s3: &S3, version: &str, new: &str, old: &str) -> Output {
    let folder = testkit::folder();
    let file = |name: &str, ids: &str| {
        std::fs::write(folder.path().join(name), ids).unwrap();
        format!("{name}={}", folder.path().join(name).display())
    };
    let out = s3.bucket().url("segments/eu");
    let args =
        ["build", "--into", &out, "--user-id", "u32", "--set-version", version, &file("new", new), &file("old", old)];
    let endpoint = [("WEIR__S3__ENDPOINT", s3.endpoint()), ("WEIR__S3__FORCE_PATH_STYLE", "true")];
    weir(s3.bucket(), &endpoint, &args.map(str::to_owned))
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The keys that were written, without their checksums.
fn written(s3: &S3) -> Vec<String> {
    let plain = |write: String| match write.strip_suffix(".roaring") {
        Some(object) => format!("{}.roaring", object.rsplit_once('-').unwrap().0),
        None => write,
    };
    s3.writes().into_iter().map(plain).collect()
}

#[tokio::test]
async fn objects_are_written_before_the_manifest_and_none_of_the_live_set_is_overwritten() {
    let s3 = start();
    done(&build(&s3, "v1", "1\n2\n", "7\n"));
    let expected =
        ["new.roaring", "old.roaring", "manifest-v1.json", "manifest.json"].map(|key| format!("PUT segments/eu/{key}"));
    assert_eq!(written(&s3), expected);

    let mut source = source(s3.bucket()).await;
    assert_eq!(names(&*load(&mut source).await, &["1", "7", "9"]), [Some("new"), Some("old"), None]);
    let live: BTreeMap<String, ()> = s3.writes().into_iter().map(|write| (write, ())).collect();
    done(&build(&s3, "v2", "1\n2\n9\n", "7\n8\n"));
    let again: Vec<String> = s3.writes().into_iter().skip(4).filter(|write| live.contains_key(write)).collect();
    assert_eq!(again, ["PUT segments/eu/manifest.json"], "other content has other names");
    assert_eq!(names(&*load(&mut source).await, &["9", "8"]), [Some("new"), Some("old")]);
}

#[tokio::test]
async fn a_build_that_fails_half_way_leaves_the_old_set_readable_at_every_step() {
    let s3 = start();
    done(&build(&s3, "good", "1\n", "7\n"));
    for good_writes in 0..4 {
        s3.fail_writes_after(good_writes, Some(Fault::Forbidden));
        let failed = build(&s3, "better", "2\n", "8\n");
        s3.fail_writes_after(0, None);
        let error = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{error}");
        contains_all(&error, &["cannot write s3://weir/segments/eu/", "access was denied"]);
        let set = load(&mut source(s3.bucket()).await).await;
        assert_eq!((set.version(), names(&set, &["1", "7", "2"])), ("good", vec![Some("new"), Some("old"), None]));
    }
    done(&build(&s3, "better", "2\n", "8\n"));
    assert_eq!(load(&mut source(s3.bucket()).await).await.version(), "better");
}

#[tokio::test]
async fn s3_is_reached_as_the_configuration_says_and_as_the_environment_says_over_it() {
    let s3 = start();
    done(&build(&s3, "v1", "1\n", "7\n"));
    let folder = testkit::folder();
    let config = folder.path().join("weir.toml");
    let prefix = "[segments]\nuser_id_prefix = \"u\"\n";
    std::fs::write(&config, format!("{}{prefix}", s3.bucket().config())).unwrap();
    let manifest = s3.bucket().url("segments/eu/manifest.json");
    let lookup = ["lookup", &manifest, "--config", config.to_str().unwrap(), "u7"].map(str::to_owned);
    assert_eq!(done(&weir(s3.bucket(), &[], &lookup)), "u7: old\n");

    assert_eq!(done(&weir(s3.bucket(), &[("WEIR__SEGMENTS__USER_ID_PREFIX", "v")], &lookup)), "u7: in no segment\n");
    std::fs::write(&config, s3.bucket().config().replace("http:", "ftp:")).unwrap();
    let wrong = weir(s3.bucket(), &[], &lookup);
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(error.contains("weir.toml:2:") && error.contains("s3.endpoint"), "{error}");
}

/// <https://github.com/awslabs/aws-sdk-rust/issues/1387>; in a profile as in <https://github.com/lusingander/stu/issues/57>.
#[test]
fn a_store_behind_a_path_is_found_by_the_settings_by_the_sdks_variables_and_by_profiles() {
    // Nothing is at the paths that lack a slash between.
    let endpoint = serve(|path| {
        if !path.starts_with("/storage/v1/s3/weir/") {
            return ("HTTP/1.1 404 Not Found\r\ncontent-length: 0".to_owned(), Vec::new());
        }
        let bytes = canned(path);
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}", bytes.len()), bytes)
    });
    let (endpoint, bucket) = (format!("{endpoint}/storage/v1/s3"), Bucket::new(&endpoint, "weir"));
    let lookup = ["lookup", "s3://weir/manifest.json", "3"].map(str::to_owned);
    let found = |variable: &str, value: &str| {
        let settings = [(variable, value), ("WEIR__S3__FORCE_PATH_STYLE", "true")];
        assert_eq!(done(&weir(&bucket, &settings, &lookup)), "3: a\n", "{variable}");
    };
    for variable in ["WEIR__S3__ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
        found(variable, &endpoint);
    }
    let folder = testkit::folder();
    let nowhere = "endpoint_url = http://127.0.0.1:1";
    for (name, profile) in [
        ("for-all", format!("[default]\nendpoint_url = {endpoint}\n")),
        (
            "for-s3",
            format!("[default]\n{nowhere}\nservices = own\n[services own]\ns3 =\n  endpoint_url = {endpoint}\n"),
        ),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, profile).unwrap();
        found("AWS_CONFIG_FILE", file.to_str().unwrap());
    }
}

#[tokio::test]
async fn a_large_object_goes_up_in_parts_and_bytes_at_once_and_each_is_whole_or_not_there() {
    let s3 = start();
    let bytes = usize::try_from(MULTIPART_ABOVE_BYTES).unwrap() + 12_345;
    let content: Vec<u8> = (0..bytes).map(|at| u8::try_from((at / 1000) % 251).unwrap()).collect();
    let folder = testkit::folder();
    let file = folder.path().join("large");
    std::fs::write(&file, &content).unwrap();
    let object = in_bucket(s3.bucket(), "large").await;

    // The second of three parts is refused.
    s3.fail_writes_after(2, Some(Fault::Forbidden));
    object.put(Upload::File(file.clone())).await.unwrap_err();
    s3.fail_writes_after(0, None);
    assert!(s3.bucket().get("large").is_err());
    assert_eq!(s3.writes().last().unwrap(), "DELETE large", "the upload is given up");

    let before = s3.counts().puts;
    object.put(Upload::File(file)).await.unwrap();
    assert_eq!(s3.counts().puts - before, 3, "parts");
    let of_bytes = in_bucket(s3.bucket(), "bytes").await;
    of_bytes.put(Upload::Bytes(content.clone().into())).await.unwrap();
    for object in [object, of_bytes] {
        let (bytes, version) = object.get_if_changed(None, content.len() as u64).await.unwrap().unwrap();
        assert!(version.is_some() && bytes == content);
    }
}
