//! The promise: a delivery that failed is tried again, once each time and counted once, and then is undelivered.

use std::collections::BTreeMap;

use crate::{
    deferral::Lapse,
    reports::POLICY,
    support::{DEADLINE, Scene, approval, header, http::metric, outcome::intent, stop},
};
use serde_json::{Value, json};
use testkit::{
    SLOW_INTERVAL,
    kafka::{Consumed, Record},
    wait_until, wait_until_every,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

fn lapse(name: &str, policy: &str) -> Lapse {
    lapse_at(name, policy, "2026-11-20T21:30:00Z")
}

fn lapse_at(name: &str, policy: &str, at: &str) -> Lapse {
    let mut lapse = Lapse::begin(name, 1, policy, at);
    for (topic, variable) in [("retries", "WEIR__KAFKA__RETRIES"), ("undelivered", "WEIR__KAFKA__UNDELIVERED")] {
        let name = lapse.scene.topic(topic);
        lapse.scene.kafka.create_topic_with(&name, 2, &[("max.message.bytes", "9000000")]).unwrap();
        lapse.scene.set(variable, name);
    }
    lapse
}

/// What a delivery service does whose delivery failed: it writes the approved record as it is.
fn fail(scene: &Scene, records: impl IntoIterator<Item = Consumed>) {
    let as_it_is = |record: Consumed| {
        let Consumed { key, value, headers, .. } = record;
        Record { key, value, headers, ..Record::default() }
    };
    scene.kafka.publish(&scene.topic("retries"), records.into_iter().map(as_it_is)).unwrap();
}

/// Waits until a topic has so many records, and gives them in the order in which they were written.
fn wait_output(worker: &mut Worker, scene: &Scene, topic: &str, count: usize) -> Vec<Consumed> {
    wait_until(DEADLINE, &format!("{count} in {topic}"), || {
        assert_eq!(worker.exit(), None, "the worker ended");
        scene.output(topic).len() >= count
    });
    let mut records = scene.output(topic);
    assert_eq!(records.len(), count, "{topic}");
    records.sort_by_key(|record| (record.partition, record.offset));
    records
}

fn retry_of(record: &Consumed) -> u64 {
    approval(record).get("retry").map_or(0, |retry| retry.as_u64().unwrap())
}

fn of(records: &[Consumed], name: &str, retry: u64) -> Consumed {
    let mut found =
        records.iter().filter(|record| header(record, "case").unwrap() == name && retry_of(record) == retry);
    let one = found.next().unwrap_or_else(|| panic!("{name} has no record of retry {retry}")).clone();
    assert_eq!(found.next(), None, "{name} has two records of retry {retry}");
    one
}

#[test]
fn a_failed_delivery_comes_back_as_it_was_and_counts_once_until_it_is_given_up() {
    let mut lapse = lapse("retries", POLICY);
    let mut worker = lapse.worker("only");
    let forged = r#"{"verdict":"approved","decided_at":"2020-01-01T00:00:00.000Z","policy_version":"","segments_version":"","retry":4}"#;
    lapse.scene.publish([
        intent("mail", "u-mail", json!({})).header("weir-decision", forged).header("weir-why", "retry"),
        intent("expires", "u-expires", json!({"expires_at": "2026-11-20T21:31:00Z"})),
    ]);
    let mut approved = wait_output(&mut worker, &lapse.scene, "approved", 2);
    let first = of(&approved, "mail", 0);
    for (retry, clock) in (1..=4).zip(["21:40:01", "21:50:01", "22:00:01", "22:10:01"]) {
        fail(&lapse.scene, [of(&approved, "mail", retry - 1)]);
        wait_until_every(SLOW_INTERVAL, DEADLINE, "it is deferred", || lapse.waiting() == 1);
        assert_eq!(lapse.scene.count("approved"), approved.len(), "not before it is due");
        lapse.move_to(&format!("2026-11-20T{clock}Z"));
        approved = wait_output(&mut worker, &lapse.scene, "approved", approved.len() + 1);
        let again = of(&approved, "mail", retry);
        assert_eq!((&again.key, &again.value, again.partition), (&first.key, &first.value, first.partition));
        let (ours, theirs) = again.headers.split_last().unwrap();
        assert_eq!(theirs, &first.headers[..first.headers.len() - 1], "the publisher's headers stay");
        let mut expected = approval(&first);
        expected["retry"] = json!(retry);
        assert_eq!(ours.0, "weir-decision");
        assert_eq!(serde_json::from_slice::<Value>(ours.1.as_ref().unwrap()).unwrap(), expected, "the same decision");
    }
    // The fifth delivery fails; one is too late; and one never was approved.
    let foreign = Consumed { headers: Vec::new(), ..first.clone() };
    fail(&lapse.scene, [of(&approved, "mail", 4), of(&approved, "expires", 0), foreign]);
    let undelivered = wait_output(&mut worker, &lapse.scene, "undelivered", 2);
    let why: BTreeMap<String, String> = undelivered
        .iter()
        .map(|record| (header(record, "case").unwrap(), header(record, "weir-reason").unwrap()))
        .collect();
    let expected = [("expires", "expired"), ("mail", "attempts")];
    assert_eq!(why, expected.map(|(name, why)| (name.to_owned(), why.to_owned())).into());
    let mail = undelivered.iter().find(|record| header(record, "case").unwrap() == "mail").unwrap();
    let (_, as_it_came) = mail.headers.split_last().unwrap();
    assert_eq!((&mail.value, as_it_came), (&first.value, &*of(&approved, "mail", 4).headers));
    let dead = wait_output(&mut worker, &lapse.scene, "dead", 1);
    assert_eq!(header(&dead[0], "weir-reason").unwrap(), "missing_field");
    assert!(header(&dead[0], "__connect.errors.exception.message").unwrap().contains("weir-decision"));

    // It counts once, and from its first decision on.
    lapse.scene.publish([intent("second", "u-mail", json!({}))]);
    let suppressed = wait_output(&mut worker, &lapse.scene, "suppressed", 1);
    let envelope: Value = serde_json::from_slice(suppressed[0].value.as_ref().unwrap()).unwrap();
    assert_eq!((&envelope["reason"], &envelope["cap"]["used"]), (&json!("cap"), &json!(1)));
    assert_eq!(metric(&worker, "weir_retried_total", ""), Some(4.0));
    assert_eq!(metric(&worker, "weir_undelivered_total", "why=\"attempts\""), Some(1.0));
    assert_eq!(metric(&worker, "weir_undelivered_total", "why=\"expired\""), Some(1.0));
    assert_eq!(metric(&worker, "weir_deferred_total", "why=\"retry\""), Some(4.0));
}

#[test]
fn a_retry_that_is_given_up_when_no_topic_is_set_for_it_is_not_lost() {
    let mut lapse = lapse("retries-unset", POLICY);
    let mut worker = lapse.worker("only");
    lapse.scene.publish([intent("expires", "u-expires", json!({"expires_at": "2026-11-20T21:40:00Z"}))]);
    let approved = wait_output(&mut worker, &lapse.scene, "approved", 1);
    fail(&lapse.scene, [of(&approved, "expires", 0)]);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "it is deferred", || lapse.waiting() == 1);
    stop(&mut worker);
    lapse.move_to("2026-11-20T21:41:00Z");
    let set = std::mem::take(&mut lapse.scene.env);
    lapse.scene.env = set.iter().filter(|(name, _)| *name == "WEIR__KAFKA__DEFERRED").cloned().collect();
    let mut worker = lapse.worker("only");
    let exit = worker.wait_exit(DEADLINE).unwrap();
    assert!(worker.log().contains("kafka.undelivered is not set"), "{exit:?} {}", worker.log());
    assert_eq!(lapse.waiting(), 1, "it still waits");

    lapse.scene.env = set;
    let mut worker = lapse.worker("only");
    let undelivered = wait_output(&mut worker, &lapse.scene, "undelivered", 1);
    assert_eq!(header(&undelivered[0], "weir-reason").unwrap(), "expired");
    assert_eq!(wait_output(&mut worker, &lapse.scene, "approved", 1), approved);
}

