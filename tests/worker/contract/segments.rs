//! Section 6: segments, and with them the policy, from S3. One worker sees sets come and be refused.

use std::{process::Command, sync::LazyLock};

use serde_json::{Value, json};
use testkit::{
    kafka::Record,
    s3::{Bucket, Counts, Fault, S3},
    stack::Stack,
    wait_until,
};

use crate::support::{
    DEADLINE, Scene, ends,
    http::{metric, wait_version},
    outcome::{Outcomes, case},
    succeed, weir,
};

/// Every segment has its own cap's name.
const POLICY: &str = r#"
version = "s3-policy"
[segments.new]
caps = [ { name = "of-new", limit = 0, window = "24h" } ]
[segments.old]
caps = [ { name = "of-old", limit = 0, window = "24h" } ]
[default]
caps = [ { name = "of-none", limit = 0, window = "24h" } ]
"#;

/// Where the fields are, for a topic that was there before weir.
const FIELDS: &str = "
[intent.fields]
id = \"/meta/msg~1id\"
user_id = \"/recipient/0/ref\"
category = \"/meta/kind\"
";

/// Numbers that do not fit into 32 bits.
const BASE: u64 = 1 << 40;

fn build(scene: &Scene, bucket: &Bucket, version: &str, segments: &[(&str, std::ops::Range<u64>)]) {
    let mut command = Command::new(weir());
    command.args(["segments", "build", "--user-id", "u64", "--user-id-prefix", "u", "--set-version", version]);
    command.args(["--into", &bucket.url("segments"), "--s3-endpoint", bucket.endpoint(), "--s3-path-style"]);
    command.envs(bucket.env());
    for (name, users) in segments {
        let ids = users.clone().map(|user| format!("u{user}"));
        command.arg(format!("{name}={}", scene.ids(name, ids).display()));
    }
    succeed(&mut command);
}

