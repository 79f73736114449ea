//! A scene for tests against real servers: topics, a keyspace, a policy, segments and workers of one's own.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "test support: each test file uses its part of it")]

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use testkit::{
    kafka::{Consumed, KafkaClient, Record},
    stack::Stack,
    unique, wait_until,
    worker::Worker,
};

pub mod model;

/// Users 0 to 999 are `new`, 1,000 to 2,999 `active`, 3,000 to 3,999 `staff`; all others are in no segment.
pub const SEGMENTS: [(&str, std::ops::Range<u64>); 3] =
    [("new", 0..1000), ("active", 1000..3000), ("staff", 3000..4000)];

pub const POLICY: &str = r#"
version = "test-1"
timezone = "Asia/Singapore"

[segments.new]
caps = [ { name = "daily", limit = 2, window = "24h" }, { name = "weekly", limit = 5, window = "7d" } ]
[segments.active]
caps = [
  { name = "daily",      limit = 4, window = "24h" },
  { name = "push-today", limit = 2, per = "day", channel = "push" },
  { name = "promo-week", limit = 3, window = "7d", category = ["promo", "partner"] },
  { name = "once",       limit = 1, window = "1h", each = "campaign" },
]
[segments.staff]
caps = "unlimited"
[default]
caps = [ { name = "daily", limit = 1, window = "24h" } ]
[[bypass]]
category = "transactional"
counts = false
"#;

/// The built `weir`.
pub fn weir() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weir"))
}

/// How long anything may take here; the machines are small.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub struct Scene {
    pub kafka: KafkaClient,
    pub name: String,
    pub folder: tempfile::TempDir,
    pub partitions: i32,
    pub redis: Vec<String>,
    pub delivery: &'static str,
    pub extra: String,
}

impl Scene {
    /// Topics and files for one test; on the shared Kafka and the shared Redis Cluster.
    pub fn new(name: &str, partitions: i32, policy: &str) -> Self {
        let stack = Stack::shared();
        Self::on(stack.kafka().clone(), stack.redis_cluster().to_vec(), name, partitions, policy)
    }

    pub fn on(kafka: KafkaClient, redis: Vec<String>, name: &str, partitions: i32, policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scene = Self {
            kafka,
            name: unique(name),
            folder,
            partitions,
            redis,
            delivery: "exactly_once",
            extra: String::new(),
        };
        for topic in ["intents", "approved", "suppressed", "dead"] {
            let sizes: &[(&str, &str)] = &[("max.message.bytes", "9000000")];
            scene.kafka.create_topic_with(&scene.topic(topic), partitions, sizes).unwrap();
        }
        std::fs::write(scene.path("policy.toml"), policy).unwrap();
        scene.build_segments();
        scene
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn topic(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    fn build_segments(&self) {
        let mut build = Command::new(weir());
        build
            .args(["segments", "build", "--user-id", "u32", "--version", "test-set", "--out"])
            .arg(self.path("segments"));
        for (name, users) in SEGMENTS {
            let mut lines = String::new();
            for user in users {
                writeln!(lines, "{user}").unwrap();
            }
            let file = self.path(&format!("{name}.ids"));
            std::fs::write(&file, lines).unwrap();
            build.arg(format!("{name}={}", file.display()));
        }
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }

    /// The configuration of an instance.
    pub fn config(&self, instance: &str) -> String {
        let nodes = self.redis.iter().map(|node| format!("{node:?}")).collect::<Vec<_>>().join(", ");
        format!(
            r#"
[kafka]
brokers = "{}"
group = "{}"
intents = "{}"
approved = "{}"
suppressed = "{}"
dead_letters = "{}"
delivery = "{}"
instance = "{instance}"
[kafka.properties]
"session.timeout.ms" = "6000"
"heartbeat.interval.ms" = "500"
[redis]
nodes = [{nodes}]
prefix = "{}"
shards = 64
users = 10000
[segments]
source = {:?}
refresh = "1s"
[policy]
source = {:?}
refresh = "1s"
[worker]
lanes = 1
batch = 2000
[http]
listen = "127.0.0.1:0"
{}
"#,
            self.kafka.bootstrap(),
            self.name,
            self.topic("intents"),
            self.topic("approved"),
            self.topic("suppressed"),
            self.topic("dead"),
            self.delivery,
            self.name,
            self.path("segments/manifest.json").display().to_string(),
            self.path("policy.toml").display().to_string(),
            self.extra,
        )
    }

    pub fn worker(&self, instance: &str) -> Worker {
        Worker::run(weir(), &self.config(instance)).unwrap()
    }

    pub fn publish(&self, records: impl IntoIterator<Item = Record>) {
        self.kafka.publish(&self.topic("intents"), records).unwrap();
    }

    /// Waits until the group has committed the end of every partition of the intents.
    pub fn wait_until_drained(&self) {
        self.wait_until_drained_or(|| {});
    }

    pub fn wait_until_drained_or(&self, mut meanwhile: impl FnMut()) {
        let topic = self.topic("intents");
        let ends = self.kafka.end_offsets(&topic).unwrap();
        wait_until(DEADLINE, "all intents are decided", || {
            meanwhile();
            // The group's coordinator is not there before the first member asks for it.
            let Ok(committed) = self.kafka.committed(&self.name, &topic) else { return false };
            ends.iter().zip(&committed).all(|(end, done)| *end == 0 || done.is_some_and(|done| done >= *end))
        });
    }

    /// How many intents the group has done.
    pub fn done(&self) -> i64 {
        let committed = self.kafka.committed(&self.name, &self.topic("intents")).unwrap_or_default();
        committed.into_iter().flatten().sum()
    }

    pub fn output(&self, which: &str) -> Vec<Consumed> {
        self.kafka.read_committed(&self.topic(which)).unwrap()
    }

    /// All decisions, by intent id; fails when an id has more than one.
    pub fn decisions(&self) -> BTreeMap<String, Decision> {
        let mut all = BTreeMap::new();
        let mut add = |id: String, decision| {
            assert!(all.insert(id.clone(), decision).is_none(), "intent {id} has two records");
        };
        for record in self.output("approved") {
            let intent: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            let at = header(&record, "weir-decided-at").unwrap().parse().unwrap();
            add(intent["id"].as_str().unwrap().to_owned(), Decision { at_ms: at, envelope: None, record });
        }
        for record in self.output("suppressed") {
            let envelope: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            let at: jiff::Timestamp = envelope["decided_at"].as_str().unwrap().parse().unwrap();
            let id = envelope["intent_id"].as_str().unwrap().to_owned();
            add(id, Decision { at_ms: at.as_millisecond(), envelope: Some(envelope), record });
        }
        all
    }
}

/// What became of an intent: `envelope` is there when it was suppressed.
#[derive(Debug, Clone)]
pub struct Decision {
    pub at_ms: i64,
    pub envelope: Option<Value>,
    pub record: Consumed,
}

impl Decision {
    pub fn approved(&self) -> bool {
        self.envelope.is_none()
    }

    pub fn reason(&self) -> &str {
        self.envelope.as_ref().map_or("approved", |envelope| envelope["reason"].as_str().unwrap())
    }
}

pub fn header(record: &Consumed, name: &str) -> Option<String> {
    let (_, value) = record.headers.iter().rev().find(|(key, _)| key == name)?;
    Some(String::from_utf8(value.clone()?).unwrap())
}
