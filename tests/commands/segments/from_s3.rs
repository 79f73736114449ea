//! Sets from S3: unchanged objects are not downloaded, and an error leaves the last good set.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    sync::Arc,
};

use aws_credential_types::Credentials;
use testkit::s3::{ACCESS_KEY, Bucket, Counts, Fault, REGION, S3, SECRET_KEY};
use weir::{
    object_store::{Location, MULTIPART_ABOVE_BYTES, ObjectError, ObjectProblem, S3Options, StoredObject, Upload},
    segments::SegmentSource,
};
use weir_core::segment::SegmentSet;
use weir_worker::refresh::{Refreshed, refresh};

use super::support::{load, names, set};
use crate::support::contains_all;

const PREFIX: &str = "segments/eu/";

/// Starting an S3 blocks, which a thread of an async test may not.
pub fn start() -> S3 {
    std::thread::spawn(S3::start).join().unwrap().unwrap()
}

fn keys(secret: &str) -> Option<Credentials> {
    Some(Credentials::new(ACCESS_KEY, secret, None, None, "test"))
}

fn options(endpoint: &str) -> S3Options {
    S3Options {
        endpoint: Some(endpoint.to_owned()),
        region: Some(REGION.to_owned()),
        force_path_style: true,
        credentials: keys(SECRET_KEY),
        ..S3Options::default()
    }
}

async fn object(endpoint: &str, url: &str) -> StoredObject {
    StoredObject::connect(&Location::parse(url).unwrap(), &options(endpoint)).await
}

pub async fn in_bucket(bucket: &Bucket, key: &str) -> StoredObject {
    object(bucket.endpoint(), &bucket.url(key)).await
}

pub async fn source(bucket: &Bucket) -> SegmentSource {
    SegmentSource::new(in_bucket(bucket, &format!("{PREFIX}manifest.json")).await, "")
}

pub fn put(bucket: &Bucket, objects: Vec<(String, Vec<u8>)>) {
    for (key, bytes) in objects {
        bucket.put(&format!("{PREFIX}{key}"), bytes).unwrap();
    }
}

/// How many GETs and how many of them without a download `work` took.
pub async fn gets<T>(s3: &S3, work: impl Future<Output = T>) -> (T, u64, u64) {
    let Counts { gets, not_modified, .. } = s3.counts();
    let result = work.await;
    let after = s3.counts();
    (result, after.gets - gets, after.not_modified - not_modified)
}

#[tokio::test]
async fn what_has_not_changed_is_not_downloaded_again() {
    let s3 = start();
    put(s3.bucket(), set("v1", &[("a", &[1]), ("b", &[2])]));
    let mut source = source(s3.bucket()).await;
    let (first, gets_of_first, _) = gets(&s3, load(&mut source)).await;
    assert_eq!((names(&first, &["1", "2"]), gets_of_first), (vec![Some("a"), Some("b")], 3));

    for _ in 0..3 {
        let (again, gets, not_modified) = gets(&s3, source.load()).await;
        assert!(again.unwrap().is_none());
        assert_eq!((gets, not_modified), (1, 1), "one conditional GET of the manifest, answered with 304");
    }

    put(s3.bucket(), set("v2", &[("a", &[1]), ("b", &[2, 3])]));
    let (second, gets, not_modified) = gets(&s3, load(&mut source)).await;
    assert_eq!((second.version(), gets, not_modified), ("v2", 2, 0), "the manifest, and the object that is new");
    assert!(Arc::ptr_eq(&first.segments()[0].members, &second.segments()[0].members));
}

async fn good(s3: &S3) -> (SegmentSource, Arc<Refreshed<SegmentSet>>) {
    put(s3.bucket(), set("good", &[("a", &[1])]));
    let mut source = source(s3.bucket()).await;
    let first = load(&mut source).await;
    (source, Refreshed::new(first))
}

