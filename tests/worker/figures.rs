//! The promise: the time that records wait, the age of the oldest one, and the process itself are measured.

use std::time::{Duration, Instant};

use crate::support::{DEADLINE, POLICY, Scene, http::metric, outcome::intent};
use serde_json::{Value, json};
use testkit::{kafka::Publisher, wait_until, worker::Worker};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

fn publish(scene: &Scene, wave: &str, intents: usize, seconds_ago: i64) {
    let at = SystemClock.now().millis() - seconds_ago * 1000;
    let one = |number: usize| intent(&format!("{wave} {number}"), format!("user-{number}"), json!({})).timestamp_ms(at);
    scene.publish((0..intents).map(one));
}

fn sum(worker: &Worker, name: &str) -> f64 {
    metric(worker, name, "").unwrap()
}

/// What a record is younger than that was so many seconds old when it was published, however long this machine has taken since.
fn oldest_s(seconds_ago: u32, published: Instant) -> f64 {
    // The two clocks may run apart a little.
    f64::from(seconds_ago) + published.elapsed().as_secs_f64() + 1.0
}

#[test]
fn the_time_from_record_to_decision_and_commit_and_the_lag_in_seconds_are_measured() {
    let (mut redis, scene) = Scene::with_redis("figures", 1, POLICY);
    let mut worker = scene.ready("figures");
    let old = Instant::now();
    publish(&scene, "old", 50, 3600);
    scene.drain(&mut worker);
    wait_until(DEADLINE, "they are counted", || sum(&worker, "weir_record_commit_seconds_count") == 50.0);
    assert_eq!(sum(&worker, "weir_record_decision_seconds_count"), 50.0);
    let (decided, committed) =
        (sum(&worker, "weir_record_decision_seconds_sum"), sum(&worker, "weir_record_commit_seconds_sum"));
    let most = 50.0 * oldest_s(3600, old);
    assert!(50.0 * 3600.0 <= decided && decided <= committed && committed < most, "{decided} {committed}, not {most}");
    let lag = |worker: &Worker| metric(worker, "weir_lag_seconds", "partition=\"0\"");
    assert_eq!(lag(&worker), Some(0.0));

    redis.freeze();
    let stuck = Instant::now();
    publish(&scene, "stuck", 1, 600);
    wait_until(DEADLINE, "the record has waited for ten minutes", || lag(&worker) >= Some(600.0));
    let before = lag(&worker);
    wait_until(DEADLINE, "it grows older", || lag(&worker) > before);
    assert!(lag(&worker) < Some(oldest_s(600, stuck)));
    redis.thaw();
    scene.drain(&mut worker);
    wait_until(DEADLINE, "nothing waits", || lag(&worker) == Some(0.0));
}

fn wait_without_lag(scene: &Scene, worker: &Worker) {
    // A transaction's end is in its partitions a moment after the publisher hears that it has ended.
    scene.wait_at_end(&scene.name, &scene.topic("intents"));
    wait_until(DEADLINE, "no lag is left", || metric(worker, "weir_lag_records", "") == Some(0.0));
}

#[test]
fn offsets_without_a_record_are_no_lag_and_are_committed() {
    for delivery in ["exactly_once", "at_least_once"] {
        let mut scene = Scene::new("marks", 3, POLICY);
        scene.delivery = delivery;
        let worker = scene.ready("marks");
        let publisher = Publisher::transactional(&scene.kafka, &scene.topic("intents"), &scene.name).unwrap();
        publisher.begin().unwrap();
        publisher.send(&intent("marked", "user-1", json!({})).partition(0)).unwrap();
        publisher.commit().unwrap();
        wait_until(DEADLINE, "it is decided", || sum(&worker, "weir_record_commit_seconds_count") == 1.0);
        wait_without_lag(&scene, &worker);
        // Of an aborted transaction nothing is ever read.
        publisher.begin().unwrap();
        for number in 0..21 {
            publisher.send(&intent(&format!("aborted-{number}"), "user-2", json!({})).partition(1)).unwrap();
        }
        publisher.abort().unwrap();
        wait_without_lag(&scene, &worker);
        // Nor of an open one, until it ends.
        publisher.begin().unwrap();
        publisher.send(&intent("open", "user-3", json!({})).partition(2)).unwrap();
        publisher.flush().unwrap();
        let open_at = Instant::now();
        wait_until(DEADLINE, "five seconds have passed", || {
            assert_eq!(metric(&worker, "weir_lag_records", ""), Some(0.0), "it cannot be read yet");
            assert_eq!(metric(&worker, "weir_lag_seconds", ""), Some(0.0), "no record waits");
            open_at.elapsed() > Duration::from_secs(5)
        });
        publisher.commit().unwrap();
        wait_until(DEADLINE, "it is decided", || sum(&worker, "weir_record_commit_seconds_count") == 2.0);
        wait_without_lag(&scene, &worker);
        assert_eq!(scene.every_decision().len(), 2);
    }
}

