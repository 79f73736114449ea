//! What waits takes turns, and what is urgent does not wait.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    SLOW_INTERVAL,
    kafka::{Consumed, Delivery, Publisher},
    wait_until, wait_until_every,
};

use super::{
    AHEAD_S, BLAST, PER_S, Post, all_approved, between, deadline, email, looking, mails, ms, produced_ms, routed,
    waited, waits,
};
use crate::support::{
    DEADLINE, Scene, approval, header,
    http::metric,
    outcome::{intent, time_ms},
};

fn is_small(record: &Consumed) -> bool {
    header(record, "case").unwrap().starts_with("small")
}

/// When each approval was decided; ascending.
fn decided_ms<'r>(records: impl IntoIterator<Item = &'r Consumed>) -> Vec<i64> {
    let at = |record: &Consumed| time_ms(&approval(record)["decided_at"]).unwrap();
    let mut times: Vec<i64> = records.into_iter().map(at).collect();
    times.sort_unstable();
    times
}

/// Never more than the rate allows, with one second of it at a time; by ascending times.
fn rate_is_kept(approved: &[i64]) {
    for (place, from_ms) in approved.iter().enumerate().step_by(500) {
        for to_ms in approved[place..].iter().step_by(500) {
            let most = (i64::from(PER_S) * (to_ms - from_ms + 1_500)) / 1_000 + 50;
            let count = between(approved, *from_ms, *to_ms) as i64;
            assert!(count <= most, "{count} approved within {} ms, of at most {most}", to_ms - from_ms);
        }
    }
}

#[test]
fn a_small_campaign_behind_a_blast_takes_its_turns() {
    const LARGE: usize = 4_000;
    const SMALL: usize = 300;
    // On a route that approves by its rate alone.
    let scene = routed("turns", (4, 32), &email(&format!("ahead = \"5s\"\nrate = {PER_S}")));
    let worker = looking(&scene, "weir-0");
    scene.publish(mails("blast", LARGE));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > LARGE as u64 / 2);
    for figure in ["permits", "drain_rate", "waiting", "expected_wait_seconds"] {
        assert!(metric(&worker, &format!("weir_route_{figure}"), "route=\"email\"").is_some(), "{figure}");
    }
    assert!(metric(&worker, "weir_waiting_total", "route=\"email\"") >= Some(LARGE as f64 / 2.0));
    scene.publish(mails("small", SMALL));
    wait_until(DEADLINE, "nothing waits", || waits(&worker) == 0);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || scene.count("approved") >= LARGE + SMALL);
    let approved = scene.output("approved");
    assert_eq!(approved.len(), LARGE + SMALL, "each intent has one record");
    let done_ms = *decided_ms(approved.iter().filter(|record| is_small(record))).last().unwrap();
    let of_large = decided_ms(approved.iter().filter(|record| !is_small(record)));
    // In turns, as many of the large one are approved meanwhile; first come, first served, it would be all of it.
    let left = between(&of_large, done_ms + 1, i64::MAX);
    assert!(left >= LARGE / 10, "the small campaign is done when {left} of {LARGE} are left");
    rate_is_kept(&decided_ms(&approved));
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_small_campaign_behind_a_blast_takes_no_longer_than_is_fair() {
    const SMALL: usize = 1_000;
    // Below the rate: the route is paced by its consumers.
    const TAKES: u32 = 400;
    let post = Post::new("fair", &format!("rate = {PER_S}"));
    let worker = looking(&post.scene, "weir-0");
    let began = Instant::now();
    let mut delivery = post.delivery(TAKES);
    post.scene.publish(mails("blast", BLAST));
    wait_until(DEADLINE, "the route has settled", || began.elapsed() >= Duration::from_secs(3 * AHEAD_S));
    assert!(waits(&worker) > BLAST as u64 / 4, "the blast waits");
    let published_ms = ms(Instant::now());
    post.scene.publish(mails("small", SMALL));
    wait_until(deadline(BLAST + SMALL), "all are delivered", || delivery.delivered().len() >= BLAST + SMALL);
    let approved = all_approved(&post.scene, BLAST + SMALL);
    let took_ms = produced_ms(approved.iter().filter(|record| is_small(record))).last().unwrap() - published_ms;
    let fair_ms = 1_000 * SMALL as i64 / (i64::from(TAKES) / 2);
    assert!(took_ms <= 3 * fair_ms, "{took_ms} ms, {fair_ms} ms are fair");
    rate_is_kept(&produced_ms(&approved));
}

