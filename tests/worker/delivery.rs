//! The promises of routes: no more is approved than delivery takes, what waits takes turns, and every intent has one record.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    kafka::{Consumed, Delivery, Record},
    wait_for, wait_until,
    worker::Worker,
};

use crate::support::{
    DEADLINE, Scene, approval, header,
    http::{get, metric, wait_ready},
    outcome::{intent, time_ms},
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

const AHEAD_S: u64 = 5;
/// What the delivery service takes per second.
const PER_S: u32 = 500;
/// Intents of a blast: 20 s of delivery.
const BLAST: usize = 10_000;

/// A policy with a route of e-mails, and further lines of it.
fn policy(group: &str, more: &str) -> String {
    format!(
        r#"
version = "1"
[default]
caps = "unlimited"
[[routes]]
name = "email"
channel = "email"
consumer_group = "{group}"
ahead = "{AHEAD_S}s"
{more}
"#
    )
}

/// A scene with an e-mail route to a group of its own.
struct Post {
    scene: Scene,
    group: String,
}

impl Post {
    fn new(name: &str, more: &str) -> Self {
        let mut scene = Scene::new(name, 4, "");
        let group = format!("{}-hedwig", scene.name);
        scene.write_policy(&policy(&group, more));
        scene.wait_for_routes(&["email"]);
        Self { scene, group }
    }

    fn delivery(&self, per_s: u32) -> Delivery {
        Delivery::start(&self.scene.kafka, &self.group, &self.scene.topic("approved"), per_s).unwrap()
    }

    /// Offsets of the approved topic that the group has not committed.
    fn lag(&self) -> i64 {
        let topic = self.scene.topic("approved");
        let ends = self.scene.kafka.end_offsets(&topic).unwrap();
        let committed = self.scene.kafka.committed(&self.group, &topic).unwrap();
        ends.iter().zip(committed).map(|(end, committed)| end - committed.unwrap_or(0)).sum()
    }

    /// Fails unless each of these has exactly one record, all approved.
    fn all_approved(&self, intents: usize) -> Vec<Consumed> {
        let approved = self.scene.output("approved");
        let ids: BTreeSet<String> = approved.iter().map(|record| header(record, "case").unwrap()).collect();
        assert_eq!((ids.len(), approved.len()), (intents, intents), "each intent has one record");
        assert!(self.scene.output("suppressed").is_empty() && self.scene.output("dead").is_empty());
        approved
    }
}

fn mails(campaign: &'static str, count: usize) -> impl Iterator<Item = Record> {
    let mail = move |number| {
        intent(&format!("{campaign}-{number}"), number, json!({"channel": "email", "campaign": campaign}))
    };
    (0..count).map(mail)
}

/// The worker's view of the route.
fn route(worker: &Worker) -> Value {
    let (status, body) = get(worker, "/v1/routes");
    assert_eq!(status, 200, "{body}");
    let routes: Value = serde_json::from_str(&body).unwrap();
    routes[0].clone()
}

fn wait_looked(worker: &Worker) {
    wait_until(DEADLINE, "the route has been looked at", || route(worker)["members"].as_u64() >= Some(1));
}

/// What the route waits for, by the worker.
fn waits(worker: &Worker) -> u64 {
    route(worker)["waiting"].as_u64().unwrap_or(0)
}

/// A blast of so many intents, which is approved no faster than it is delivered: how much of what delivery takes is used.
fn blast(name: &str, count: usize) -> f64 {
    let post = Post::new(name, "rate = 1000");
    let mut worker = post.scene.worker("weir-0");
    wait_ready(&worker);
    wait_looked(&worker);
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", count));
    let began = Instant::now();
    let settled = Duration::from_secs(3 * AHEAD_S);
    let (mut most_undelivered, mut since) = (0, None);
    let delivered = wait_for(4 * DEADLINE, || {
        assert_eq!(worker.exit(), None, "the worker ended");
        if began.elapsed() >= settled && waits(&worker) > 0 {
            most_undelivered = most_undelivered.max(post.lag());
            since.get_or_insert_with(Instant::now);
        }
        (delivery.delivered().len() >= count).then_some(())
    });
    delivered.expect("the blast is delivered");
    // Offsets of transactions are among the lag.
    let most = 1.2 * AHEAD_S as f64 * f64::from(PER_S) + f64::from(PER_S);
    assert!((most_undelivered as f64) < most, "{most_undelivered} undelivered of at most {most}");
    let approved = post.all_approved(count);
    let waited = approved.iter().filter(|record| approval(record)["deferred"]["why"] == "capacity").count();
    assert!(waited > count / 2, "{waited} of {count} waited");
    let since = since.expect("the blast lasts");
    let last = delivery.delivered().last().unwrap().0;
    let busy = delivery.delivered().iter().filter(|(at, _)| *at >= since).count();
    busy as f64 / last.duration_since(since).as_secs_f64() / f64::from(PER_S)
}

#[test]
fn a_blast_is_approved_no_faster_than_it_is_delivered() {
    // What waits is gone `ahead` before the end of delivery, which must be after the route has settled.
    blast("paced", BLAST * 3 / 2);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_blast_is_approved_as_fast_as_it_is_delivered_and_no_faster() {
    let used = blast("paced-fast", 2 * BLAST);
    assert!(used >= 0.95, "{used} of what delivery takes is used");
}

/// Delivery stops and goes on: how long after that approvals do.
fn stop_delivery(name: &str) -> Duration {
    const MAILS: usize = 8_000;
    let post = Post::new(name, "rate = 1000");
    let worker = post.scene.worker("weir-0");
    wait_ready(&worker);
    wait_looked(&worker);
    let mut delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "some are delivered", || delivery.delivered().len() > 2 * PER_S as usize);
    drop(delivery);
    wait_until(DEADLINE, "the stop is noticed", || route(&worker)["why"] == "nothing is delivered: weir probes");
    let ends = || post.scene.kafka.end_offsets(&post.scene.topic("approved")).unwrap().into_iter().sum::<i64>();
    let (at, stopped) = (Instant::now(), ends());
    wait_until(DEADLINE, "some time has passed", || at.elapsed() >= Duration::from_secs(AHEAD_S));
    let probes = ends() - stopped;
    // At most 1% of the ceiling, and one per second while more than that still stands in the topic. Each may be a transaction of its
    // own, whose end has an offset, too.
    let most = 2 * (1_000 / 100) * (at.elapsed().as_secs() as i64 + 1);
    assert!(probes <= most, "{probes} probes of at most {most} in {:?}", at.elapsed());
    assert!(crate::support::http::degraded(&worker).iter().any(|(what, _)| what == "route"));

    let mut delivery = post.delivery(PER_S);
    wait_until(DEADLINE, "delivery goes on", || !delivery.delivered().is_empty());
    let (at, resumed) = (Instant::now(), ends());
    wait_until(DEADLINE, "approvals go on", || ends() - resumed > most);
    let after = at.elapsed();
    wait_until(DEADLINE, "all are approved", || post.scene.output("approved").len() >= MAILS);
    post.all_approved(MAILS);
    after
}

#[test]
fn while_delivery_is_stopped_only_probes_are_approved_and_once_it_goes_on_approvals_do() {
    stop_delivery("stopped");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn approvals_go_on_within_ten_seconds_of_delivery() {
    let after = stop_delivery("stopped-soon");
    assert!(after < Duration::from_secs(10), "approvals went on after {after:?}");
}

/// A small campaign behind a large one, on a route that approves by its rate alone: how long the small one took, in milliseconds.
fn small_behind_large(name: &str, small: usize, large: usize) -> i64 {
    let mut scene = Scene::new(name, 4, "");
    let route = format!("[[routes]]\nname = \"email\"\nchannel = \"email\"\nahead = \"5s\"\nrate = {PER_S}\n");
    scene.write_policy(&format!("version = \"1\"\n[default]\ncaps = \"unlimited\"\n{route}"));
    scene.wait_for_routes(&["email"]);
    let worker = scene.worker("weir-0");
    wait_ready(&worker);
    wait_looked(&worker);
    scene.publish(mails("blast", large));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > large as u64 / 2);
    for figure in ["permits", "drain_rate", "waiting", "expected_wait_seconds"] {
        assert!(metric(&worker, &format!("weir_route_{figure}"), "route=\"email\"").is_some(), "{figure}");
    }
    assert!(metric(&worker, "weir_waiting_total", "route=\"email\"") >= Some(large as f64 / 2.0));
    let published_ms = SystemClock.now().millis();
    scene.publish(mails("small", small));
    wait_until(2 * DEADLINE, "nothing waits", || {
        waits(&worker) == 0 && scene.output("approved").len() == large + small
    });
    let approved = scene.output("approved");
    let at = |record: &Consumed| time_ms(&approval(record)["decided_at"]).unwrap();
    let is_small = |record: &&Consumed| header(record, "case").unwrap().starts_with("small");
    let (of_small, of_large): (Vec<&Consumed>, Vec<&Consumed>) = approved.iter().partition(is_small);
    let done_ms = of_small.into_iter().map(at).max().unwrap();
    // In turns, as many of the large one are approved meanwhile; first come, first served, it would be all of it.
    let left = of_large.into_iter().filter(|record| at(record) > done_ms).count();
    assert!(left >= large / 10, "the small campaign is done when {left} of {large} are left");
    rate_is_kept(approved.iter().map(at).collect());
    done_ms - published_ms
}

/// Never more than the rate allows, with one second of it at a time.
fn rate_is_kept(mut at_ms: Vec<i64>) {
    at_ms.sort_unstable();
    for (first, from_ms) in at_ms.iter().enumerate().step_by(500) {
        for (last, to_ms) in at_ms.iter().enumerate().skip(first).step_by(500) {
            let most = (i64::from(PER_S) * (to_ms - from_ms + 1_500)) / 1_000 + 50;
            let count = (last - first) as i64;
            assert!(count <= most, "{count} approved within {} ms, of at most {most}", to_ms - from_ms);
        }
    }
}

#[test]
fn a_small_campaign_behind_a_blast_takes_its_turns() {
    small_behind_large("fair", 500, 9_000);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_small_campaign_behind_a_blast_takes_no_longer_than_is_fair() {
    const SMALL: usize = 1_000;
    let took_ms = small_behind_large("fair-soon", SMALL, 15_000);
    let fair_ms = 1_000 * SMALL as i64 / (i64::from(PER_S) / 2);
    assert!(took_ms <= 3 * fair_ms, "{took_ms} ms, {fair_ms} ms are fair");
}

#[test]
fn while_a_route_has_room_nothing_waits() {
    const MAILS: usize = 400;
    let post = Post::new("open", "rate = 1000");
    let worker = post.scene.worker("weir-0");
    wait_ready(&worker);
    wait_until(DEADLINE, "there are permits", || route(&worker)["permits"].as_u64() > Some(50));
    let mut delivery = post.delivery(4 * PER_S);
    let publisher = post.scene.kafka.publisher(&post.scene.topic("intents")).unwrap();
    for mail in mails("steady", MAILS) {
        publisher.send(&mail).unwrap();
        publisher.serve(Instant::now() + Duration::from_millis(10));
    }
    publisher.finish().unwrap();
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    let approved = post.all_approved(MAILS);
    let waited = approved.iter().filter(|record| approval(record)["deferred"]["why"] == "capacity").count();
    assert_eq!(waited, 0, "of {MAILS}, {waited} waited");
}

#[test]
fn workers_killed_while_intents_wait_lose_none_and_approve_none_twice() {
    const MAILS: usize = 6_000;
    let post = Post::new("killed", "rate = 2000");
    let env = [("WEIR__WORKER__BATCH", "200")];
    let steady = post.scene.worker_with("steady", &env);
    wait_ready(&steady);
    wait_looked(&steady);
    let mut delivery = post.delivery(4 * PER_S);
    let waiting = post.scene.topic("waiting-email");
    let written = || post.scene.kafka.end_offsets(&waiting).unwrap().into_iter().sum::<i64>();
    let read = || -> i64 {
        let group = format!("{}-waiting-email", post.scene.name);
        post.scene.kafka.committed(&group, &waiting).unwrap().into_iter().flatten().sum()
    };
    let approved = || post.scene.kafka.end_offsets(&post.scene.topic("approved")).unwrap().into_iter().sum::<i64>();
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
    wait_until(2 * DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    post.all_approved(MAILS);
}

#[test]
fn a_worker_that_wakes_past_its_session_approves_nothing_twice() {
    const MAILS: usize = 4_000;
    // By user, so that both read partitions where intents wait.
    let post = Post::new("zombie", "rate = 500\nfair_by = \"user\"");
    let env = [("WEIR__WORKER__BATCH", "100")];
    let steady = post.scene.worker_with("steady", &env);
    let mut zombie = post.scene.worker_with("zombie", &env);
    for worker in [&steady, &zombie] {
        wait_ready(worker);
        wait_looked(worker);
    }
    let mut delivery = post.delivery(4 * PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "both approve what waited", || {
        [&steady, &zombie].into_iter().all(|worker| metric(worker, "weir_stage_seconds_count", "commit") > Some(20.0))
    });
    zombie.freeze();
    wait_until(DEADLINE, "the other one has its partitions", || waits(&steady) < 1_000);
    zombie.thaw();
    wait_until(2 * DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    post.all_approved(MAILS);
}

/// Intents without a route, before a blast and while it waits: how long they took, by the best of so many rounds each.
fn beside_a_blast(name: &str, blast: usize, rounds: usize) -> [Duration; 2] {
    let post = Post::new(name, "rate = 200");
    let worker = post.scene.worker("weir-0");
    wait_ready(&worker);
    wait_looked(&worker);
    let mut reader = Delivery::start(
        &post.scene.kafka,
        &format!("{}-probe", post.scene.name),
        &post.scene.topic("approved"),
        100_000,
    )
    .unwrap();
    let _delivery = post.delivery(PER_S);
    let mut best =
        |name: &str| (0..rounds).map(|round| p99(&post.scene, &mut reader, &format!("{name}{round}"))).min().unwrap();
    let alone = best("alone");
    post.scene.publish(mails("blast", blast));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > blast as u64 / 2);
    let behind = best("behind");
    // All of them were visible while much of the blast waits.
    assert!(waits(&worker) > 0, "the blast lasts");
    [alone, behind]
}

#[test]
fn intents_of_no_route_overtake_a_blast() {
    // A minute and a half of the route's rate.
    beside_a_blast("overtaken", 2 * BLAST, 1);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn intents_of_no_route_are_not_held_up_by_a_blast() {
    // The best of three: other processes share the machine.
    let [alone, behind] = beside_a_blast("urgent", 2 * BLAST, 3);
    assert!(behind <= 3 * alone + Duration::from_millis(100), "p99 is {behind:?} behind a blast, {alone:?} without");
}

/// From publishing to being visible, of 300 intents without a route.
fn p99(scene: &Scene, reader: &mut Delivery, prefix: &str) -> Duration {
    const COUNT: usize = 300;
    let publisher = scene.kafka.publisher(&scene.topic("intents")).unwrap();
    let mut sent = BTreeMap::new();
    for number in 0..COUNT {
        let name = format!("{prefix}-{number}");
        publisher.send(&intent(&name, number, json!({"channel": "push"}))).unwrap();
        sent.insert(name, Instant::now());
        publisher.serve(Instant::now() + Duration::from_millis(10));
    }
    publisher.flush().unwrap();
    let arrived = |reader: &mut Delivery| -> Vec<Duration> {
        let latency =
            |(at, record): &(Instant, Consumed)| Some(at.duration_since(*sent.get(&header(record, "case")?)?));
        reader.delivered().iter().filter_map(latency).collect()
    };
    wait_until(DEADLINE, "all are visible", || arrived(reader).len() >= COUNT);
    let mut all = arrived(reader);
    all.sort_unstable();
    all[COUNT * 99 / 100]
}
