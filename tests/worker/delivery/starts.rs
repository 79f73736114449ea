//! A route of which nothing is known yet, and one whose worker starts again: no intent is suppressed by a guess, and what delivery
//! takes is kept.

use serde_json::json;
use testkit::{SLOW_INTERVAL, kafka::Record, wait_until, wait_until_every};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::{AHEAD_S, PER_S, Post, all_approved, delivered, looking, mails, pace::fastest_second, paced, route, waits};
use crate::support::{DEADLINE, header, outcome::intent, stop, unlimited};

/// Mails that expire after so many minutes.
pub(super) fn lasting(campaign: &'static str, minutes: i64, count: usize) -> impl Iterator<Item = Record> {
    let expires_at = SystemClock.now().plus(60_000 * minutes);
    let mail = move |number| {
        let fields = json!({"channel": "email", "campaign": campaign, "expires_at": expires_at});
        intent(&format!("{campaign}-{number}"), number, fields)
    };
    (0..count).map(mail)
}

#[test]
fn before_a_rate_is_known_no_intent_expires_for_the_time_that_it_would_wait() {
    const EACH: usize = 2_000;
    // It begins with 1 per second: by that, whoever comes when 1,800 wait would do so for longer than it lives.
    let post = Post::new("never-delivered", "");
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(lasting("blast", 30, EACH));
    wait_until(DEADLINE, "they wait", || waits(&worker) >= EACH as u64 * 9 / 10);
    // What is delivered of so few is no rate.
    wait_until(DEADLINE, "some are delivered", || delivery.delivered().len() >= 10);
    post.scene.publish(lasting("blast", 30, 2 * EACH).skip(EACH));
    post.scene.wait_until_drained();
    assert!(waits(&worker) > 0, "the others wait");
    // The rest at once: without a group, a route takes its rate.
    post.scene.write_policy(&unlimited(2, &paced(5_000)));
    wait_until(DEADLINE, "all are approved", || post.scene.count("approved") >= 2 * EACH);
    all_approved(&post.scene, 2 * EACH);
}

#[test]
fn what_delivery_takes_is_known_to_a_worker_that_starts_later_and_it_approves_no_more_than_that() {
    const TAKES: u32 = 200;
    // For longer than it takes to know a rate.
    const FIRST: usize = 14 * TAKES as usize;
    // More than may stand undelivered.
    const SECOND: usize = 18 * TAKES as usize;
    // It begins with a tenth of its rate.
    let post = Post::new("started-again", &format!("rate = {}", 20 * TAKES));
    let mut worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(TAKES);
    post.scene.publish(mails("first", FIRST));
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= FIRST);
    stop(&mut worker);

    // One that knew of nothing would take 1 per second.
    post.scene.write_policy(&unlimited(1, &delivered(&post.group, "")));
    let worker = looking(&post.scene, "weir-1");
    // Nothing is delivered, so it is not measured.
    let drain = || route(&worker)["drain_per_s"].as_f64().unwrap_or_default();
    wait_until(DEADLINE, "the rate is known", || drain() >= f64::from(TAKES) / 2.0);
    post.scene.publish(mails("second", SECOND));
    wait_until(DEADLINE, "all are delivered", || {
        let lag = post.lag();
        // The estimate of consumers that have not enough to do is up to twice what they took. Offsets of transactions are among the lag,
        // and what is committed is a second old.
        let most = (2.4 * AHEAD_S as f64 + 1.0) * fastest_second(delivery.delivered()) as f64;
        assert!((lag as f64) < most, "{lag} undelivered of at most {most}");
        delivery.delivered().len() >= FIRST + SECOND
    });
    all_approved(&post.scene, FIRST + SECOND);
}

#[test]
fn a_route_whose_group_has_committed_nothing_takes_its_floor_however_much_stands_in_the_topic() {
    const STANDS: usize = 15_000;
    const MAILS: usize = 2_000;
    // The floor is 1%: 200 per second. At 1 per second, they would take longer than a test may.
    let post = Post::new("no-commits", "rate = 20000");
    let other = |number: usize| Record::new(number.to_string(), "{}");
    post.scene.kafka.publish(&post.scene.topic("approved"), (0..STANDS).map(other)).unwrap();
    let worker = looking(&post.scene, "weir-0");
    let approved = || {
        let approved = post.scene.output("approved");
        approved.iter().filter(|record| header(record, "case").is_some()).count()
    };
    post.scene.publish(mails("first", MAILS));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || approved() >= MAILS);
    assert!(post.lag() > STANDS as i64, "none is delivered: {}", post.lag());

    // Its consumers begin at the end, and pass what stands with their first records.
    let mut delivery = post.delivery_from_its_end(4 * PER_S);
    let mut later = mails("later", usize::MAX);
    wait_until(DEADLINE, "some are delivered, and the route is open", || {
        post.scene.publish(later.next());
        let lag = route(&worker)["lag"].as_u64();
        !delivery.delivered().is_empty() && lag.is_some_and(|lag| lag < u64::from(PER_S))
    });
    assert!(delivery.delivered().len() < MAILS, "what stood is not delivered");
}
