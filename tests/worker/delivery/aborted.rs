//! Offsets of aborted transactions, which hold no record, workers that are killed, and intents that wait when their route's rule changes:
//! nothing is stranded.

use std::time::{Duration, Instant};

use testkit::{kafka::Record, wait_until};

use super::{
    PER_S, Post, all_approved, committed, email, looking, mails, pace::lasting, paced, route, routed, wait_decided,
    wait_looked, waits,
};
use crate::support::{
    DEADLINE, Scene,
    http::{get, metric, wait_degraded, wait_ready, wait_version, wait_whole},
    outcome::cases,
    unlimited,
};

/// Aborts a transaction of so many records on each of the first partitions of a topic.
fn abort(post: &Post, topic: &str, (partitions, records): (i32, usize)) {
    let of = |partition| (0..records).map(move |number| Record::new(number.to_string(), "{}").partition(partition));
    post.scene.kafka.publish_aborted(&post.scene.topic(topic), (0..partitions).flat_map(of)).unwrap();
}

#[test]
fn aborted_records_at_the_end_of_the_approved_topic_close_no_route() {
    const MAILS: usize = 200;
    let post = Post::on(2, "aborted-approved", "rate = 1000");
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery_by_record(PER_S);
    post.scene.publish(mails("before", MAILS));
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    abort(&post, "approved", (2, 5_000));
    wait_until(DEADLINE, "the route is closed", || route(&worker)["why"] == "nothing is delivered: weir probes");
    let stopped = || metric(&worker, "weir_route_throttled", "route=\"email\",why=\"stopped\"");
    wait_until(DEADLINE, "the metrics say why", || stopped() == Some(1.0));
    assert!(post.lag() >= 10_000, "{}", post.lag());
    // One by one, so that those that wait are of all partitions by turns: a probe passes the offsets of its own one.
    let publisher = post.scene.kafka.publisher(&post.scene.topic("intents")).unwrap();
    for mail in mails("behind", MAILS) {
        publisher.send(&mail).unwrap();
        publisher.serve(Instant::now() + Duration::from_millis(10));
    }
    publisher.finish().unwrap();
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= 2 * MAILS);
    all_approved(&post.scene, 2 * MAILS);
    wait_until(DEADLINE, "nothing seems to wait", || waits(&worker) == 0);
}

#[test]
fn aborted_records_at_the_end_of_a_waiting_topic_do_not_wait() {
    const MAILS: usize = 1_500;
    let post = Post::new("aborted-waiting", "rate = 500");
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(4 * PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "some wait", || waits(&worker) > 0);
    // In partitions where something waits, and in others.
    abort(&post, "waiting-email", (32, 100));
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    wait_until(DEADLINE, "nothing seems to wait", || waits(&worker) == 0);
    abort(&post, "waiting-email", (8, 100));
    wait_until(DEADLINE, "aborted records are counted", || waits(&worker) > 0);
    wait_until(DEADLINE, "they are passed", || waits(&worker) == 0);
    all_approved(&post.scene, MAILS);
}

#[test]
fn aborted_records_on_a_waiting_topic_let_no_fresh_intent_expire_while_nobody_has_read_them() {
    const MAILS: usize = 60;
    // By their offsets, an intent would wait for nearly two hours.
    let mut post = Post::new("aborted-unread", "rate = 5");
    post.scene.end_sessions_soon();
    let mut worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(PER_S);
    worker.kill();
    abort(&post, "waiting-email", (32, 1_000));
    // Kafka gives its partitions to the next process once its session is over.
    let worker = post.scene.worker("weir-0");
    let is_ready = || get(&worker, "/readyz").0 == 200;
    wait_until(DEADLINE, "aborted records are counted, or may be read", || waits(&worker) > 30_000 || is_ready());
    post.scene.publish(lasting("fresh", 60, MAILS));
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    all_approved(&post.scene, MAILS);
    wait_until(DEADLINE, "nothing seems to wait", || waits(&worker) == 0);
}

#[test]
fn intents_that_wait_when_the_rule_of_their_route_changes_are_decided_by_the_new_one() {
    const MAILS: usize = 1_000;
    let scene = routed("unqueued", (4, 32), &paced(5));
    let worker = looking(&scene, "weir-0");
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > MAILS as u64 * 9 / 10);
    scene.write_policy(&unlimited(2, &email("rate = 5\nwhen_full = \"suppress\"")));
    wait_decided(&scene, MAILS);
    let [approved, suppressed] = ["approved", "suppressed"].map(|topic| scene.output(topic));
    assert_eq!(cases(&[approved, suppressed.clone()].concat()).len(), MAILS, "each intent has one record");
    assert!(suppressed.len() > MAILS / 2, "{} of {MAILS}", suppressed.len());
    assert!(suppressed.iter().all(|record| record.value_text().contains(r#""reason":"capacity""#)));
}

#[test]
fn a_policy_is_not_taken_up_until_the_topic_of_its_route_is_there() {
    let mut scene = Scene::new("late-topic", 4, &unlimited(1, ""));
    scene.set("WEIR__KAFKA__WAITING", scene.topic("waiting"));
    let worker = scene.ready("weir-0");
    wait_version(&worker, "policy", "1");
    scene.write_policy(&unlimited(2, &paced(500)));
    let entry = wait_degraded(&worker, "policy");
    let topic = scene.topic("waiting-email");
    assert!(entry["message"].as_str().unwrap().contains(&topic), "{entry}");
    scene.decide(mails("before", 100));
    assert_eq!(metric(&worker, "weir_version_info", "source=\"policy\",version=\"2\""), None, "it is not in force");
    assert_eq!(scene.count("approved"), 100, "the policy before is in force");
    scene.create_waiting([(topic, 32)]);
    wait_version(&worker, "policy", "2");
    wait_whole(&worker);
}

#[test]
fn workers_killed_while_intents_wait_lose_none_and_approve_none_twice() {
    const MAILS: usize = 6_000;
    let mut post = Post::new("killed", "rate = 2000");
    post.scene.end_sessions_soon();
    let env = [("WEIR__WORKER__BATCH", "200")];
    let steady = post.scene.worker_with("steady", &env);
    wait_looked(&steady);
    let mut delivery = post.delivery_by_record(4 * PER_S);
    let end = |topic: &str| post.scene.kafka.end_offsets(&post.scene.topic(topic)).unwrap().into_iter().sum::<i64>();
    let (written, approved) = (|| end("waiting-email"), || end("approved"));
    let read = || committed(&post.scene, "email").into_iter().flatten().sum::<i64>();
    // While it writes what waits, while it reads it, and while it approves.
    let steps: [(&str, &dyn Fn() -> i64); 3] = [("writes", &written), ("reads", &read), ("approves", &approved)];
    for (number, (step, progress)) in steps.into_iter().enumerate() {
        let mut victim = post.scene.worker_with("victim", &env);
        wait_ready(&victim);
        let third = MAILS / 3;
        let part = mails("blast", MAILS).skip(number * third).take(third);
        let before = progress();
        post.scene.publish(part);
        wait_until(DEADLINE, step, || progress() > before);
        victim.kill();
    }
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    all_approved(&post.scene, MAILS);
    // What the victims left open was aborted, and waits no more.
    wait_until(DEADLINE, "nothing seems to wait", || waits(&steady) == 0);
}
