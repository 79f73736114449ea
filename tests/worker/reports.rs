//! The promise: a delivery that failed for good counts no longer, and other reports change nothing.

use crate::support::{DEADLINE, Scene, header, http::metric, outcome::intent, stop};
use serde_json::{Value, json};
use testkit::{
    kafka::{Consumed, Record},
    wait_until,
    worker::Worker,
};

pub(super) const POLICY: &str =
    "version = \"1\"\n[default]\ncaps = [{ name = \"daily\", limit = 1, window = \"24h\" }]\n";

pub(super) const USER: &str = "u-1";

/// One send to the user, whom a cap lets have one a day; what became of it.
pub(super) fn send(scene: &Scene, id: &str) -> String {
    scene.decide([intent(id, USER, json!({}))]);
    scene.decisions()[id].reason().to_owned()
}

pub(super) fn report(scene: &Scene, topic: &str, value: &Value) {
    scene.kafka.publish(&scene.topic(topic), [Record::keyless(value.to_string())]).unwrap();
}

pub(super) fn wait_counted(worker: &Worker, name: &str, outcome: &str, count: f64) {
    let labels = format!("outcome=\"{outcome}\"");
    wait_until(DEADLINE, outcome, || metric(worker, name, &labels).unwrap_or(0.0) == count);
}

const REPORTS: &str = "weir_delivery_reports_total";

#[test]
fn a_delivery_that_failed_for_good_counts_no_longer_and_refunds_are_apart() {
    let mut scene = Scene::new("reports", 1, POLICY);
    scene.set_topic("WEIR__KAFKA__DELIVERY_REPORTS", "reports", 1);
    scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 1);
    let mut worker = scene.ready("only");
    assert_eq!([send(&scene, "first"), send(&scene, "second")], ["approved", "cap"]);
    report(&scene, "reports", &json!({"intent_id": "first", "user_id": USER, "outcome": "ok", "took_ms": 12}));
    wait_counted(&worker, REPORTS, "ok", 1.0);
    assert_eq!(send(&scene, "third"), "cap");
    report(&scene, "reports", &json!({"intent_id": "first", "user_id": USER, "outcome": "permanent", "took_ms": 12}));
    wait_counted(&worker, REPORTS, "taken_back", 1.0);
    assert_eq!(send(&scene, "fourth"), "approved");
    // The refunds topic begins at offset 0, below what its shard has taken of the reports.
    report(&scene, "refunds", &json!({"intent_id": "fourth", "user_id": USER}));
    wait_counted(&worker, "weir_refunds_total", "taken_back", 1.0);
    assert_eq!(send(&scene, "fifth"), "approved");
    report(&scene, "reports", &json!({"intent_id": "fourth", "user_id": USER, "outcome": "permanent"}));
    wait_counted(&worker, REPORTS, "unknown", 1.0);
    report(&scene, "reports", &json!({"intent_id": "fifth", "user_id": USER, "outcome": "later"}));
    wait_until(DEADLINE, "a dead letter", || scene.count("dead") == 1);
    assert_eq!(header(&scene.output("dead")[0], "weir-reason").unwrap(), "wrong_type");
    assert_eq!(header(&scene.output("dead")[0], "__connect.errors.topic").unwrap(), scene.topic("reports"));
    stop(&mut worker);
}

#[test]
fn a_rebuild_refunds_what_failed_for_good_and_counts_a_retry_once() {
    let policy = format!("{POLICY}[[budgets]]\nname = \"all\"\nlimit = 2\ntotal = true\n");
    let (redis, mut scene) = Scene::with_redis("reports-rebuild", 1, &policy);
    scene.kafka.create_topic_with(&scene.topic("reports"), 1, &[("retention.ms", "691200000")]).unwrap();
    scene.set("WEIR__KAFKA__DELIVERY_REPORTS", scene.topic("reports"));
    let mut worker = scene.ready("only");
    assert_eq!(send(&scene, "first"), "approved");
    report(&scene, "reports", &json!({"intent_id": "first", "user_id": USER, "outcome": "ok"}));
    report(&scene, "reports", &json!({"intent_id": "first", "user_id": USER, "outcome": "permanent"}));
    wait_counted(&worker, REPORTS, "taken_back", 1.0);
    stop(&mut worker);
    // Its second delivery, as weir writes it.
    let Consumed { key, value, mut headers, .. } = scene.output("approved").remove(0);
    let decision = headers.last_mut().unwrap().1.as_mut().unwrap();
    *decision = [decision.strip_suffix(b"}").unwrap(), br#","retry":1}"#].concat();
    scene.kafka.publish(&scene.topic("approved"), [Record { key, value, headers, ..Record::default() }]).unwrap();

    redis.query::<()>(&["FLUSHALL"]).unwrap();
    let summary = scene.summary(&["rebuild", "--all", "--budget", "all", "--settle", "0s"]);
    assert_eq!((&summary["sends"], &summary["taken_back"]), (&json!(1), &json!(1)), "{summary}");
    assert_eq!(summary["delivery_report_records"], 2, "{summary}");
    let _worker = scene.ready("only");
    scene.decide(["second", "third"].map(|id| intent(id, USER, json!({}))));
    let told = |id: &str| {
        let found = scene.every_decision().into_iter().filter(|(found, _)| found == id);
        found.map(|(_, decision)| decision.reason().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told("second"), ["approved"], "neither cap nor budget knows more than one send");
    assert_eq!(told("third"), ["budget"], "both are spent now, and the budget is asked first");
}