#[test]
fn intents_of_no_route_overtake_a_blast() {
    const MAILS: usize = 2_000;
    const OTHERS: usize = 200;
    // Nearly two minutes of the route's rate.
    let post = Post::new("overtaken", "rate = 20");
    let worker = looking(&post.scene, "weir-0");
    let _delivery = post.delivery(PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > MAILS as u64 / 2);
    let other = |number| intent(&format!("other-{number}"), number, json!({"channel": "push"}));
    post.scene.publish((0..OTHERS).map(other));
    let others = || -> Vec<Consumed> {
        let approved = post.scene.output("approved").into_iter();
        approved.filter(|record| header(record, "case").unwrap().starts_with("other")).collect()
    };
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all of them are approved", || others().len() >= OTHERS);
    assert!(waits(&worker) > 0, "the blast lasts");
    assert_eq!(waited(&others()), 0, "they have no route");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn intents_of_no_route_are_not_held_up_by_a_blast() {
    let mails = is_urgent("urgent", "rate = 200", &json!({"channel": "push"}), 2 * BLAST);
    assert_eq!(waited(&mails), 0, "they have no route");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn intents_of_another_route_are_not_held_up_by_a_blast() {
    // One that its route had no permit for would be suppressed, and never be visible.
    let other = "rate = 200\n[[routes]]\nname = \"push\"\nchannel = \"push\"\nrate = 1000\nwhen_full = \"suppress\"";
    let mails = is_urgent("other-route", other, &json!({"channel": "push"}), 2 * BLAST);
    assert_eq!(waited(&mails), 0, "their route has room");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn transactional_mail_with_a_reserved_share_is_not_held_up_by_a_blast_on_its_route() {
    // A fifth of what delivery takes is 100 per second, twice what comes.
    let reserved = "rate = 1000\nreserved = { category = \"service\", share = 0.2 }";
    is_urgent("reserved", reserved, &json!({"channel": "email", "category": "service"}), 100_000);
}

/// Compares how long intents with these fields take until they are approved, with and without a blast of so many mails; gives their
/// records.
fn is_urgent(name: &str, more: &str, fields: &Value, blast: usize) -> Vec<Consumed> {
    let post = Post::new(name, more);
    let worker = looking(&post.scene, "weir-0");
    let _delivery = post.delivery(PER_S);
    let mut urgent = Urgent::new(&post.scene, fields);
    // The route knows its consumers before it is looked at.
    urgent.p99("first");
    // The best of three: other processes share the machine.
    let mut best = |name: &str| (0..3).map(|round| urgent.p99(&format!("{name}{round}"))).min().unwrap();
    let alone = best("alone");
    let settles = Duration::from_secs(3 * AHEAD_S);
    let published = Instant::now();
    // It lasts for longer than the route takes to settle and the three rounds take.
    post.scene.decide(mails("blast", blast));
    wait_until(DEADLINE, "the blast waits", || waits(&worker) > blast as u64 / 2);
    wait_until(2 * settles, "the route has settled", || published.elapsed() >= settles);
    let behind = best("behind");
    assert!(waits(&worker) > 0, "the blast lasts");
    assert!(behind <= 3 * alone + Duration::from_millis(100), "p99 is {behind:?} behind a blast, {alone:?} without");
    let records = urgent.reader.delivered().iter().map(|(_, record)| record);
    records.filter(|record| !header(record, "case").unwrap().starts_with("blast")).cloned().collect()
}

/// Intents that are published one by one, and a reader of the approved ones.
struct Urgent<'s> {
    fields: &'s Value,
    /// It is connected once: a producer that begins may wait half a second for its id.
    publisher: Publisher,
    reader: Delivery,
}

impl<'s> Urgent<'s> {
    fn new(scene: &Scene, fields: &'s Value) -> Self {
        let group = format!("{}-probe", scene.name);
        let reader = Delivery::start(&scene.kafka, &group, &scene.topic("approved"), 100_000).unwrap();
        let publisher = scene.kafka.publisher(&scene.topic("intents")).unwrap();
        Self { fields, publisher, reader }
    }

    /// From publishing to being visible, of 300 intents, 50 per second.
    fn p99(&mut self, prefix: &str) -> Duration {
        const COUNT: usize = 300;
        let mut sent = BTreeMap::new();
        for number in 0..COUNT {
            let name = format!("{prefix}-{number}");
            self.publisher.send(&intent(&name, number, self.fields.clone())).unwrap();
            sent.insert(name, Instant::now());
            self.publisher.serve(Instant::now() + Duration::from_millis(20));
        }
        self.publisher.flush().unwrap();
        let mut arrived = || -> Vec<Duration> {
            let latency =
                |(at, record): &(Instant, Consumed)| Some(at.duration_since(*sent.get(&header(record, "case")?)?));
            self.reader.delivered().iter().filter_map(latency).collect()
        };
        wait_until(DEADLINE, "all are visible", || arrived().len() >= COUNT);
        let mut all = arrived();
        all.sort_unstable();
        all[COUNT * 99 / 100]
    }
}