#[tokio::test]
async fn a_store_that_fails_leaves_the_last_good_set_and_the_error_says_what_to_do() {
    let s3 = start();
    let (mut source, refreshed) = good(&s3).await;
    put(s3.bucket(), set("better", &[("a", &[2])]));
    let cases = [
        (
            Fault::Forbidden,
            "access was denied (AccessDenied: a fault; it takes s3:GetObject on arn:aws:s3:::weir/segments/eu/manifest.json)",
        ),
        (Fault::NotFound, "it does not exist (NoSuchKey: a fault); check the name"),
        (Fault::SlowDown, "the store is not available (status 503, SlowDown: a fault)"),
        // That the body was cut, or where not even the head came through, that the connection was.
        (Fault::CutBody, "connection"),
    ];
    for (fault, expected) in cases {
        s3.fail_next(100, fault);
        refresh(&mut source, &refreshed).await;
        s3.fail_next(0, fault);
        let error = refreshed.last_error().expect("an error is told");
        contains_all(&error, &[expected, "s3://weir/segments/eu/manifest.json"]);
        assert_eq!(refreshed.current().version(), "good");
    }
    refresh(&mut source, &refreshed).await;
    assert_eq!(refreshed.current().version(), "better");
}

#[tokio::test]
async fn a_store_that_is_slow_for_a_moment_is_asked_again_a_bounded_number_of_times() {
    let s3 = start();
    put(s3.bucket(), set("v1", &[("a", &[1])]));
    let mut source = source(s3.bucket()).await;
    s3.fail_next(2, Fault::SlowDown);
    load(&mut source).await;

    s3.fail_next(100, Fault::SlowDown);
    let (_, gets, _) = gets(&s3, source.load()).await;
    assert_eq!(gets, u64::from(weir::object_store::MAX_ATTEMPTS));
}

/// What a server that speaks just enough HTTP answers to a GET of this path: status line and headers, and the body.
pub type Answer = fn(&str) -> (String, Vec<u8>);

/// Serves on a port until the process ends, one request a connection.
pub fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if socket.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let (headers, body) = answer(String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default());
            let _ = socket.write_all(format!("{headers}\r\nconnection: close\r\n\r\n").as_bytes());
            let _ = socket.write_all(&body);
        }
    });
    endpoint
}

pub fn canned(path: &str) -> Vec<u8> {
    let key = Path::new(path.split('?').next().unwrap()).file_name().unwrap().to_str().unwrap();
    let numbers: Vec<u64> = (0..4000).map(|n| n * 3).collect();
    set("v1", &[("a", &numbers)]).into_iter().find(|(name, _)| name == key).unwrap().1
}

async fn refuses(words: &str, answer: Answer) {
    let manifest = object(&serve(answer), "s3://weir/manifest.json").await;
    contains_all(&SegmentSource::new(manifest, "").load().await.unwrap_err().to_string(), &["a.roaring", words]);
}

#[tokio::test]
async fn an_object_that_is_cut_or_lies_about_its_size_refuses_the_set() {
    let cut: Answer = |path| {
        let bytes = canned(path);
        let keep = if path.contains("manifest") { bytes.len() } else { bytes.len() / 2 };
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}", bytes.len()), bytes[..keep].to_vec())
    };
    let endless: Answer = |path| {
        let mut bytes = canned(path);
        if !path.contains("manifest") {
            bytes.resize(10 << 20, 0);
        }
        ("HTTP/1.1 200 OK".to_owned(), bytes)
    };
    let huge: Answer = |path| {
        let bytes = canned(path);
        let lie = if path.contains("manifest") { bytes.len() as u64 } else { 1 << 50 };
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {lie}"), bytes)
    };
    refuses("it was cut off after", cut).await;
    refuses("the manifest says 8", endless).await;
    refuses("has 1125899906842624 bytes", huge).await;
}

