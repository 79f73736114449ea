//! Topics of a real Kafka, beside a real worker.

use std::collections::BTreeMap;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use serde_json::{Value, json};
use testkit::{kafka::Record, process::output, redis::RedisServer, stack::Stack};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::support::{DEADLINE, Scene, approval, is_by_schema, outcome::time_ms, weir};

/// Sliding windows alone: the worker decides some moments after a record's time, which no window here notices.
const POLICY: &str = r#"
version = "v1"
[segments.new]
caps = [{ name = "daily", limit = 2, window = "24h" }]
[segments.active]
caps = [
  { name = "daily", limit = 3, window = "24h" },
  { name = "promo", limit = 1, window = "7d", category = "promo" },
  { name = "once",  limit = 1, window = "12h", each = "campaign" },
]
[segments.staff]
caps = "unlimited"
[default]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[[bypass]]
category = "transactional"
counts = false
"#;

fn simulate(scene: &Scene, more: &[&str]) -> Value {
    let args = ["policy", "simulate", "--intents", "topic", "--policy", &scene.policy];
    let report = scene.summary(&[&args[..], more].concat());
    is_by_schema("schemas/simulation.schema.json", &report);
    report
}

fn record(id: &str, user: u64, more: &Value) -> Record {
    let mut intent = json!({"id": id, "user_id": user});
    intent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Record::new(user.to_string(), intent.to_string())
}

/// Intents of all segments, with repeated ids and invalid records among them.
fn traffic(seed: u64, count: usize) -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(seed);
    let one = |number: usize| {
        if number % 50 == 7 {
            return Record::new("1", "{");
        }
        let user = [0, 1000, 3000, 5000][random.usize(0..4)] + random.u64(0..40);
        let category = ["promo", "news", "transactional"][random.usize(0..3)];
        let id = format!("{seed}-{}", if number % 20 == 3 { 3 } else { number });
        record(&id, user, &json!({"category": category, "campaign": format!("c{}", random.u8(0..3)), "cost": 1}))
    };
    (0..count).map(one).collect()
}

/// What the worker's outputs say: by segment and reason or cap.
fn decided(scene: &Scene) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in scene.output("approved") {
        let segment = approval(&record)["segment"].as_str().unwrap_or("none").to_owned();
        *counts.entry(format!("{segment} sent")).or_default() += 1;
    }
    for record in scene.output("suppressed") {
        let envelope: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        let segment = envelope["segment"].as_str().unwrap_or("none").to_owned();
        let why = envelope["cap"]["name"].as_str().map_or_else(|| "suppressed".to_owned(), |cap| format!("cap {cap}"));
        *counts.entry(format!("{segment} suppressed")).or_default() += 1;
        if why != "suppressed" {
            *counts.entry(format!("{segment} {why}")).or_default() += 1;
        }
    }
    *counts.entry("dead".to_owned()).or_default() += scene.count("dead") as u64;
    counts
}

/// The same of a report.
fn simulated(report: &Value) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let name = |name: &Value| name.as_str().unwrap_or("none").to_owned();
    for row in report["segments"].as_array().unwrap() {
        let outcome = &row["outcomes"][0];
        counts.insert(format!("{} sent", name(&row["name"])), outcome["approved"].as_u64().unwrap());
        counts.insert(format!("{} suppressed", name(&row["name"])), outcome["suppressed"].as_u64().unwrap());
    }
    for row in report["caps"].as_array().unwrap() {
        let of = format!("{} cap {}", name(&row["segment"]), row["cap"].as_str().unwrap());
        counts.insert(of, row["suppressed"][0].as_u64().unwrap());
    }
    let dead =
        report["source"]["dead_letters"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    counts.insert("dead".to_owned(), dead);
    counts
}