#[test]
fn beside_a_partition_that_is_never_idle_ends_are_committed_and_an_open_transaction_is_no_lag() {
    let scene = Scene::new("busy-marks", 2, POLICY);
    let worker = scene.ready("marks");
    let topic = scene.topic("intents");
    let busy = scene.kafka.publisher(&topic).unwrap();
    let mut number = 0;
    let mut busy_until = |what: &str, done: &dyn Fn() -> bool| {
        wait_until(DEADLINE, what, || {
            for _ in 0..100 {
                let (id, user) = (format!("busy-{number}"), format!("user-{number}"));
                busy.send(&intent(&id, user, json!({})).partition(0)).unwrap();
                busy.serve(Instant::now() + Duration::from_millis(5));
                number += 1;
            }
            done()
        });
    };
    let upstream = Publisher::transactional(&scene.kafka, &topic, &scene.name).unwrap();
    let begin = |intents: usize| {
        upstream.begin().unwrap();
        for number in 0..intents {
            upstream.send(&intent(&format!("upstream-{number}"), "user-2", json!({})).partition(1)).unwrap();
        }
        upstream.flush().unwrap();
    };
    let lag = || metric(&worker, "weir_lag_records", "partition=\"1\"");
    begin(21);
    upstream.abort().unwrap();
    busy_until("the end is committed", &|| {
        scene.kafka.committed(&scene.name, &topic).is_ok_and(|committed| committed[1] == Some(22))
    });
    busy_until("no lag is left", &|| lag() == Some(0.0));
    begin(1);
    let open_at = Instant::now();
    busy_until("five seconds have passed", &|| {
        assert_eq!(lag(), Some(0.0), "it cannot be read yet");
        open_at.elapsed() > Duration::from_secs(5)
    });
    upstream.abort().unwrap();
    busy.finish().unwrap();
}

fn is_described(worker: &Worker) {
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(metric(worker, "weir_build_info", &version), Some(1.0));
    let started = sum(worker, "process_start_time_seconds");
    let now = SystemClock.now().millis() as f64 / 1000.0;
    assert!((now - DEADLINE.as_secs_f64()..=now + 1.0).contains(&started), "{started}");
    assert!((0.01..DEADLINE.as_secs_f64()).contains(&sum(worker, "process_cpu_seconds_total")));
    let (resident, whole) = (sum(worker, "process_resident_memory_bytes"), sum(worker, "process_virtual_memory_bytes"));
    assert!(1e6 < resident && resident < whole, "{resident} {whole}");
    assert!(sum(worker, "process_threads") > 3.0);
    let (open, most) = (sum(worker, "process_open_fds"), sum(worker, "process_max_fds"));
    assert!(3.0 < open && open < most, "{open} {most}");
}

/// Seconds in the place of milliseconds, and the year 1 for a time that is not set.
#[test]
fn times_that_hardly_anybody_means_are_counted_and_told_of_once_and_the_process_and_its_build_are_described() {
    let scene = Scene::new("early-times", 1, POLICY);
    let mut worker = scene.ready("early");
    is_described(&worker);
    let mut counted = 0.0;
    for wave in ["first", "second"] {
        let one = |name: &str, at: Value| intent(&format!("{wave} {name}"), 3_500, json!({"expires_at": at}));
        let year_1 = json!("0001-01-01T00:00:00Z");
        scene.publish([one("seconds", json!(1_795_165_200)), one("year 1", year_1), one("none", Value::Null)]);
        scene.drain(&mut worker);
        counted += 2.0;
        wait_until(DEADLINE, "they are counted", || sum(&worker, "weir_early_times_total") == counted);
    }
    let decisions = scene.decisions();
    for (name, reason) in [("seconds", "expired"), ("year 1", "expired"), ("none", "approved")] {
        assert_eq!(decisions[&format!("first {name}")].reason(), reason, "{name}");
    }
    let log = worker.log();
    assert_eq!(log.matches("before 1971").count(), 1, "{log}");
}
