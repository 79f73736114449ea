//! An intent whose service would answer too late is `capacity` at once: the service's timeout - 2 x network - the mean time that
//! deliveries take, by the ends of admissions over HTTP and by reports.

use serde_json::{Value, json};
use testkit::{kafka::Record, wait_for, wait_until, worker::Worker};

use super::{email, mails, route, routed, wait_looked, waits};
use crate::support::{
    DEADLINE, Scene,
    http::{get_json, send},
    outcome::intent,
};

const SERVICE: &str = "/v1/services/hedwig-email";
/// An intent waits for at most so long less 100 ms, and less what a delivery takes: one is approved per second.
const TIMEOUT_MS: u64 = 1_000_000;
/// What deliveries take: then fewer than 100 s are left.
const TOOK_MS: u64 = 900_000;

/// Fails unless intents wait, and new ones are `capacity` once `say` has said that deliveries take [`TOOK_MS`].
fn is_early(name: &str, say: impl Fn(&Scene, &Worker)) {
    const WAIT: usize = 500;
    let mut scene = routed(name, (1, 1), &email("service = \"hedwig-email\""));
    scene.set_topic("WEIR__KAFKA__DELIVERY_REPORTS", "reports", 1);
    let worker = scene.ready("weir-0");
    let instance = json!({"capacity_per_s": 1, "concurrency": 9, "timeout_ms": TIMEOUT_MS, "interval_ms": 600_000});
    let (status, registered) = send(&worker, "PUT", &format!("{SERVICE}/instances/hedwig-0"), &instance);
    assert_eq!(status, 200, "{registered}");
    wait_looked(&worker);
    wait_until(DEADLINE, "the service is known", || route(&worker)["registered_per_s"] == 1);
    scene.publish(mails("first", WAIT));
    wait_until(DEADLINE, "most of them wait", || waits(&worker) > WAIT as u64 / 2);
    // They would be answered in time, by the timeout alone.
    scene.publish(mails("second", 5));
    wait_until(DEADLINE, "these wait, too", || scene.count("waiting-email") > WAIT);
    assert_eq!(scene.count("suppressed"), 0);

    say(&scene, &worker);
    wait_until(DEADLINE, "the mean is known", || get_json(&worker, SERVICE)["mean_took_ms"] == TOOK_MS as f64);
    let mut asked = 0;
    let early = wait_for(DEADLINE, || {
        assert!(waits(&worker) > 100, "there is a queue: {}", route(&worker));
        scene.publish([intent(&format!("late-{asked}"), asked, json!({"channel": "email"}))]);
        asked += 1;
        scene.wait_until_drained();
        scene.output("suppressed").pop()
    });
    let early = early.expect("an intent is capacity");
    assert!(early.value_text().contains(r#""reason":"capacity""#), "{}", early.value_text());
}

#[test]
fn ends_of_admissions_say_what_deliveries_take() {
    is_early("early-by-ends", |_, worker| {
        let ask = || send(worker, "POST", &format!("{SERVICE}/admissions"), &json!({}));
        let admitted = wait_for(DEADLINE, || Some(ask()).filter(|(status, _)| *status == 200)).expect("an admission");
        let admitted: Value = serde_json::from_str(&admitted.1).unwrap();
        let id = admitted["id"].as_str().unwrap();
        let end = json!({"took_ms": TOOK_MS, "outcome": "ok"});
        let (status, ended) = send(worker, "DELETE", &format!("{SERVICE}/admissions/{id}"), &end);
        let ended: Value = serde_json::from_str(&ended).unwrap();
        assert_eq!((status, &ended["ended"]), (200, &json!("now")), "{ended}");
    });
}

#[test]
fn reports_that_name_their_route_say_what_deliveries_take() {
    is_early("early-by-reports", |scene, _| {
        let report = |number| {
            let (id, user) = (format!("first-{number}"), format!("{number}"));
            let ok = json!({"intent_id": id, "user_id": user, "outcome": "ok", "route": "email", "took_ms": TOOK_MS});
            Record::keyless(ok.to_string())
        };
        // A route that no policy has is passed over, and so is a report of no route.
        let other = json!({"intent_id": "a", "user_id": "b", "outcome": "ok", "route": "none", "took_ms": 1});
        let none = json!({"intent_id": "a", "user_id": "b", "outcome": "ok", "took_ms": 1});
        let others = [other, none].map(|report| Record::keyless(report.to_string()));
        scene.kafka.publish(&scene.topic("reports"), others.into_iter().chain((0..3).map(report))).unwrap();
    });
}