#[test]
fn a_worker_that_is_killed_delivers_again_once() {
    const COUNT: usize = 400;
    let mut lapse = lapse("retries-killed", "version = \"1\"\n[default]\ncaps = \"unlimited\"\n");
    lapse.scene.set("WEIR__WORKER__BATCH", "20");
    let mut worker = lapse.worker("only");
    lapse.scene.publish((0..COUNT).map(|number| intent(&number.to_string(), number, json!({}))));
    let approved = wait_output(&mut worker, &lapse.scene, "approved", COUNT);
    fail(&lapse.scene, approved);
    wait_until(DEADLINE, "some are deferred", || lapse.waiting() > 0);
    worker.kill();
    let deferred = lapse.waiting();
    let mut worker = lapse.worker("only");
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are deferred", || lapse.waiting() == COUNT as i64);
    lapse.move_to("2026-11-20T21:40:01Z");
    wait_until(DEADLINE, "some are approved again", || {
        lapse.scene.kafka.read_committed(&lapse.scene.topic("approved")).unwrap().len() > COUNT
    });
    worker.kill();
    let mut worker = lapse.worker("only");
    let approved = wait_output(&mut worker, &lapse.scene, "approved", 2 * COUNT);
    for (number, retry) in (0..COUNT).flat_map(|number| [(number, 0), (number, 1)]) {
        of(&approved, &number.to_string(), retry);
    }
    assert_eq!(lapse.waiting(), 0, "{deferred} were deferred when it was killed first");
}