#[tokio::test]
async fn a_store_without_entity_tags_is_read_again_each_time() {
    let answer: Answer = |path| {
        let bytes = canned(path);
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}", bytes.len()), bytes)
    };
    let mut source = SegmentSource::new(object(&serve(answer), "s3://weir/manifest.json").await, "");
    let first = load(&mut source).await;
    assert!(Arc::ptr_eq(&first.segments()[0].members, &load(&mut source).await.segments()[0].members));
}

/// Without a slash as in <https://github.com/vectordotdev/vector/issues/20773>, and with one as in
/// <https://github.com/apache/arrow-rs-object-store/issues/43>.
#[tokio::test]
async fn an_endpoints_path_is_before_the_bucket_with_a_slash_at_its_end_or_without() {
    // Answers with the path that it was asked for.
    let endpoint = serve(|path| {
        let path = path.split('?').next().unwrap_or_default();
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}", path.len()), path.as_bytes().to_vec())
    });
    for (path, expected) in [
        ("", "/weir/eu/a.json"),
        ("/", "/weir/eu/a.json"),
        ("/storage/v1/s3", "/storage/v1/s3/weir/eu/a.json"),
        ("/storage/v1/s3/", "/storage/v1/s3/weir/eu/a.json"),
        ("/storage/v1/s3//", "/storage/v1/s3/weir/eu/a.json"),
    ] {
        let asked = object(&format!("{endpoint}{path}"), "s3://weir/eu/a.json").await;
        let (bytes, _) = asked.get_if_changed(None, 1000).await.unwrap().unwrap();
        assert_eq!(String::from_utf8(bytes.to_vec()).unwrap(), expected, "{path:?}");
    }
}

/// Without a scheme as in <https://github.com/tus/tusd/issues/1058> and <https://github.com/marmos91/dittofs/issues/318>; a variable that is
/// made from a file may have the end of its line.
#[tokio::test]
async fn an_address_that_is_no_url_is_said_at_once_and_not_taken_for_a_store_that_is_away() {
    let without = ["localhost:9000", "s3.example", "ftp://s3.example", "http://", "http://:9000", ""];
    let with_more = ["http://s3.example/?region=a", "http://s3 .example", "http://s3.example\n"];
    for address in without.into_iter().chain(with_more) {
        let asked = object(address, "s3://weir/a").await;
        let read = asked.get_if_changed(None, 1000).await.unwrap_err();
        let written = asked.put(Upload::Bytes("content".into())).await.unwrap_err();
        for error in [read, written] {
            assert!(matches!(error.problem, ObjectProblem::Address(_)), "{address:?}: {error}");
            assert!(!error.problem.is_temporary() && error.to_string().contains("AWS_ENDPOINT_URL"), "{error}");
        }
    }
}

/// Keys from a file with the end of its line, as in <https://github.com/rusoto/rusoto/issues/1589> and
/// <https://github.com/longhorn/longhorn/issues/2226>.
#[tokio::test]
async fn keys_with_a_line_s_end_are_said_before_the_store_is_asked() {
    let nobody = "http://127.0.0.1:1";
    let keys = [
        ("AKIA\n", "hunter2", None),
        ("AKIA\r\n", "hunter2", None),
        ("AKIA", "hunter2\n", None),
        ("AKIA", " hunter2", None),
        ("AKIA", "hunter2", Some("token\n")),
    ];
    for (id, secret, token) in keys {
        let credentials = Some(Credentials::new(id, secret, token.map(str::to_owned), None, "test"));
        let options = S3Options { credentials, ..options(nobody) };
        let asked = StoredObject::connect(&Location::parse("s3://weir/a").unwrap(), &options).await;
        let read = asked.get_if_changed(None, 1000).await.unwrap_err();
        let written = asked.put(Upload::Bytes("content".into())).await.unwrap_err();
        for error in [read, written] {
            assert!(matches!(error.problem, ObjectProblem::NoCredentials(_)), "{id:?}: {error}");
            let said = error.to_string();
            assert!(said.contains("has a line's end") && !said.contains("hunter2"), "{said}");
        }
    }
}

