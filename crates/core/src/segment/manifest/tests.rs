use super::*;

fn manifest(change: impl FnOnce(&mut serde_json::Value)) -> Result<Manifest, ManifestError> {
    let mut json = serde_json::json!({
        "version": "2026-11-20T00:00:00Z", "user_id": "u32",
        "segments": [{"name": "new", "object": "new.roaring", "bytes": 8, "sha256": "ab".repeat(32), "cardinality": 0}],
    });
    change(&mut json);
    Manifest::parse(json.to_string().as_bytes())
}

#[test]
fn a_manifest_reads_as_it_was_written_and_unknown_fields_pass() {
    let read = manifest(|json| json["made_by"] = "a later version".into()).unwrap();
    assert_eq!(read.segments[0].object.as_str(), "new.roaring");
    let marked = format!("\u{FEFF}{}", read.to_json());
    assert_eq!(Manifest::parse(marked.as_bytes()).as_ref(), Ok(&read), "behind a byte order mark");
    assert_eq!(Manifest::parse(read.to_json().as_bytes()), Ok(read));
}

#[test]
fn a_wrong_manifest_is_refused_with_the_place() {
    type Change = fn(&mut serde_json::Value);
    let cases: &[(&str, Change)] = &[
        ("version", |json| json["version"] = "".into()),
        ("version", |json| json["version"] = "a\nb".into()),
        ("version", |json| json["version"] = 7.into()),
        ("user_id", |json| json["user_id"] = "u16".into()),
        ("hash", |json| json["user_id"] = "hash64".into()),
        ("hash", |json| json["hash"] = "xxh3".into()),
        ("hash", |json| json["hash"] = "md5".into()),
        ("segments", |json| json["segments"] = serde_json::json!([])),
        ("missing field `segments`", |json| drop(json.as_object_mut().unwrap().remove("segments"))),
        ("segments[0].name", |json| json["segments"][0]["name"] = "n".repeat(257).into()),
        ("segments[0].object", |json| json["segments"][0]["object"] = "../new.roaring".into()),
        ("segments[0].object", |json| json["segments"][0]["object"] = "/etc/passwd".into()),
        ("segments[0].object", |json| json["segments"][0]["object"] = "s3://other/new".into()),
        ("segments[0].object", |json| json["segments"][0]["object"] = "a//b".into()),
        ("segments[0].object", |json| json["segments"][0]["object"] = "a\\b".into()),
        ("segments[0].bytes", |json| json["segments"][0]["bytes"] = (-1).into()),
        ("segments[0].bytes", |json| json["segments"][0]["bytes"] = u64::MAX.into()),
        ("segments[0].sha256", |json| json["segments"][0]["sha256"] = "ab".into()),
        ("segments[0].cardinality", |json| json["segments"][0]["cardinality"] = 1.5.into()),
        ("segments[1].name", |json| {
            let first = json["segments"][0].clone();
            json["segments"].as_array_mut().unwrap().push(first);
        }),
    ];
    for (place, change) in cases {
        let error = manifest(change).unwrap_err().to_string();
        assert!(error.contains(place), "{error:?} should name {place:?}");
    }
    assert!(Manifest::parse(b"").is_err());
    assert!(Manifest::parse(manifest(|_| ()).unwrap().to_json().replace('}', "}}").as_bytes()).is_err());
}
