//! Nothing that waits is deleted undecided: what a route has not taken within 72 h is suppressed, whatever the route takes.

use testkit::{
    SLOW_INTERVAL,
    kafka::{Consumed, Record},
    wait_until, wait_until_every,
};
use weir_core::{limit::route::MAX_WAIT_MS, ports::Clock as _};
use weir_worker::clock::SystemClock;

use super::{looking, mails, paced, routed, waits};
use crate::{
    deferral::deferred_as,
    support::{DEADLINE, Scene, http::metric, outcome::cases, unlimited},
};

const HOUR_MS: i64 = 3_600_000;
const PARTITIONS: i32 = 4;

/// Intents that have waited for so long, as weir writes them, so many on each partition.
fn waiting(scene: &Scene, campaign: &'static str, each: usize, waited_ms: i64) -> Vec<Record> {
    let (at_ms, topic) = (SystemClock.now().millis() - waited_ms, scene.topic("intents"));
    let since = at_ms.to_string();
    let all = mails(campaign, each * PARTITIONS as usize).enumerate();
    let of_ours = all.map(|(number, mail)| {
        let origin = format!("{topic}/0/{number}/");
        let mail = deferred_as(mail, [&since, &origin, &since, "capacity", "1"]);
        mail.partition(number as i32 % PARTITIONS).timestamp_ms(at_ms)
    });
    of_ours.collect()
}

/// How many were suppressed as `capacity`; fails where there are others.
fn too_late(scene: &Scene) -> usize {
    let suppressed = scene.output("suppressed");
    let reason = |record: &&Consumed| !record.value_text().contains(r#""reason":"capacity""#);
    assert_eq!(suppressed.iter().find(reason).map(Consumed::value_text), None);
    cases(&suppressed).len()
}

#[test]
fn what_has_waited_for_72_hours_is_suppressed_though_the_route_takes_no_more_and_what_is_newer_waits_on() {
    const OLD: usize = 200;
    const NEW: usize = 50;
    let scene = routed("overdue", (1, PARTITIONS), &paced(1));
    let topic = scene.topic("waiting-email");
    scene.kafka.publish(&topic, waiting(&scene, "old", OLD, MAX_WAIT_MS + HOUR_MS)).unwrap();
    scene.kafka.publish(&topic, waiting(&scene, "new", NEW, MAX_WAIT_MS - HOUR_MS)).unwrap();
    let worker = looking(&scene, "weir-0");
    // One is approved per second: by permits it would take a quarter of an hour.
    let (old, new) = (OLD * PARTITIONS as usize, NEW * PARTITIONS as usize);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "those of 73 hours are suppressed", || too_late(&scene) >= old);
    let approved = cases(&scene.output("approved"));
    assert_eq!(approved.iter().find(|name| name.starts_with("old")), None, "it has waited for too long");
    let overdue = || metric(&worker, "weir_route_overdue", "route=\"email\"");
    wait_until(DEADLINE, "none is overdue any more", || overdue() == Some(0.0));
    assert!(waits(&worker) > 0, "the others wait");

    scene.change_policy(&worker, "2", &unlimited(2, &paced(1_000)));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "those of 71 hours are approved", || scene.count("approved") >= new);
    assert_eq!(cases(&scene.output("approved")).len(), new, "each has one record");
    assert_eq!(too_late(&scene), old, "and no other was suppressed");
    assert_eq!(scene.count("waiting-email"), old + new, "none waited again");
}
