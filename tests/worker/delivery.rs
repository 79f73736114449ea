//! The promises of routes: no more is approved than delivery takes, what waits takes turns, and every intent has one record.

mod aborted;
mod early;
mod lanes;
mod outage;
mod overdue;
mod pace;
mod removed;
mod sizes;
mod topics;
mod turns;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{
    SLOW_INTERVAL,
    kafka::{Consumed, Delivery, Record},
    wait_until, wait_until_every,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::support::{
    DEADLINE, Scene, approval,
    http::{get_json, wait_ready},
    outcome::{cases, intent},
    unlimited,
};

const AHEAD_S: u64 = 5;
/// What the delivery service takes per second.
const PER_S: u32 = 500;

/// Intents of a blast: 40 s of delivery.
const BLAST: usize = 20_000;

/// How long delivery may take for so many.
fn deadline(mails: usize) -> Duration {
    2 * DEADLINE + 2 * Duration::from_secs(mails as u64) / PER_S
}

/// A route of e-mails, with further lines.
fn email(more: &str) -> String {
    format!("[[routes]]\nname = \"email\"\nchannel = \"email\"\n{more}\n")
}

/// A route of e-mails that takes so many per second, whatever is delivered.
fn paced(rate: u32) -> String {
    email(&format!("rate = {rate}"))
}

/// A route of e-mails to a group, with further lines.
fn delivered(group: &str, more: &str) -> String {
    email(&format!("consumer_group = \"{group}\"\nahead = \"{AHEAD_S}s\"\n{more}"))
}

/// A scene with these routes, of which that of e-mails may wait on so many partitions. All other topics have so many partitions, too.
fn routed(name: &str, (partitions, waiting): (i32, i32), routes: &str) -> Scene {
    let mut scene = Scene::new(name, partitions, &unlimited(1, routes));
    scene.wait_for_routes_on(waiting, &["email"]);
    scene
}

/// A scene with an e-mail route to a group of its own.
struct Post {
    scene: Scene,
    group: String,
}

impl Post {
    fn new(name: &str, more: &str) -> Self {
        Self::on(4, name, more)
    }

    /// The same, with so many partitions of the topics but that of waiting intents.
    fn on(partitions: i32, name: &str, more: &str) -> Self {
        Self::of(Scene::new(name, partitions, ""), more)
    }

    /// The same in a scene that has its topics but that of waiting intents.
    fn of(mut scene: Scene, more: &str) -> Self {
        let group = format!("{}-hedwig", scene.name);
        scene.write_policy(&unlimited(1, &delivered(&group, more)));
        scene.wait_for_routes(&["email"]);
        Self { scene, group }
    }

    fn delivery(&self, per_s: u32) -> Delivery {
        Delivery::start(&self.scene.kafka, &self.group, &self.scene.topic("approved"), per_s).unwrap()
    }

    /// A consumer that passes offsets without a record with the next record alone.
    fn delivery_by_record(&self, per_s: u32) -> Delivery {
        Delivery::by_record(&self.scene.kafka, &self.group, &self.scene.topic("approved"), per_s).unwrap()
    }

    /// Offsets of the approved topic that the group has not committed.
    fn lag(&self) -> i64 {
        let topic = self.scene.topic("approved");
        let ends = self.scene.kafka.end_offsets(&topic).unwrap();
        let committed = self.scene.kafka.committed(&self.group, &topic).unwrap();
        ends.iter().zip(committed).map(|(end, committed)| end - committed.unwrap_or(0)).sum()
    }
}

/// Fails unless each of these has exactly one record, all approved.
#[track_caller]
fn all_approved(scene: &Scene, intents: usize) -> Vec<Consumed> {
    let approved = scene.output("approved");
    assert_eq!(cases(&approved).len(), intents, "each intent has one record");
    assert!(scene.output("suppressed").is_empty() && scene.output("dead").is_empty());
    approved
}

fn outputs(scene: &Scene) -> [usize; 2] {
    ["approved", "suppressed"].map(|topic| scene.count(topic))
}

/// Waits until so many have one of these outputs.
#[track_caller]
fn wait_decided(scene: &Scene, intents: usize) {
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are decided", || outputs(scene).iter().sum::<usize>() >= intents);
}

/// The offsets that the group of a route's waiting intents has committed.
fn committed(scene: &Scene, route: &str) -> Vec<Option<i64>> {
    let (group, topic) = (format!("{}-waiting-{route}", scene.name), scene.topic(&format!("waiting-{route}")));
    scene.kafka.committed(&group, &topic).unwrap()
}

fn mails(campaign: &'static str, count: usize) -> impl Iterator<Item = Record> {
    let mail = move |number| {
        intent(&format!("{campaign}-{number}"), number, json!({"channel": "email", "campaign": campaign}))
    };
    (0..count).map(mail)
}

/// Those that waited for their route.
fn waited(approved: &[Consumed]) -> usize {
    approved.iter().filter(|record| approval(record)["deferred"]["why"] == "capacity").count()
}

/// The worker's view of the route.
fn route(worker: &Worker) -> Value {
    get_json(worker, "/v1/routes")[0].clone()
}

/// A worker that has looked at its route.
fn looking(scene: &Scene, instance: &str) -> Worker {
    let worker = scene.worker(instance);
    wait_looked(&worker);
    worker
}

fn wait_looked(worker: &Worker) {
    wait_ready(worker);
    wait_members(worker, 1);
}

fn wait_members(worker: &Worker, count: u64) {
    wait_until(DEADLINE, "the route has been looked at", || route(worker)["members"].as_u64() >= Some(count));
}

/// What the route waits for, by the worker.
fn waits(worker: &Worker) -> u64 {
    route(worker)["waiting"].as_u64().unwrap_or(0)
}

/// A moment of this process as a time of Kafka's records.
fn ms(at: Instant) -> i64 {
    SystemClock.now().millis() - i64::try_from(at.elapsed().as_millis()).unwrap()
}

/// When each record was produced by weir's Kafka client, which is before it was committed; ascending.
fn produced_ms<'r>(records: impl IntoIterator<Item = &'r Consumed>) -> Vec<i64> {
    let mut times: Vec<i64> = records.into_iter().map(|record| record.timestamp_ms.unwrap()).collect();
    times.sort_unstable();
    times
}

/// How many of these ascending times are from one time on and before another.
fn between(times: &[i64], from_ms: i64, to_ms: i64) -> usize {
    let before = |end| times.partition_point(|at| *at < end);
    before(to_ms).saturating_sub(before(from_ms))
}
