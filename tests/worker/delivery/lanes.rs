//! The lanes of intents that wait are seen: they belong to readiness, and to the metrics; and what they found deleted is told.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::{SLOW_INTERVAL, kafka::Consumed, wait_for, wait_until, wait_until_every, worker::Worker};

use super::{Post, committed, looking, mails, paced, routed};
use crate::support::{
    DEADLINE, Scene, header,
    http::{get, metric, wait_degraded, wait_ready},
    outcome::cases,
    stop, unlimited,
};

#[test]
fn an_instance_is_ready_once_its_lanes_of_waiting_intents_have_their_partitions() {
    let post = Post::new("waiting-lanes", "rate = 100");
    // A group waits for a member that is frozen until its session ends.
    let env = [("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "120000")];
    let mut first = post.scene.worker_with("first", &env);
    wait_ready(&first);
    let is_ready = |worker: &Worker| metric(worker, "weir_waiting_lane_ready", "route=\"email\"");
    assert_eq!(is_ready(&first), Some(1.0));
    first.freeze();
    let second = post.scene.worker_with("second", &env);
    let waits = wait_for(DEADLINE, || {
        let (status, body) = get(&second, "/readyz");
        let problem: Value = serde_json::from_str(&body).ok()?;
        let detail = problem["detail"].as_str()?;
        let named = "the lane of intents that wait for the route email waits for its partitions";
        (status == 503 && detail.contains(named)).then_some(())
    });
    assert!(waits.is_some(), "{:?}", get(&second, "/readyz"));
    assert_eq!((is_ready(&second), get(&second, "/livez").0), (Some(0.0), 200));
    first.thaw();
    wait_ready(&second);
    wait_until(DEADLINE, "both have partitions", || {
        [&first, &second].into_iter().all(|worker| is_ready(worker) == Some(1.0))
    });
}

#[test]
fn what_kafka_deletes_undecided_is_counted_and_reported() {
    const MAILS: usize = 400;
    const DELETED: i64 = 20;
    let scene = routed("deleted", (1, 4), &paced(1));
    let mut worker = looking(&scene, "weir-0");
    assert_eq!(deleted(&worker, &scene), None);
    // Each campaign waits on two partitions.
    let campaigns = ["spring", "summer", "autumn", "winter"];
    scene.decide(campaigns.into_iter().flat_map(|campaign| mails(campaign, MAILS / campaigns.len())));
    stop(&mut worker);
    let topic = scene.topic("waiting-email");
    let waiting = scene.output("waiting-email");
    let mut lost = BTreeSet::new();
    let mut partitions = 0;
    let ends = scene.kafka.end_offsets(&topic).unwrap();
    for (partition, (from, end)) in (0..).zip(committed(&scene, "email").into_iter().zip(ends)) {
        let before = from.unwrap_or(0) + DELETED;
        if end <= before {
            continue;
        }
        scene.kafka.delete_records(&topic, partition, before).unwrap();
        partitions += 1;
        let of_partition = waiting.iter().filter(|record| record.partition == partition);
        let is_lost = |record: &&Consumed| record.offset >= from.unwrap_or(0) && record.offset < before;
        lost.extend(of_partition.filter(is_lost).map(|record| header(record, "case").unwrap()));
    }
    assert!(lost.len() as i64 > DELETED / 2, "{} are lost", lost.len());

    let worker = scene.ready("weir-0");
    let entry = wait_degraded(&worker, "deleted");
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains(&topic) && message.contains("retention"), "{message}");
    assert_eq!(deleted(&worker, &scene), Some((partitions * DELETED) as f64), "offsets of {partitions} partitions");
    scene.change_policy(&worker, "2", &unlimited(2, &paced(1_000)));
    let left = MAILS - lost.len();
    wait_until_every(SLOW_INTERVAL, DEADLINE, "the others are approved", || scene.count("approved") >= left);
    let approved = cases(&scene.output("approved"));
    assert_eq!(approved.len(), left);
    assert!(approved.is_disjoint(&lost));
}

/// The same where the clients of the worker were replaced before.
#[test]
fn what_kafka_deletes_undecided_is_reported_though_clients_were_replaced_before() {
    let mut scene = routed("deleted-later", (1, 4), &paced(1));
    // Nobody asks for it here; but clients are created from it.
    let password = scene.path("password");
    std::fs::write(&password, "first").unwrap();
    scene.set("WEIR__KAFKA__PROPERTY_FILES__SASL_PASSWORD", password.display().to_string());
    scene.set("WEIR__KAFKA__REFRESH", "1s");
    let worker = looking(&scene, "weir-0");
    scene.decide(mails("spring", 400));
    let group = format!("{}-waiting-email", scene.name);
    let is_of_lane = |line: &str| line.contains("joining the group with a new consumer") && line.contains(&group);
    std::fs::write(&password, "second").unwrap();
    wait_until(DEADLINE, "the lane of waiting intents has another client", || worker.log().lines().any(is_of_lane));
    wait_ready(&worker);
    // All but the last one: the route takes one per second.
    let topic = scene.topic("waiting-email");
    for (partition, end) in (0..).zip(scene.kafka.end_offsets(&topic).unwrap()).filter(|(_, end)| *end > 1) {
        scene.kafka.delete_records(&topic, partition, end - 1).unwrap();
    }
    std::fs::write(&password, "third").unwrap();
    wait_until(DEADLINE, "it is counted", || deleted(&worker, &scene).is_some_and(|offsets| offsets > 1.0));
    wait_ready(&worker);
    let entry = wait_degraded(&worker, "deleted");
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains(&topic), "{message}");
}

/// How many offsets weir says that retention has deleted undecided.
fn deleted(worker: &Worker, scene: &Scene) -> Option<f64> {
    metric(worker, "weir_deleted_undecided_total", &format!("topic=\"{}\"", scene.topic("waiting-email")))
}