struct FromS3 {
    outcomes: Outcomes,
    log: String,
    /// What was asked of the S3 while nothing changed.
    idle: Counts,
    refused: Vec<(&'static str, f64)>,
    overlaps: f64,
    members: (Option<f64>, Option<f64>),
}

static FROM_S3: LazyLock<FromS3> = LazyLock::new(|| {
    let s3 = S3::start().unwrap();
    let bucket = s3.bucket();
    let mut scene = Scene::bare("from-s3", 2, "");
    scene.create_topics([2; 4]);
    bucket.put("policy.toml", POLICY).unwrap();
    build(&scene, bucket, "s1", &[("new", BASE..BASE + 100), ("old", BASE + 100..BASE + 200)]);
    (scene.segments, scene.policy) = (bucket.url("segments/manifest.json"), bucket.url("policy.toml"));
    scene.extra = format!("{}{FIELDS}", bucket.config());
    scene.env = bucket.env().map(|(name, value)| (name, value.to_owned())).to_vec();
    scene.set("WEIR__SEGMENTS__USER_ID_PREFIX", "u");
    let worker = std::cell::RefCell::new(scene.worker("s3"));

    let send = |name: &str, user: Value| {
        let value = json!({"meta": {"msg/id": name, "kind": "k"}, "recipient": [{"ref": user}], "id": 5});
        scene.decide_by(&mut worker.borrow_mut(), [case(name, Record::new("k", value.to_string()))]);
    };
    send("first new", json!(format!("u{}", BASE + 1)));
    send("first old, as number", json!(BASE + 101));
    send("first nobody", json!(format!("u{}", BASE + 200)));
    send("not that number", json!(format!("u0{}", BASE + 1)));
    send("no number", json!("someone"));

    // Some turns of both refreshes, in which nothing changes.
    let before = s3.counts();
    wait_until(DEADLINE, "both are looked at again", || s3.counts().gets >= before.gets + 6);
    let after = s3.counts();
    let idle =
        Counts { gets: after.gets - before.gets, not_modified: after.not_modified - before.not_modified, puts: 0 };

    build(&scene, bucket, "s2", &[("new", BASE + 100..BASE + 150), ("old", BASE..BASE + 100)]);
    wait_version(&worker.borrow(), "segments", "s2");
    send("second, moved to old", json!(format!("u{}", BASE + 1)));
    send("second, moved to new", json!(format!("u{}", BASE + 101)));
    let users = |segment: &str| metric(&worker.borrow(), "weir_segment_members", &format!("segment=\"{segment}\""));
    let members = (users("new"), users("old"));

    let good: Value = serde_json::from_slice(&bucket.get("segments/manifest.json").unwrap()).unwrap();
    let mut refused = Vec::new();
    let failures = || metric(&worker.borrow(), "weir_refresh_failures_total", "segments").unwrap_or(0.0);
    let spoilt = |fields: Value| {
        let mut bad = good.clone();
        bad["version"] = json!("bad");
        for (field, value) in fields.as_object().unwrap() {
            bad["segments"][0][field] = value.clone();
        }
        bad.to_string()
    };
    for (name, text) in [
        ("checksum", spoilt(json!({"sha256": "00".repeat(32)}))),
        ("size", spoilt(json!({"bytes": 1}))),
        ("cardinality", spoilt(json!({"cardinality": 7}))),
        ("absent object", spoilt(json!({"object": "nowhere.roaring", "sha256": "11".repeat(32)}))),
        ("not a manifest", "{".to_owned()),
    ] {
        let before = failures();
        bucket.put("segments/manifest.json", text).unwrap();
        wait_until(DEADLINE, "the set is refused", || failures() > before);
        send(&format!("while refused, {name}"), json!(format!("u{}", BASE + 1)));
        refused.push((name, failures() - before));
    }
    let before = failures();
    s3.fail_next(50, Fault::Forbidden);
    wait_until(DEADLINE, "the S3 refuses", || failures() > before);
    send("while the S3 refuses", json!(format!("u{}", BASE + 1)));
    s3.fail_next(0, Fault::Forbidden);

    let mut twice = good.clone();
    twice["version"] = json!("s3");
    for field in ["object", "bytes", "sha256", "cardinality"] {
        twice["segments"][1][field] = good["segments"][0][field].clone();
    }
    bucket.put("segments/manifest.json", twice.to_string()).unwrap();
    wait_version(&worker.borrow(), "segments", "s3");
    let first_users = if good["segments"][0]["name"] == "new" { BASE + 101 } else { BASE + 1 };
    send("in two", json!(format!("u{first_users}")));
    let overlaps = metric(&worker.borrow(), "weir_segment_overlaps_total", "").unwrap();
    FromS3 { outcomes: scene.outcomes(), log: worker.borrow().log(), idle, refused, overlaps, members }
});

#[track_caller]
fn verdict_is(name: &str, expected: &str) {
    assert_eq!(FROM_S3.outcomes.of(name).verdict(), expected, "{name}");
}

pub fn a_set_built_into_s3_tells_who_is_where_whether_an_id_has_the_prefix_or_is_no_number() {
    for (name, cap) in [
        ("first new", "of-new"),
        ("first old, as number", "of-old"),
        ("first nobody", "of-none"),
        ("no number", "of-none"),
        ("not that number", "of-none"),
    ] {
        verdict_is(name, &format!("cap {cap} 0/0"));
    }
}

pub fn the_policy_and_the_fields_of_an_intent_are_where_the_configuration_says() {
    let envelope = FROM_S3.outcomes.of("first new").envelope();
    assert_eq!(envelope["policy_version"], "s3-policy");
    let user = json!(format!("u{}", BASE + 1));
    assert_eq!(
        (&envelope["intent_id"], &envelope["user_id"]),
        (&json!("first new"), &user),
        "as it was, in every output"
    );
}

pub fn nothing_is_downloaded_when_nothing_has_changed() {
    let Counts { gets, not_modified, .. } = FROM_S3.idle;
    assert!(
        gets >= 6 && gets.abs_diff(not_modified) <= 1,
        "{:?}; one may have been under way at the beginning or the end",
        FROM_S3.idle
    );
}

pub fn a_new_set_is_taken_up_without_a_restart() {
    verdict_is("second, moved to old", "cap of-old 0/0");
    verdict_is("second, moved to new", "cap of-new 0/0");
    assert_eq!(FROM_S3.outcomes.of("second, moved to new").envelope()["segments_version"], "s2");
    assert_eq!(FROM_S3.members, (Some(50.0), Some(100.0)));
}

pub fn a_bad_set_is_refused_whole_and_the_last_good_one_stays() {
    for (name, failures) in &FROM_S3.refused {
        assert!(*failures >= 1.0, "{name}");
        let name = format!("while refused, {name}");
        verdict_is(&name, "cap of-old 0/0");
        assert_eq!(FROM_S3.outcomes.of(&name).envelope()["segments_version"], "s2", "{name}");
    }
    verdict_is("while the S3 refuses", "cap of-old 0/0");
    let refusals = FROM_S3.log.lines().filter(|line| line.contains("refused; the last good one stays"));
    assert!(refusals.count() > FROM_S3.refused.len(), "{}", FROM_S3.log);
}

pub fn a_user_in_two_segments_is_in_the_first_one_and_counted() {
    assert!((FROM_S3.overlaps - 1.0).abs() < f64::EPSILON, "{}", FROM_S3.overlaps);
    let envelope = FROM_S3.outcomes.of("in two").envelope();
    assert_eq!((&envelope["segments_version"], &envelope["reason"]), (&json!("s3"), &json!("cap")));
    assert_eq!(envelope["segment"], "new", "the first in the manifest");
}

#[test]
fn without_a_set_or_a_policy_the_worker_does_not_start() {
    let s3 = Stack::shared().s3();
    let mut no_set = Scene::bare("no-set", 1, POLICY);
    let mut no_object = Scene::bare("no-object", 1, POLICY);
    no_object.segments = s3.url("nowhere/manifest.json");
    for scene in [&mut no_set, &mut no_object] {
        scene.extra = s3.config();
        scene.env = s3.env().map(|(name, value)| (name, value.to_owned())).to_vec();
    }
    let bad_policy = Scene::bare("bad-policy", 1, "version = 1\n");
    let cases = [
        (no_set, "segments/manifest.json"),
        (no_object, "s3://weir/nowhere/manifest.json"),
        (bad_policy, "policy.toml:1:"),
    ];
    for (scene, place) in cases {
        let log = ends(&mut scene.worker("none"), 2);
        assert!(log.contains(place), "{log} should name {place}");
    }
}

pub fn hashes_know_users_by_ids_that_are_no_numbers() {
    let outcome = super::hostile::HOSTILE.outcomes.of("good after user-with-nul");
    assert_eq!(outcome.approval()["segment"], "good");
}
