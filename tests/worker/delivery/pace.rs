//! A route is as fast as its consumers, and no intent is suppressed by a guess at how fast they are.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{
    SLOW_INTERVAL,
    kafka::{Consumed, Delivery, Record},
    wait_for, wait_until, wait_until_every,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::{
    AHEAD_S, BLAST, PER_S, Post, all_approved, between, deadline, delivered, looking, mails, ms, paced, produced_ms,
    route, wait_members, waited, waits,
};
use crate::support::{
    DEADLINE, SEGMENTS, Scene,
    http::{degraded, wait_degraded, wait_ready},
    outcome::intent,
    unlimited,
};

const AHEAD_MS: i64 = 1_000 * AHEAD_S as i64;

#[test]
fn a_blast_is_approved_no_faster_than_it_is_delivered() {
    const TAKES: u32 = 300;
    let post = Post::new("paced-only", &format!("rate = {}", 2 * TAKES));
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(TAKES);
    post.scene.publish(mails("blast", 60 * TAKES as usize));
    let published = Instant::now();
    wait_until(DEADLINE, "the route has settled", || {
        published.elapsed() >= Duration::from_secs(3 * AHEAD_S) && route(&worker)["why"] == "delivery takes no more"
    });
    let settled = delivery.delivered().len();
    wait_until(DEADLINE, "more is delivered", || {
        let lag = post.lag();
        // A delivery that was held up by this machine catches up. What it commits is a second old, and offsets of transactions are
        // among the lag.
        let most = (1.2 * AHEAD_S as f64 + 1.0) * fastest_second(delivery.delivered()) as f64;
        assert!((lag as f64) < most, "{lag} undelivered of at most {most}");
        delivery.delivered().len() > settled + 2 * TAKES as usize
    });
    assert!(waits(&worker) > 0, "the blast lasts");
}

