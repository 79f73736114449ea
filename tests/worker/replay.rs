//! The promise: weir decides by the clock at the moment of the decision, and an intent that was admitted is approved as it
//! was admitted, whatever the clock says when it is decided again.

use crate::support::{
    DEADLINE, Scene,
    http::{metric, wait_ready},
    outcome::intent,
};
use serde_json::json;
use testkit::{
    clock::ProcessClock,
    kafka::{Api, Fate, Kafka, KafkaClient, Moment, Trap},
    redis::RedisServer,
    wait_until,
};
use weir_core::ports::Clock;
use weir_worker::clock::SystemClock;

const USERS: usize = 300;
/// By how much the clocks of the worker and its Redis move on during a stall: more than a window, and less than a clock may be
/// wrong. So no outcome depends on how fast this machine is.
const STALL_S: i64 = 240;
/// How soon intents expire.
const LIVE_MS: i64 = 100_000;

/// One send in 3 minutes.
const POLICY: &str = "version = \"1\"\n[default]\ncaps = [{ name = \"short\", limit = 1, window = \"3m\" }]\n";

fn now_ms() -> i64 {
    SystemClock.now().millis()
}

/// One intent of each user of a wave.
fn publish(kafka: &KafkaClient, scene: &Scene, wave: &str, users: &str, more: &serde_json::Value) {
    let one = |user: usize| intent(&format!("{wave} {user}"), format!("{users}-{user}"), more.clone());
    kafka.publish(&scene.topic("intents"), (0..USERS).map(one)).unwrap();
}

/// What became of the intents of a wave: how many were approved, and when each was decided.
fn wave(scene: &Scene, wave: &str) -> (usize, Vec<(i64, String)>) {
    let decisions = scene.decisions();
    let of: Vec<_> = decisions.iter().filter(|(id, _)| id.starts_with(wave)).map(|(_, decision)| decision).collect();
    assert_eq!(of.len(), USERS, "{wave}");
    let approved = of.iter().filter(|decision| decision.approved()).count();
    (approved, of.iter().map(|decision| (decision.at_ms, decision.reason().to_owned())).collect())
}

#[test]
fn what_waited_for_a_frozen_redis_is_decided_by_the_clock_when_it_is_back() {
    let clock = ProcessClock::ahead(0).unwrap();
    let mut redis = RedisServer::start_by(&clock).unwrap();
    let scene = Scene::on_redis(vec![redis.url()], "stalled", 2, POLICY);
    let mut worker = scene.worker_by("only", &clock, &[]);
    publish(&scene.kafka, &scene, "before", "before", &json!({}));
    scene.drain(&mut worker);
    wait_ready(&worker);

    redis.freeze();
    publish(&scene.kafka, &scene, "expires", "expiring", &json!({ "expires_at": now_ms() + LIVE_MS }));
    publish(&scene.kafka, &scene, "stays", "staying", &json!({}));
    wait_until(DEADLINE, "it asks again", || metric(&worker, "weir_store_failures_total", "") >= Some(2.0));
    clock.set(STALL_S).unwrap();
    let thawed_ms = now_ms() + STALL_S * 1_000;
    redis.thaw();
    // More than a window after the stall began, and less than one after its end.
    publish(&scene.kafka, &scene, "again", "staying", &json!({}));
    scene.drain(&mut worker);

    let (approved, decided) = wave(&scene, "expires");
    assert_eq!(approved, 0, "approved after they had expired");
    assert!(decided.iter().all(|(_, reason)| reason == "expired"));
    let (approved, decided) = wave(&scene, "stays");
    assert_eq!(approved, USERS);
    assert!(
        decided.iter().all(|(at_ms, _)| *at_ms >= thawed_ms),
        "decided by a clock of before {thawed_ms}: {decided:?}"
    );
    assert_eq!(wave(&scene, "again").0, 0, "a second send in one window");
}

fn histories(redis: &RedisServer, scene: &Scene) -> usize {
    let keys: Vec<String> = redis.query(&["KEYS", &format!("{}:{{*}}:[0-9]*", scene.name)]).unwrap();
    let fields = |key: &String| redis.query::<Vec<Vec<u8>>>(&["HKEYS", key]).unwrap();
    // One without a name is the mark of a sweep.
    keys.iter().flat_map(fields).filter(|field| !field.is_empty()).count()
}

/// The key of the budget `all`.
fn budget_key(redis: &RedisServer, scene: &Scene) -> String {
    let keys: Vec<String> = redis.query(&["KEYS", &format!("{}:{{*}}:b3:all", scene.name)]).unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

#[test]
fn an_intent_that_was_admitted_before_a_crash_is_approved_as_of_then_though_it_has_expired() {
    let kafka = Kafka::start_tapped(1).unwrap();
    let clock = ProcessClock::ahead(0).unwrap();
    let redis = RedisServer::start_by(&clock).unwrap();
    let policy = format!("{POLICY}[[budgets]]\nname = \"all\"\nlimit = 1_000\ntotal = true\nbest_effort = true\n");
    // The worker reaches the broker through its tap, the test does not.
    let scene = Scene::on(kafka.tapped_client(), vec![redis.url()], "admitted", 1, &policy);
    let start = || scene.worker_by("only", &clock, &[]);
    let mut worker = start();
    publish(kafka.client(), &scene, "before", "before", &json!({}));
    scene.drain(&mut worker);

    let expires_ms = now_ms() + LIVE_MS;
    kafka.tap(0).arm(Trap { api: Api::Produce, moment: Moment::Request, fate: Fate::Kill(worker.pid()) });
    publish(kafka.client(), &scene, "admitted", "admitted", &json!({ "expires_at": expires_ms }));
    wait_until(DEADLINE, "the worker is killed before it has produced", || kafka.tap(0).is_sprung());
    worker.kill();
    let killed_ms = now_ms();
    let admitted = histories(&redis, &scene) - USERS;
    assert!(admitted > 0, "the store had admitted some");
    // Others take all that is left.
    redis.query::<()>(&["HSET", &budget_key(&redis, &scene), "t", "1000"]).unwrap();
    publish(kafka.client(), &scene, "late", "late", &json!({ "expires_at": expires_ms }));
    // All have expired.
    clock.set(STALL_S).unwrap();

    let mut worker = start();
    publish(kafka.client(), &scene, "later", "later", &json!({ "expires_at": expires_ms }));
    publish(kafka.client(), &scene, "fresh", "fresh", &json!({}));
    scene.drain(&mut worker);
    // Those of its batch are all of them, unless the batch was closed between two of its records.
    let (approved, decided) = wave(&scene, "admitted");
    assert_eq!(approved, admitted, "those with a history, and no others: {:?}", decided.first());
    for (at_ms, reason) in &decided {
        let (is_approved, is_of_then) = (reason == "approved", *at_ms <= killed_ms);
        assert_eq!((is_approved, is_of_then), (is_of_then, *at_ms < expires_ms), "as of the admission, or not at all");
    }
    for (name, expected) in [("late ", "expired"), ("later", "expired"), ("fresh", "budget")] {
        let (_, decided) = wave(&scene, name);
        assert!(decided.iter().all(|(_, reason)| reason == expected), "{name}: {:?}", decided.first());
    }
}
