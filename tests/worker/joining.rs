//! A group that will never take weir in ends the worker, which says what to do: it would else ask for ever, and never be ready.

use std::time::Duration;

use crate::support::{DEADLINE, POLICY, Scene, contains_all, ends};
use rdkafka::consumer::Consumer;
use testkit::{kafka::BoundedConsumer, wait_until};

/// The last line of a worker that has failed.
#[track_caller]
fn failure(scene: &Scene, env: &[(&str, &str)]) -> String {
    let log = ends(&mut scene.worker_with("i", env), 1);
    log.lines().find(|line| line.starts_with("weir: ")).unwrap_or_else(|| panic!("{log}")).to_owned()
}

/// As in <https://github.com/dpkp/kafka-python/issues/837> and <https://github.com/zendesk/ruby-kafka/issues/186>.
#[test]
fn a_session_that_the_brokers_do_not_allow_and_a_group_of_another_application_end_the_worker() {
    let scene = Scene::new("session", 1, POLICY);
    // The tests' brokers allow half a second to 30 minutes.
    for (session_ms, poll_ms) in [("499", "300000"), ("1800001", "1800001")] {
        let session = ("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", session_ms);
        let poll = ("WEIR__KAFKA__PROPERTIES__MAX_POLL_INTERVAL_MS", poll_ms);
        let said = failure(&scene, &[session, poll]);
        let words = [scene.name.as_str(), "session.timeout.ms", "[kafka.properties]", "group.min.session.timeout.ms"];
        contains_all(&said, &words);
    }

    let mut config = scene.kafka.config();
    config.set("group.id", &scene.name).set("partition.assignment.strategy", "roundrobin");
    let other: BoundedConsumer = config.create().unwrap();
    other.subscribe(&[&scene.topic("intents")]).unwrap();
    wait_until(DEADLINE, "the other application has its partition", || {
        let _ = other.poll(Duration::from_millis(100));
        other.assignment().unwrap().count() > 0
    });
    let said = failure(&scene, &[]);
    contains_all(&said, &[scene.name.as_str(), "another application", "kafka.group"]);
    assert_eq!(other.assignment().unwrap().count(), 1, "the other application goes on");
}