#[test]
fn a_topic_is_simulated_as_a_worker_decided_it_and_its_history_goes_on() {
    let stack = Stack::shared();
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    let scene = Scene::on(stack.kafka().clone(), vec![redis.url()], "simulate", 3, POLICY);
    scene.publish(traffic(1, 1500));
    let mut worker = scene.drained("simulate");

    let first = decided(&scene);
    let report = simulate(&scene, &["--approved", "none"]);
    let positive =
        |counts: BTreeMap<String, u64>| counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
    assert_eq!(positive(simulated(&report)), positive(first.clone()));
    assert_eq!(report["source"]["records"], 1500);

    // A second part, told apart by time: what the first part sent is its history.
    let newest = ["approved", "suppressed", "dead"].iter().flat_map(|topic| scene.output(topic));
    let from_ms = newest.filter_map(|record| record.timestamp_ms).max().unwrap() + 1;
    scene.decide_by(&mut worker, traffic(2, 600));
    drop(worker);
    let from = jiff::Timestamp::from_millisecond(from_ms).unwrap().to_string();
    let mut both = decided(&scene);
    for (name, count) in &first {
        *both.get_mut(name).unwrap() -= count;
    }
    let with_history = simulate(&scene, &["--since", &from]);
    assert_eq!(with_history["source"]["records"], 600);
    let sent: u64 = first.iter().filter(|(name, _)| name.ends_with(" sent")).map(|(_, count)| count).sum();
    let bypassed = scene.output("approved").iter().filter(|record| approval(record)["counts"] == false).count();
    assert!(with_history["source"]["history_sends"].as_u64().unwrap() >= sent - bypassed as u64);
    assert_eq!(positive(simulated(&with_history)), positive(both.clone()));
    let without = simulate(&scene, &["--since", &from, "--approved", "none"]);
    let approved = [&without, &with_history].map(|report| report["policies"][0]["approved"].as_u64().unwrap());
    assert!(approved[0] > approved[1], "without its history the first day is too lenient: {approved:?}");
}

#[test]
fn a_topic_is_read_outside_of_the_group_merged_by_time_and_only_what_is_committed() {
    let segments = ["new", "active", "staff"].map(|name| format!("[segments.{name}]\ncaps = \"unlimited\"\n"));
    let caps = "version = \"v\"\n[default]\ncaps = [{ name = \"c\", limit = 1, window = \"1h\" }]\n".to_owned();
    let scene = Scene::new("simulate-read", 4, &(caps + &segments.concat()));
    // One user's intents on all partitions, twenty minutes apart; the later ones are published first.
    // Yesterday, by the full hour: the topic's retention is 8 days.
    let begin_ms = (SystemClock.now().millis() / 3_600_000 - 24) * 3_600_000;
    let records = (0..40_i32).rev().map(|number| {
        let record = record(&format!("i{number}"), 9000, &json!({}));
        record.partition(number % 4).timestamp_ms(begin_ms + i64::from(number) * 1_200_000)
    });
    // Within a partition the order is that of the offsets, so each partition is published in the order of time.
    let mut records: Vec<Record> = records.collect();
    records.sort_by_key(|record| (std::cmp::Reverse(record.partition), record.timestamp_ms));
    scene.publish(records);
    let report = simulate(&scene, &["--approved", "none"]);
    assert_eq!(report["policies"][0]["approved"], 14, "one in each hour, by time: {report:#}");
    let time = |hours: i64| jiff::Timestamp::from_millisecond(begin_ms + hours * 3_600_000).unwrap().to_string();
    let part = simulate(&scene, &["--approved", "none", "--since", &time(2), "--until", &time(4)]);
    assert_eq!((&part["source"]["records"], &part["policies"][0]["approved"]), (&json!(6), &json!(2)));
    assert_eq!(time_ms(&part["from"]), Some(begin_ms + 2 * 3_600_000), "{part:#}");

    let committed = scene.kafka.committed(&scene.name, &scene.topic("intents")).unwrap_or_default();
    assert!(committed.iter().all(Option::is_none), "nothing is committed: {committed:?}");
    let reader: BaseConsumer = scene.kafka.config().create().unwrap();
    let groups = reader.fetch_group_list(Some(&scene.name), DEADLINE).unwrap();
    assert!(groups.groups().iter().all(|group| group.members().is_empty()), "it joins no group");
}

#[test]
fn a_topic_that_cannot_be_read_is_an_error_that_says_so() {
    let scene = Scene::new("simulate-gone", 1, POLICY);
    let run = |config: String, intents: &str| {
        std::fs::write(scene.path("weir.toml"), config).unwrap();
        let mut command = std::process::Command::new(weir());
        command.args(["policy", "simulate", "--policy", "policy.toml", "--config", "weir.toml", "--intents", intents]);
        let output = output(command.current_dir(scene.folder.path())).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, err) = run(scene.config("simulate"), "topic:nowhere-at-all");
    assert!(code == Some(1) && err.contains("nowhere-at-all does not exist"), "{code:?} {err}");
    let (code, err) = run(scene.config("simulate").replace(scene.kafka.bootstrap(), "127.0.0.1:1"), "topic");
    assert!(code == Some(1) && err.contains("127.0.0.1:1"), "{code:?} {err}");
}