#[test]
fn retries_take_permits_of_their_route_and_wait_for_them_in_turn() {
    const COUNT: usize = 400;
    let route = "[[routes]]\nname = \"email\"\nchannel = \"email\"\nahead = \"5s\"\nrate = 100\n";
    let policy = format!("version = \"1\"\n[default]\ncaps = \"unlimited\"\n{route}");
    // Now: Kafka deletes what has stood in the topic of waiting intents for five days.
    let began = SystemClock.now();
    let mut lapse = lapse_at("retries-paced", &policy, &began.to_string());
    lapse.scene.wait_for_routes(&["email"]);
    let mut worker = lapse.worker("only");
    let mail = |number: usize| intent(&number.to_string(), number, json!({"channel": "email"}));
    lapse.scene.publish((0..COUNT).map(mail));
    let approved = wait_output(&mut worker, &lapse.scene, "approved", COUNT);
    fail(&lapse.scene, approved);
    // Some may be due already: a minute is over soon.
    let deferred = || metric(&worker, "weir_deferred_total", "why=\"retry\"");
    wait_until(DEADLINE, "all are deferred", || deferred() == Some(COUNT as f64));
    lapse.move_to(&began.plus(20 * 60_000).to_string());
    let approved = wait_output(&mut worker, &lapse.scene, "approved", 2 * COUNT);
    for (number, retry) in (0..COUNT).flat_map(|number| [(number, 0), (number, 1)]) {
        of(&approved, &number.to_string(), retry);
    }
    // Those of a minute are due at once: four seconds of the rate.
    let waited = lapse.scene.output("waiting-email");
    let waited = waited.iter().filter(|record| header(record, "weir-why").as_deref() == Some("retry")).count();
    assert!(waited >= COUNT / 4, "{waited} retries of {COUNT} waited for a permit");
    assert!(lapse.scene.output("suppressed").is_empty() && lapse.scene.output("dead").is_empty());
    assert!(lapse.scene.output("undelivered").is_empty(), "none is given up");
    assert_eq!(metric(&worker, "weir_retried_total", "route=\"email\""), Some(COUNT as f64));
}
