//! A route is as fast as its consumers.

use std::time::{Duration, Instant};

use testkit::{kafka::Consumed, wait_for, wait_until, worker::Worker};

use super::{
    AHEAD_S, BLAST, PER_S, Post, Times, all_approved, between, deadline, looking, mails, produced_ms, route,
    wait_members, waited, waits,
};
use crate::support::{
    DEADLINE,
    http::{degraded, wait_ready},
};

const AHEAD_MS: i64 = 1_000 * AHEAD_S as i64;

#[test]
fn a_blast_is_approved_no_faster_than_it_is_delivered() {
    const TAKES: u32 = 300;
    let post = Post::new("paced-only", &format!("rate = {}", 2 * TAKES));
    let worker = looking(&post.scene, "weir-0");
    let mut delivery = post.delivery(TAKES);
    post.scene.publish(mails("blast", 30 * TAKES as usize));
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
pub(super) fn fastest_second(delivered: &[(Instant, Consumed)]) -> usize {
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

#[expect(clippy::print_stderr, reason = "the figures of a run")]
fn is_paced(name: &str, instances: &[&str]) {
    let (mail_count, post) = (BLAST, Post::new(name, "rate = 1000"));
    let mut workers: Vec<Worker> = instances.iter().map(|instance| post.scene.worker(instance)).collect();
    for worker in &workers {
        wait_ready(worker);
        wait_members(worker, instances.len() as u64);
    }
    let times = Times::begin();
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", mail_count));
    let settled_ms = times.ms(Instant::now()) + 3 * AHEAD_MS;
    let delivered = wait_for(deadline(mail_count), || {
        assert!(workers.iter_mut().all(|worker| worker.exit().is_none()), "a worker ended");
        (delivery.delivered().len() >= mail_count).then_some(())
    });
    delivered.expect("the blast is delivered");
    let approved = all_approved(&post.scene, mail_count);
    let produced = produced_ms(&approved);
    let mut taken: Vec<i64> = delivery.delivered().iter().map(|(at, _)| times.ms(*at)).collect();
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
    eprintln!(
        "{name}: {mail_count} mails, {waited} waited; at most {most_undelivered} undelivered of {most}; {used:.3} used"
    );
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
    let times = Times::begin();
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "the route has settled", || {
        delivery.delivered().len() > 2 * PER_S as usize && route(&worker)["why"] == "delivery takes no more"
    });
    drop(delivery);
    assert!(waits(&worker) > MAILS as u64 / 4, "there is more to approve: {}", route(&worker));
    let stopped_ms = times.ms(Instant::now());
    let stopped_for = Duration::from_secs(3 * AHEAD_S);
    wait_until(DEADLINE, "some time has passed", || {
        times.ms(Instant::now()) >= stopped_ms + i64::try_from(stopped_for.as_millis()).unwrap()
    });
    assert_eq!(route(&worker)["why"], "nothing is delivered: weir probes");
    assert!(degraded(&worker).iter().any(|(what, _)| what == "route"));

    let mut delivery = post.delivery(PER_S);
    wait_until(DEADLINE, "delivery goes on", || !delivery.delivered().is_empty());
    let resumed_ms = times.ms(delivery.delivered()[0].0);
    wait_until(deadline(MAILS), "all are approved", || post.scene.count("approved") >= MAILS);
    let produced = produced_ms(&all_approved(&post.scene, MAILS));
    // A second that begins with an approval and has more than probes: 1% of the rate for each look, and two looks at the most.
    let busy = |at: &&i64| between(&produced, **at, **at + 1_000) > 2 * RATE / 100;
    let stopped = produced.iter().filter(|at| (stopped_ms..resumed_ms).contains(*at));
    let fell_ms = stopped.filter(busy).max().map_or(0, |at| (at + 1_000 - stopped_ms).max(0));
    let probes = between(&produced, stopped_ms + AHEAD_MS, resumed_ms);
    let goes_on_ms = produced.iter().filter(|at| **at > resumed_ms).find(busy).unwrap() - resumed_ms;
    eprintln!("approvals fell to probes after {fell_ms} ms, {probes} from then on; they went on after {goes_on_ms} ms");
    assert!(fell_ms <= AHEAD_MS, "approvals fell to probes after {fell_ms} ms");
    assert!(goes_on_ms < 10_000, "approvals went on after {goes_on_ms} ms");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn while_a_route_has_room_nothing_waits() {
    const MAILS: usize = 400;
    let post = Post::new("open", "rate = 1000");
    let worker = post.scene.ready("weir-0");
    wait_until(DEADLINE, "there are permits", || route(&worker)["held"].as_u64() > Some(50));
    let mut delivery = post.delivery(4 * PER_S);
    let publisher = post.scene.kafka.publisher(&post.scene.topic("intents")).unwrap();
    for mail in mails("steady", MAILS) {
        publisher.send(&mail).unwrap();
        publisher.serve(Instant::now() + Duration::from_millis(10));
    }
    publisher.finish().unwrap();
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    let approved = all_approved(&post.scene, MAILS);
    assert_eq!(waited(&approved), 0, "of {MAILS}, some waited");
}
