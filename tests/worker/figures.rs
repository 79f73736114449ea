//! The promise: the time that records wait, the age of the oldest one, and the process itself are measured.

use std::time::{Duration, Instant};

use crate::support::{
    DEADLINE, POLICY, Scene,
    http::{metric, wait_ready},
    outcome::intent,
};
use serde_json::json;
use testkit::{kafka::Publisher, redis::RedisServer, stack::Stack, wait_until, worker::Worker};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

/// Publishes intents whose timestamp is so many seconds ago.
fn publish(scene: &Scene, wave: &str, intents: usize, seconds_ago: i64) {
    let at = SystemClock.now().millis() - seconds_ago * 1000;
    let one = |number: usize| intent(&format!("{wave} {number}"), format!("user-{number}"), json!({})).timestamp_ms(at);
    scene.publish((0..intents).map(one));
}

fn sum(worker: &Worker, name: &str) -> f64 {
    metric(worker, name, "").unwrap()
}

#[test]
fn the_time_from_record_to_decision_and_commit_and_the_lag_in_seconds_are_measured() {
    let mut redis = RedisServer::start::<&str>(&[]).unwrap();
    let scene = Scene::on(Stack::shared().kafka().clone(), vec![redis.url()], "figures", 1, POLICY);
    let mut worker = scene.worker("figures");
    wait_ready(&worker);
    publish(&scene, "old", 50, 3600);
    scene.drain(&mut worker);
    wait_until(DEADLINE, "they are counted", || sum(&worker, "weir_record_commit_seconds_count") == 50.0);
    assert_eq!(sum(&worker, "weir_record_decision_seconds_count"), 50.0);
    let (decided, committed) =
        (sum(&worker, "weir_record_decision_seconds_sum"), sum(&worker, "weir_record_commit_seconds_sum"));
    let most = 50.0 * (3600.0 + DEADLINE.as_secs_f64());
    assert!(50.0 * 3600.0 <= decided && decided <= committed && committed < most, "{decided} {committed}");
    let lag = |worker: &Worker| metric(worker, "weir_lag_seconds", "partition=\"0\"");
    assert_eq!(lag(&worker), Some(0.0));

    redis.freeze();
    publish(&scene, "stuck", 1, 600);
    wait_until(DEADLINE, "the record has waited for ten minutes", || lag(&worker) >= Some(600.0));
    let before = lag(&worker);
    wait_until(DEADLINE, "it grows older", || lag(&worker) > before);
    assert!(lag(&worker) < Some(600.0 + DEADLINE.as_secs_f64()));
    redis.thaw();
    scene.drain(&mut worker);
    wait_until(DEADLINE, "nothing waits", || lag(&worker) == Some(0.0));
}

#[test]
fn the_mark_of_a_publishers_transaction_does_not_grow_old() {
    let scene = Scene::new("mark", 1, POLICY);
    let worker = scene.worker("mark");
    wait_ready(&worker);
    let publisher = Publisher::transactional(&scene.kafka, &scene.topic("intents"), &scene.name).unwrap();
    publisher.begin().unwrap();
    publisher.send(&intent("marked", "user-1", json!({}))).unwrap();
    publisher.commit().unwrap();
    // The mark is the second record, and is never read.
    let is_left = || {
        let committed = metric(&worker, "weir_record_commit_seconds_count", "") == Some(1.0);
        committed && metric(&worker, "weir_lag_records", "partition=\"0\"") == Some(1.0)
    };
    wait_until(DEADLINE, "the mark is left", is_left);
    let left_at = Instant::now();
    wait_until(DEADLINE, "five seconds have passed", || {
        assert!(metric(&worker, "weir_lag_seconds", "") < Some(3.0));
        left_at.elapsed() > Duration::from_secs(5)
    });
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_and_its_build_are_described() {
    let scene = Scene::new("process", 1, POLICY);
    let worker = scene.worker("process");
    wait_ready(&worker);
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(metric(&worker, "weir_build_info", &version), Some(1.0));
    let started = sum(&worker, "process_start_time_seconds");
    let now = SystemClock.now().millis() as f64 / 1000.0;
    assert!((now - DEADLINE.as_secs_f64()..=now + 1.0).contains(&started), "{started}");
    assert!((0.01..DEADLINE.as_secs_f64()).contains(&sum(&worker, "process_cpu_seconds_total")));
    let (resident, whole) =
        (sum(&worker, "process_resident_memory_bytes"), sum(&worker, "process_virtual_memory_bytes"));
    assert!(1e6 < resident && resident < whole, "{resident} {whole}");
    assert!(sum(&worker, "process_threads") > 3.0);
    let (open, most) = (sum(&worker, "process_open_fds"), sum(&worker, "process_max_fds"));
    assert!(3.0 < open && open < most, "{open} {most}");
}
