//! The promise: users who were reported as active may be written to under pressure, by HTTP and by topic, also after a restart; an
//! invalid report is a dead letter.

use serde_json::{Value, json};
use testkit::{kafka::Record, wait_until, worker::Worker};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::support::{
    DEADLINE, Scene,
    http::{metric, send},
    outcome::intent,
    stop,
};

/// So few that the first intents fill them.
const POLICY: &str = r#"
version = "1"
[default]
caps = "unlimited"
[segments.new]
caps = "unlimited"
[segments.active]
caps = "unlimited"
[pressure]
max_active_users = 1000
window = "2h"
action = "suppress"
"#;

/// Reported users are more than the maximum: reports make users active whatever it is.
const REPORTED: std::ops::Range<u64> = 2_000_000..2_001_100;

fn scene(name: &str) -> Scene {
    let mut scene = Scene::new(name, 1, POLICY);
    scene.set_topic("WEIR__KAFKA__ACTIVITY", "activity", 2);
    scene.extra = "[activity.fields]\nuser_id = \"/who/id\"\n".to_owned();
    scene
}

fn publish(scene: &Scene, values: impl IntoIterator<Item = Value>) {
    let records = values.into_iter().map(|value| Record::keyless(value.to_string()).partition(0));
    scene.kafka.publish(&scene.topic("activity"), records).unwrap();
}

fn reports(worker: &Worker, by: &str, outcome: &str) -> f64 {
    metric(worker, "weir_activity_reports_total", &format!("by=\"{by}\",outcome=\"{outcome}\"")).unwrap_or(0.0)
}

/// What becomes of an intent to each user.
fn reasons(scene: &Scene, run: &str, users: &[u64]) -> Vec<String> {
    let id = |user: &u64| format!("{run}-{user}");
    scene.decide(users.iter().map(|user| intent(&id(user), *user, json!({}))));
    let decisions = scene.decisions();
    users.iter().map(|user| decisions[&id(user)].reason().to_owned()).collect()
}

fn wait_throttling(worker: &Worker) {
    wait_until(DEADLINE, "it throttles", || metric(worker, "weir_pressure_throttling", "") == Some(1.0));
}

fn post(worker: &Worker, body: &Value) {
    assert_eq!(send(worker, "POST", "/v1/activity", body).0, 200);
}

#[test]
fn reported_users_pass_under_pressure_also_after_a_restart_and_an_invalid_report_is_a_dead_letter() {
    let scene = scene("activity");
    // A group without offsets starts at what may still count: in the middle of the first partition, and of the second at its end.
    let three_hours_ago = SystemClock.now().plus(-3 * 3_600_000).millis();
    let old = |partition| Record::keyless("{}").partition(partition).timestamp_ms(three_hours_ago);
    scene.kafka.publish(&scene.topic("activity"), [old(0), old(0), old(1)]).unwrap();
    publish(&scene, REPORTED.map(|user| json!({"who": {"id": user}})));
    let mut worker = scene.ready("only");
    let all = REPORTED.count() as f64;
    wait_until(DEADLINE, "all reports are taken", || reports(&worker, "kafka", "noted") == all);
    wait_throttling(&worker);
    let committed = || scene.kafka.committed(&format!("{}-activity", scene.name), &scene.topic("activity")).unwrap();
    wait_until(DEADLINE, "it is committed", || committed() == [Some(2 + 1100), Some(1)]);
    assert_eq!(scene.count("dead"), 0, "the old records were passed over");

    let now = "2001-01-01T00:00:00Z";
    publish(&scene, [json!({"who": {"id": "ghost"}, "at": now}), json!({"who": "ghost"}), json!({"who": {"id": 7}})]);
    wait_until(DEADLINE, "they are taken", || {
        reports(&worker, "kafka", "late") == 1.0 && reports(&worker, "kafka", "noted") == all + 1.0
    });
    wait_until(DEADLINE, "the invalid report is a dead letter", || scene.count("dead") == 1);
    let letter = &scene.output("dead")[0];
    assert_eq!(letter.header("weir-reason"), Some("missing_field"));
    assert_eq!(letter.header("__connect.errors.topic"), Some(scene.topic("activity").as_str()));
    assert!(letter.header("__connect.errors.exception.message").unwrap().contains("/who/id"), "{letter:?}");

    post(&worker, &json!({"user_ids": [8, "9"]}));
    assert_eq!(reports(&worker, "http", "noted"), 2.0);
    let (known, unknown) = ([REPORTED.start, REPORTED.end - 1, 7, 8, 9], [10, 11]);
    assert_eq!(reasons(&scene, "first", &known), ["approved"; 5]);
    assert_eq!(reasons(&scene, "first", &unknown), ["pressure"; 2]);
    wait_until(DEADLINE, "no lag", || metric(&worker, "weir_activity_lag_records", "") == Some(0.0));

    stop(&mut worker);
    let worker = scene.ready("only");
    assert_eq!(reasons(&scene, "second", &known), ["approved"; 5]);
    assert_eq!(reasons(&scene, "second", &unknown), ["pressure"; 2]);
    assert_eq!(reports(&worker, "kafka", "noted"), 0.0, "what is committed is not read again");
}