/// `AWS_REGION` may be made from a file, as keys are, or be copied with quotes, as in
/// <https://github.com/external-secrets/kubernetes-external-secrets/issues/249>.
#[tokio::test]
async fn a_region_that_is_no_name_is_said_before_the_store_is_asked() {
    for (force_path_style, region) in [(true, "eu-west-1\n"), (false, "eu-west-1\n"), (true, "‘eu-west-1’")] {
        let region = Some(region.to_owned());
        let options = S3Options { force_path_style, region, ..options("http://127.0.0.1:1") };
        let asked = StoredObject::connect(&Location::parse("s3://weir/a").unwrap(), &options).await;
        assert_eq!(asked.put(Upload::Bytes("content".into())).await.unwrap_err().problem, ObjectProblem::NoRegion);
        assert_eq!(problem(asked).await, ObjectProblem::NoRegion);
    }
}

async fn problem(object: StoredObject) -> ObjectProblem {
    let ObjectError { problem, .. } = object.get_if_changed(None, 1000).await.unwrap_err();
    problem
}

#[tokio::test]
async fn what_keeps_us_from_the_store_is_told_apart() {
    let s3 = start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = object(&format!("http://{closed}"), "s3://weir/a").await;
    assert!(matches!(problem(away).await, ObjectProblem::Unavailable(_)));

    let plain = object(&s3.endpoint().replace("http:", "https:"), "s3://weir/a").await;
    assert!(matches!(problem(plain).await, ObjectProblem::Tls(_)));

    assert!(matches!(problem(in_bucket(s3.bucket(), "nowhere").await).await, ObjectProblem::NotFound(_)));
    assert!(matches!(problem(object(s3.endpoint(), "s3://nowhere/a").await).await, ObjectProblem::NotFound(_)));

    let options = S3Options { region: None, credentials: keys("wrong"), ..options(s3.endpoint()) };
    let stranger = StoredObject::connect(&Location::parse("s3://weir/a").unwrap(), &options).await;
    assert!(matches!(problem(stranger).await, ObjectProblem::Denied(_)));
    assert!(!format!("{options:?}").contains("wrong"), "a secret is in no log");
}

#[tokio::test]
async fn a_bucket_that_charges_the_requester_is_read_and_written_by_one_who_pays() {
    let s3 = start();
    s3.bucket().put("small", "content").unwrap();
    s3.charge_requesters();
    let folder = testkit::folder();
    let file = folder.join("large");
    std::fs::File::create(&file).unwrap().set_len(MULTIPART_ABOVE_BYTES + 1).unwrap();
    let uploads = || [Upload::Bytes("content".into()), Upload::File(file.clone())];
    for pays in [false, true] {
        let options = S3Options { requester_pays: pays, ..options(s3.endpoint()) };
        let at = async |key: &str| {
            let location = Location::parse(&s3.bucket().url(key)).unwrap();
            StoredObject::connect(&location, &options).await
        };
        let denied = |done: Result<(), ObjectError>| {
            let problem = done.err().map(|error| error.problem);
            assert!(matches!(problem, None | Some(ObjectProblem::Denied(_))), "{problem:?}");
            problem.is_some()
        };
        let read = at("small").await.get_if_changed(None, 1000).await;
        assert_eq!(denied(read.map(drop)), !pays, "a read");
        for upload in uploads() {
            assert_eq!(denied(at("written").await.put(upload).await), !pays, "a write");
        }
        if pays {
            // The second of three parts is refused: the upload is given up, which is paid for too.
            s3.fail_writes_after(2, Some(Fault::Forbidden));
            at("given-up").await.put(uploads()[1].clone()).await.unwrap_err();
            assert_eq!(s3.writes().last().unwrap(), "DELETE given-up");
        }
    }
}
