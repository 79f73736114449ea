//! What happens where a refunds topic is deleted and made anew, as docs/operations.md says it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::json;
use support::{
    DEADLINE, Scene,
    http::{metric, wait_ready},
    outcome::intent,
};
use testkit::{kafka::Record, process::Exit, wait_until, worker::Worker};

const POLICY: &str = r#"
version = "1"
[segments.new]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[segments.active]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[default]
caps = [{ name = "daily", limit = 1, window = "24h" }]
"#;

fn scene(name: &str) -> Scene {
    let mut scene = Scene::new(name, 1, POLICY);
    scene.kafka.create_topic(&scene.topic("refunds"), 1).unwrap();
    scene.env.push(("WEIR__KAFKA__REFUNDS", scene.topic("refunds")));
    scene
}

fn send(scene: &Scene, wave: &str) {
    scene.publish((0..3).map(|user| intent(&format!("{wave}-{user}"), 5000 + user, json!({}))));
    scene.wait_until_drained();
}

fn refund(scene: &Scene, topic: &str, user: u64) {
    let value = json!({"intent_id": format!("first-{user}"), "user_id": 5000 + user}).to_string();
    scene.kafka.publish(&scene.topic(topic), [Record::keyless(value)]).unwrap();
}

fn wait_counted(worker: &Worker, outcome: &str, count: f64) {
    let labels = format!("outcome=\"{outcome}\"");
    wait_until(DEADLINE, outcome, || metric(worker, "weir_refunds_total", &labels).unwrap_or(0.0) == count);
}

fn stopped(worker: &mut Worker) {
    worker.terminate();
    assert_eq!(worker.wait_exit(DEADLINE).unwrap(), Exit::Code(0), "{}", worker.log());
}

/// Deletes the refunds topic and makes it anew.
fn made_anew(scene: &Scene) {
    scene.kafka.delete_topic(&scene.topic("refunds")).unwrap();
    wait_until(DEADLINE, "it is gone and there again", || scene.kafka.create_topic(&scene.topic("refunds"), 1).is_ok());
}

#[test]
fn under_the_old_name_refunds_are_taken_for_repeated_and_under_another_they_are_taken() {
    let mut scene = scene("refunds-anew");
    let mut worker = scene.worker("only");
    wait_ready(&worker);
    send(&scene, "first");
    refund(&scene, "refunds", 0);
    refund(&scene, "refunds", 1);
    wait_counted(&worker, "taken_back", 2.0);
    stopped(&mut worker);

    made_anew(&scene);
    worker = scene.worker("only");
    refund(&scene, "refunds", 2);
    wait_counted(&worker, "repeated", 1.0);
    send(&scene, "second");
    stopped(&mut worker);
    let decisions = scene.decisions();
    let verdicts = [0, 1, 2].map(|user| decisions[&format!("second-{user}")].reason().to_owned());
    assert_eq!(verdicts, ["approved", "approved", "cap"], "the third refund was passed over");

    scene.kafka.create_topic(&scene.topic("bounces"), 1).unwrap();
    scene.env.push(("WEIR__KAFKA__REFUNDS", scene.topic("bounces")));
    worker = scene.worker("only");
    refund(&scene, "bounces", 2);
    wait_counted(&worker, "taken_back", 1.0);
    send(&scene, "third");
    stopped(&mut worker);
    assert_eq!(scene.decisions()["third-2"].reason(), "approved");
}
