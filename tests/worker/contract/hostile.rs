//! Section 2: what is not an intent goes to the dead letters, with its reason, and nothing stops. The same run shows
//! that logs hold nothing of the records and no secrets.

use std::{process::Command, sync::LazyLock};

use testkit::{kafka::Record, wait_for};

use crate::support::{
    DEADLINE, Scene, header,
    http::metric,
    outcome::{Outcomes, case},
    stop, succeed, weir,
};

#[path = "../../fixtures/hostile.rs"]
mod table;

use table::{Expected, hostile};

const POLICY: &str = r#"
version = "hostile"
[segments.good]
caps = [ { name = "once", limit = 1, window = "24h" } ]
[default]
caps = "unlimited"
"#;

const PAYLOAD: &str = "MARKED-PAYLOAD";
const USER: &str = "MARKED-USER";
const SECRETS: [&str; 3] = ["MARKED-TOKEN", "MARKED-SASL", testkit::s3::SECRET_KEY];

pub struct Run {
    scene: Scene,
    pub outcomes: Outcomes,
    log: String,
    dead_letters: f64,
}

pub static HOSTILE: LazyLock<Run> = LazyLock::new(|| {
    let mut scene = Scene::bare("hostile", 1, POLICY);
    scene.create_topics([3; 4]);
    let users = scene.ids("good", hostile().iter().map(|case| format!("{USER}-{}", case.name)));
    let mut build = Command::new(weir());
    build.args(["segments", "build", "--user-id", "hash64", "--into"]).arg(scene.path("segments"));
    succeed(build.arg(format!("good={}", users.display())));
    scene.set("WEIR__HTTP__TOKEN", SECRETS[0]);
    scene.set("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", SECRETS[1]);
    scene.set("AWS_SECRET_ACCESS_KEY", SECRETS[2]);
    // Behind each, in the same partition, an intent that must be approved.
    let mut records = Vec::new();
    for hostile in hostile() {
        let name = hostile.name;
        let mut record = case(name, Record { value: hostile.value, ..Record::default() }.partition(1));
        for (key, value) in hostile.headers {
            record.headers.push((String::from_utf8(key.to_vec()).unwrap(), value.map(<[u8]>::to_vec)));
        }
        records.push(record);
        // The same user once more is suppressed, so that every output is in the log's reach.
        for what in ["good", "denied"] {
            let value = format!(r#"{{"id":"{what}-{name}","user_id":"{USER}-{name}","payload":"{PAYLOAD}"}}"#);
            records.push(case(&format!("{what} after {name}"), Record::keyless(value).partition(1)));
        }
        let dead = format!(r#"{{"id":"{USER}","user_id":["{USER}"],"cost":"{PAYLOAD}","created_at":"{PAYLOAD}"}}"#);
        records.push(case(&format!("dead after {name}"), Record::keyless(dead).partition(1).header(USER, PAYLOAD)));
    }
    scene.publish(records);
    let mut worker = scene.drained("hostile");
    let outcomes = scene.outcomes();
    let dead = outcomes.all().filter(|(_, outcome)| outcome.verdict().starts_with("dead")).count();
    // A batch is counted some moments after its commit.
    let counted = || metric(&worker, "weir_dead_letters_total", "").filter(|count| *count >= dead as f64);
    let dead_letters = wait_for(DEADLINE, counted).expect("the dead letters are counted");
    Run { scene, outcomes, log: stop(&mut worker), dead_letters }
});

pub fn every_hostile_record_ends_where_the_docs_say() {
    let wrong: Vec<String> = hostile()
        .iter()
        .filter_map(|hostile| {
            let expected = match hostile.expected {
                Expected::Intent => "approved".to_owned(),
                Expected::DeadLetter(reason) => format!("dead {reason}"),
            };
            let found = HOSTILE.outcomes.of(hostile.name).verdict();
            (found != expected).then(|| format!("{}: {found}, not {expected}", hostile.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(hostile().len() >= 60);
}

pub fn nothing_stops_the_intent_behind_a_hostile_record_is_decided() {
    for hostile in hostile() {
        let verdict = |what: &str| HOSTILE.outcomes.of(&format!("{what} after {}", hostile.name)).verdict();
        assert_eq!(
            (verdict("good"), verdict("denied")),
            ("approved".into(), "cap once 1/1".into()),
            "{}",
            hostile.name
        );
    }
}

pub fn a_dead_letter_keeps_its_value_and_says_where_it_came_from() {
    for hostile in hostile().iter().filter(|hostile| hostile.expected != Expected::Intent) {
        let outcome = HOSTILE.outcomes.of(hostile.name);
        assert_eq!((&outcome.record.value, &outcome.record.key), (&hostile.value, &None), "{}", hostile.name);
        let ours = outcome.ours();
        assert_eq!(ours.len(), 6, "{ours:?}");
        let told = |name: &str| header(&outcome.record, name).unwrap();
        assert_eq!(told("__connect.errors.topic"), HOSTILE.scene.topic("intents"));
        assert_eq!(told("__connect.errors.partition"), "1");
        assert_eq!(told("__connect.errors.offset"), outcome.input.offset.to_string());
        assert!(!told("__connect.errors.exception.message").is_empty());
    }
}

pub fn dead_letters_are_counted() {
    let dead = HOSTILE.outcomes.all().filter(|(_, outcome)| outcome.verdict().starts_with("dead")).count();
    assert!((HOSTILE.dead_letters - dead as f64).abs() < f64::EPSILON, "{} of {dead}", HOSTILE.dead_letters);
}

pub fn logs_hold_no_user_no_payload_and_no_secret() {
    assert!(HOSTILE.log.contains("HTTP is up"), "there is a log");
    for secret in [USER, PAYLOAD].iter().chain(&SECRETS) {
        assert!(!HOSTILE.log.contains(secret), "{secret} is in the log");
    }
}
