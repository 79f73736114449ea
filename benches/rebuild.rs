//! How fast `weir rebuild` is: `cargo bench --bench rebuild -- 1000000` fills an approved topic with so many sends (the last number
//! given counts) and restores them into an empty Redis Cluster of three primaries, on servers that it starts and ends itself.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench that cannot be set up should say so and end; it prints figures, and its sends are of yesterday"
)]

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use testkit::{
    kafka::{Kafka, Record},
    process::printed_within,
    redis::RedisCluster,
};

const SENDS: u64 = 300_000;
const SENDS_A_USER: u64 = 4;
const PARTITIONS: i32 = 8;
/// A rebuild restores the budgets of the policy; this one has none.
const POLICY: &str = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n";
/// Sends per second, while reading, that are wanted of two cores.
const GOAL: f64 = 250_000.0;
const DEADLINE: Duration = Duration::from_secs(3_600);
/// Ticks of the kernel's CPU times in a second, on Linux for programs.
const TICKS: f64 = 100.0;

fn main() {
    let sends = std::env::args().rev().find_map(|arg| arg.parse().ok()).unwrap_or(SENDS);
    let kafka = Kafka::start(1).unwrap();
    let redis = RedisCluster::start(3, 0).unwrap();
    for topic in ["intents", "approved", "suppressed", "dead"] {
        kafka.create_topic(topic, PARTITIONS).unwrap();
    }
    let begin_ms = jiff::Timestamp::now().as_millisecond() - 86_400_000;
    let records = (0..sends).map(|number| send(number, begin_ms + i64::try_from(number % 80_000_000).unwrap()));
    kafka.client().publish("approved", records).unwrap();

    let folder = testkit::folder();
    let file = folder.path().join("weir.toml");
    fs::write(&file, config(kafka.bootstrap(), &redis.nodes())).unwrap();
    fs::write(folder.path().join("policy.toml"), POLICY).unwrap();
    let (before, began) = (children_cpu_seconds(), Instant::now());
    let mut rebuild = Command::new(env!("CARGO_BIN_EXE_weir"));
    rebuild.args(["rebuild", "--all", "--settle", "0s", "--output", "json", "--config"]).arg(&file);
    let summary = printed_within(DEADLINE, &mut rebuild).unwrap();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), children_cpu_seconds() - before);
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["restored"], sends, "{summary}");
    let us = cpu * 1e6 / sends as f64;
    println!("sends restored        {sends}, {SENDS_A_USER} a user");
    let reading = summary["sends_per_second"].as_f64().unwrap();
    println!("while reading         {reading:.0} sends/s");
    println!("whole run             {seconds:.1} s, {:.0} sends/s", sends as f64 / seconds);
    println!("CPU of weir rebuild   {cpu:.1} s, {us:.1} us per send: {:.0} sends per minute and core", 60e6 / us);
    let verdict = if reading >= GOAL { "met" } else { "not met" };
    println!("goal 10: sends/s while reading: {reading:.0}, wanted at least {GOAL:.0}: {verdict}");
}

fn send(number: u64, at_ms: i64) -> Record {
    let user = (number / SENDS_A_USER).wrapping_mul(2_654_435_761) % 1_000_000_000;
    let value = format!(
        r#"{{"id":"{number:032x}","user_id":{user},"channel":"push","category":"promo","campaign":"c{}","payload":"{:0100}"}}"#,
        number % 20,
        0
    );
    let at = jiff::Timestamp::from_millisecond(at_ms).unwrap();
    let decision = format!(
        r#"{{"verdict":"approved","decided_at":"{at:.3}","policy_version":"2026-11-20.1","segments_version":"2026-11-20T00:00:00Z","class":["push","promo","c{}"]}}"#,
        number % 20
    );
    Record::new(user.to_string(), value).header("weir-decision", decision)
}

fn config(brokers: &str, nodes: &[String]) -> String {
    format!(
        r#"
[kafka]
brokers = "{brokers}"
intents = "intents"
approved = "approved"
suppressed = "suppressed"
dead_letters = "dead"
[redis]
nodes = {nodes:?}
users = 1000000
[segments]
source = "manifest.json"
[policy]
source = "policy.toml"
"#
    )
}

/// CPU time of all children that have ended.
fn children_cpu_seconds() -> f64 {
    let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
    (stat.cutime + stat.cstime) as f64 / TICKS
}