/// The most records that were delivered within a second.
fn fastest_second(delivered: &[(Instant, Consumed)]) -> usize {
    let within = |(place, (at, _)): (usize, &(Instant, Consumed))| {
        place + 1 - delivered.partition_point(|(earlier, _)| *earlier + Duration::from_secs(1) <= *at)
    };
    delivered.iter().enumerate().map(within).max().unwrap_or_default()
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_blast_is_approved_as_fast_as_it_is_delivered_and_no_faster() {
    is_paced("paced", &["weir-0"]);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn two_workers_share_the_pace_of_a_route() {
    is_paced("paced-by-two", &["weir-0", "weir-1"]);
}

fn is_paced(name: &str, instances: &[&str]) {
    let (mail_count, post) = (BLAST, Post::new(name, "rate = 1000"));
    let mut workers: Vec<Worker> = instances.iter().map(|instance| post.scene.worker(instance)).collect();
    for worker in &workers {
        wait_ready(worker);
        wait_members(worker, instances.len() as u64);
    }
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", mail_count));
    let settled_ms = ms(Instant::now()) + 3 * AHEAD_MS;
    let delivered = wait_for(deadline(mail_count), || {
        assert!(workers.iter_mut().all(|worker| worker.exit().is_none()), "a worker ended");
        (delivery.delivered().len() >= mail_count).then_some(())
    });
    delivered.expect("the blast is delivered");
    let approved = all_approved(&post.scene, mail_count);
    let produced = produced_ms(&approved);
    let mut taken: Vec<i64> = delivery.delivered().iter().map(|(at, _)| ms(*at)).collect();
    taken.sort_unstable();
    let last_ms = *produced.last().unwrap();
    assert!(last_ms - settled_ms > 2 * AHEAD_MS, "the blast lasts");
    // What stands in the topic grows with an approval alone.
    let settled = produced.iter().filter(|at| **at >= settled_ms);
    let most_undelivered =
        settled.map(|at| between(&produced, 0, at + 1).saturating_sub(between(&taken, 0, at + 1))).max().unwrap();
    let most = 1.2 * AHEAD_S as f64 * f64::from(PER_S);
    let could = f64::from(PER_S) * (last_ms - settled_ms) as f64 / 1_000.0;
    let used = between(&taken, settled_ms, last_ms) as f64 / could;
    let waited = waited(&approved);
    assert!((most_undelivered as f64) <= most, "{most_undelivered} undelivered of at most {most}");
    assert!(used >= 0.95, "{used} of what delivery takes is used");
    assert!(waited > mail_count / 2, "{waited} of {mail_count} waited");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn while_delivery_is_stopped_only_probes_are_approved_and_once_it_goes_on_approvals_do() {
    // Twice what a route approves until it has settled.
    const MAILS: usize = 20_000;
    const RATE: usize = 1_000;
    let post = Post::new("stopped", &format!("rate = {RATE}"));
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "the route has settled", || {
        delivery.delivered().len() > 2 * PER_S as usize && route(&worker)["why"] == "delivery takes no more"
    });
    drop(delivery);
    assert!(waits(&worker) > MAILS as u64 / 4, "there is more to approve: {}", route(&worker));
    let stopped_ms = ms(Instant::now());
    let stopped_for = Duration::from_secs(3 * AHEAD_S);
    wait_until(DEADLINE, "some time has passed", || {
        ms(Instant::now()) >= stopped_ms + i64::try_from(stopped_for.as_millis()).unwrap()
    });
    assert_eq!(route(&worker)["why"], "nothing is delivered: weir probes");
    assert!(degraded(&worker).iter().any(|(what, _)| what == "route"));

    let mut delivery = post.delivery(PER_S);
    wait_until(DEADLINE, "delivery goes on", || !delivery.delivered().is_empty());
    let resumed_ms = ms(delivery.delivered()[0].0);
    wait_until(deadline(MAILS), "all are approved", || post.scene.count("approved") >= MAILS);
    let produced = produced_ms(&all_approved(&post.scene, MAILS));
    // A second that begins with an approval and has more than probes: 1% of the rate for each look, and two looks at the most.
    let busy = |at: &&i64| between(&produced, **at, **at + 1_000) > 2 * RATE / 100;
    let stopped = produced.iter().filter(|at| (stopped_ms..resumed_ms).contains(*at));
    let fell_ms = stopped.filter(busy).max().map_or(0, |at| (at + 1_000 - stopped_ms).max(0));
    let goes_on_ms = produced.iter().filter(|at| **at > resumed_ms).find(busy).unwrap() - resumed_ms;
    assert!(fell_ms <= AHEAD_MS, "approvals fell to probes after {fell_ms} ms");
    assert!(goes_on_ms < 10_000, "approvals went on after {goes_on_ms} ms");
}

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
    const MINUTES: i64 = 12;
    // It begins with 2 per second: by that, whoever comes when 1,800 wait would do so for longer than it lives.
    let post = Post::new("never-delivered", "");
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(lasting("blast", MINUTES, EACH));
    wait_until(DEADLINE, "they wait", || waits(&worker) >= EACH as u64 * 9 / 10);
    // What is delivered of so few is no rate.
    wait_until(DEADLINE, "some are delivered", || delivery.delivered().len() >= 10);
    post.scene.decide(lasting("blast", MINUTES, 2 * EACH).skip(EACH));
    assert!(waits(&worker) > 0, "the others wait");
    // The rest at once: without a group, a route takes its rate.
    post.scene.write_policy(&unlimited(2, &paced(5_000)));
    wait_until(DEADLINE, "all are approved", || post.scene.count("approved") >= 2 * EACH);
    all_approved(&post.scene, 2 * EACH);
}

#[test]
fn a_partition_that_its_consumer_never_passes_holds_up_no_other_and_is_named() {
    const TAKES: u32 = 400;
    // A fourth of them is more than may stand undelivered. Once it stands, what is left takes longer at the floor than a test may.
    const MAILS: usize = 8 * AHEAD_S as usize * TAKES as usize;
    let scene = Scene::bare("poisoned", 4, "");
    // One partition of intents keeps them in the order in which they are published. Of several, a broker gives some thousand of one at a
    // time: where so many for the partition that stands are next, it fills the room, and no other shows meanwhile that it goes on.
    scene.create_topics([1, 4, 4, 4]);
    scene.build_segments(&SEGMENTS);
    let post = Post::of(scene, &format!("rate = {}", 5 * TAKES));
    let worker = looking(&post.scene, "weir-0");
    let topic = post.scene.topic("approved");
    // It never passes the second record of the partition.
    let mut delivery = Delivery::of_all_but(&post.scene.kafka, &post.group, &topic, TAKES, 0).unwrap();
    post.scene.publish(mails("blast", MAILS));
    let named = format!("partition 0 of {topic}");
    wait_until(DEADLINE, "it is named", || {
        route(&worker)["why"].as_str().is_some_and(|words| words.contains(&named) && !words.contains("partition 1"))
    });
    assert!(degraded(&worker).iter().any(|(what, _)| what == "route"), "{:?}", degraded(&worker));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || post.scene.count("approved") >= MAILS);
    let approved = all_approved(&post.scene, MAILS);
    let stands = approved.iter().filter(|record| record.partition == 0).count();
    assert!(stands > 6 * (AHEAD_S as usize * TAKES as usize) / 5, "by itself it has more than may stand: {stands}");
    wait_until(DEADLINE, "the others are delivered", || delivery.delivered().len() > MAILS - stands);
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
    let oldest_s = route(&worker)["oldest_waiting_s"].as_f64();
    assert!(oldest_s > Some(3.0 * AHEAD_S as f64), "{}", route(&worker));
    drop(delivery);
}
