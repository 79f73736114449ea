//! Topics of waiting intents that take small records alone, or that are not there: no worker ends, and no other limit is lost.

use serde_json::json;
use testkit::{kafka::Record, wait_until, worker::Worker};

use super::{looking, mails, paced, routed};
use crate::support::{
    DEADLINE, Scene,
    outcome::{self, intent},
    unlimited,
};

/// An e-mail of more than so many bytes.
fn large(name: &str, bytes: usize) -> Record {
    intent(name, 1, json!({"channel": "email", "payload": "x".repeat(bytes)}))
}

fn limit(scene: &Scene, topic: &str, bytes: &str) {
    scene.kafka.configure_topic(&scene.topic(topic), &[("max.message.bytes", bytes)]).unwrap();
}

/// Waits until the dead letters are those of these cases, each too large. The worker must not end.
fn wait_dead(scene: &Scene, worker: &mut Worker, cases: &[&str]) {
    wait_until(DEADLINE, "it is a dead letter", || {
        assert_eq!(worker.exit(), None, "the worker ended");
        scene.count("dead") >= cases.len()
    });
    let dead = scene.output("dead");
    assert!(dead.iter().all(|letter| letter.header("weir-reason") == Some("too_large")), "{dead:?}");
    assert_eq!(outcome::cases(&dead).iter().collect::<Vec<_>>(), cases);
}

#[test]
fn what_the_topic_of_its_route_does_not_take_is_a_dead_letter_where_it_has_to_wait_and_ends_no_worker() {
    const MAILS: usize = 400;
    let scene = routed("waiting-small", (1, 32), &paced(1));
    limit(&scene, "waiting-email", "60000");
    let mut worker = looking(&scene, "only");
    // The route has a permit or two for the first ones.
    scene.publish(mails("first", MAILS).chain([large("known", 100_000)]));
    wait_dead(&scene, &mut worker, &["known"]);
    limit(&scene, "waiting-email", "30000");
    // Of many small ones together more than the topic takes wait at a time.
    scene.publish(mails("second", MAILS).chain([large("lowered", 50_000)]));
    wait_dead(&scene, &mut worker, &["known", "lowered"]);
    scene.change_policy(&worker, "2", &unlimited(2, ""));
    scene.publish([large("unpaced", 50_000)]);
    wait_until(DEADLINE, "all others are approved", || scene.count("approved") > 2 * MAILS);
    assert_eq!(scene.count("approved"), 2 * MAILS + 1, "each intent has one record");
    wait_dead(&scene, &mut worker, &["known", "lowered"]);
}

#[test]
fn a_topic_of_waiting_intents_that_is_missing_or_deleted_hides_no_other_limit() {
    // Intents of the first route do not wait, so it has no topic.
    let sms = "[[routes]]\nname = \"sms\"\nchannel = \"sms\"\nrate = 1000\nwhen_full = \"suppress\"\n";
    let push = "[[routes]]\nname = \"push\"\nchannel = \"push\"\nrate = 1000\n";
    let policy = unlimited(1, &[sms, push, &paced(1_000)].concat());
    let mut scene = Scene::new("waiting-missing", 1, &policy);
    scene.wait_for_routes(&["push", "email"]);
    limit(&scene, "approved", "60000");
    let mut worker = looking(&scene, "only");
    scene.publish([large("before", 100_000), large("fits", 20_000)]);
    wait_dead(&scene, &mut worker, &["before"]);
    wait_until(DEADLINE, "the other one is approved", || scene.count("approved") == 1);
    limit(&scene, "approved", "30000");
    scene.publish([large("lowered", 50_000)]);
    wait_dead(&scene, &mut worker, &["before", "lowered"]);
    scene.kafka.delete_topic(&scene.topic("waiting-push")).unwrap();
    limit(&scene, "approved", "15000");
    scene.publish([large("without", 20_000), large("small", 1_000)]);
    wait_dead(&scene, &mut worker, &["before", "lowered", "without"]);
    wait_until(DEADLINE, "the others are approved", || scene.count("approved") == 2);
}
