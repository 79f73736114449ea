//! How long the oldest intent of a route waits: shown, over restarts; and a signal where weir itself approves nothing.

use std::time::{Duration, Instant};

use testkit::{kafka::Delivery, wait_for, wait_until, worker::Worker};

use super::{AHEAD_S, PER_S, delivered, looking, mails, paced, route, routed, waits};
use crate::support::{
    DEADLINE, Scene,
    http::{metric, wait_degraded, wait_ready},
    stop, unlimited,
};

/// The wait of the oldest intent, in seconds.
fn oldest_s(worker: &Worker) -> Option<f64> {
    route(worker)["oldest_waiting_s"].as_f64()
}

fn oldest_by_metric(worker: &Worker) -> Option<f64> {
    metric(worker, "weir_route_oldest_waiting_seconds", "route=\"email\"")
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn how_long_the_oldest_intent_waits_is_shown_and_known_again_after_a_restart() {
    const MAILS: usize = 300;
    let scene = routed("ages", (4, 32), &paced(1));
    let mut worker = looking(&scene, "weir-0");
    assert_eq!((oldest_s(&worker), oldest_by_metric(&worker)), (None, Some(0.0)), "none waits");
    let published = Instant::now();
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 / 2);
    wait_until(DEADLINE, "some time has passed", || oldest_s(&worker) > Some(20.0));
    let (oldest, by_metric) = (oldest_s(&worker).unwrap(), oldest_by_metric(&worker).unwrap());
    let most = published.elapsed().as_secs_f64();
    assert!(oldest <= most && (oldest - by_metric).abs() < 3.0, "{oldest} {by_metric} of {most}");
    stop(&mut worker);

    let worker = scene.worker("weir-0");
    let started = Instant::now();
    wait_ready(&worker);
    // The oldest of all came when they did: one is read per second.
    let expected = || 0.6 * published.elapsed().as_secs_f64();
    wait_until(DEADLINE, "it is known how old they are", || oldest_s(&worker) >= Some(expected()));
    let (oldest, most) = (oldest_s(&worker).unwrap(), published.elapsed().as_secs_f64());
    assert!(oldest <= most && started.elapsed().as_secs_f64() < expected(), "{oldest} of {most}");
    scene.change_policy(&worker, "2", &unlimited(2, &paced(1_000)));
    wait_until(DEADLINE, "none waits any more", || waits(&worker) == 0);
    wait_until(DEADLINE, "nor is one old", || oldest_s(&worker).is_none() && oldest_by_metric(&worker) == Some(0.0));
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn while_weir_itself_approves_nothing_the_wait_of_the_oldest_intent_is_a_signal_of_overload() {
    const MAILS: usize = 20_000;
    let (redis, mut scene) = Scene::with_redis("held-up", 4, "");
    let group = format!("{}-hedwig", scene.name);
    let caps = "[default]\ncaps = [{ name = \"day\", limit = 9, window = \"24h\" }]\n";
    scene.write_policy(&format!("version = \"1\"\n{caps}{}", delivered(&group, "rate = 1000")));
    scene.wait_for_routes(&["email"]);
    let worker = looking(&scene, "weir-0");
    let delivery = Delivery::start(&scene.kafka, &group, &scene.topic("approved"), PER_S).unwrap();
    scene.publish(mails("blast", MAILS));
    // From when the intents wait until the histories are gone, they are old and leave as fast as they are delivered.
    let began = Instant::now();
    wait_until(DEADLINE, "the route has settled", || began.elapsed() >= Duration::from_secs(3 * AHEAD_S));
    wait_until(DEADLINE, "its consumers have enough to do", || route(&worker)["why"] == "delivery takes no more");
    assert!(waits(&worker) > MAILS as u64 / 4, "the blast waits");
    redis.query::<()>(&["FLUSHALL"]).unwrap();
    wait_degraded(&worker, "shards_lost");
    let mut seen = Vec::new();
    let signal = wait_for(DEADLINE, || {
        let why = route(&worker)["why"].clone();
        if seen.last() != Some(&why) {
            seen.push(why.clone());
        }
        (why == "a signal of overload holds, or did a moment ago").then_some(())
    });
    assert!(signal.is_some(), "{seen:?}; {}", route(&worker));
    eprintln!("after {:?}: {seen:?}; {}", began.elapsed(), route(&worker));
    assert!(oldest_s(&worker) > Some(3.0 * AHEAD_S as f64), "{}", route(&worker));
    drop(delivery);
}
