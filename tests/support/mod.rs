//! A scene for tests against real servers: its own topics, keyspace, policy, segments and workers.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "test support: each test file uses its part of it")]

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
    time::Duration,
};

use serde_json::Value;
use testkit::{
    SLOW_INTERVAL,
    clock::ProcessClock,
    kafka::{Consumed, KafkaClient, Record},
    process::{Exit, output},
    redis::RedisServer,
    s3::Bucket,
    scratch::Scratch,
    stack::{Stack, is_shared},
    unique, wait_for, wait_until, wait_until_every,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

pub mod http;
pub mod model;
pub mod outcome;
pub mod workload;

/// Users 0 to 999 are `new`, 1,000 to 2,999 `active`, 3,000 to 3,999 `staff`; all others are in no segment.
pub const SEGMENTS: [(&str, std::ops::Range<u64>); 3] =
    [("new", 0..1000), ("active", 1000..3000), ("staff", 3000..4000)];

/// The smallest configuration.
pub const SMALLEST: &str = r#"
[kafka]
brokers = "b:9092"
intents = "i"
approved = "a"
suppressed = "s"
dead_letters = "d"
[redis]
nodes = ["redis://r:6379"]
[segments]
source = "set/manifest.json"
[policy]
source = "policy.toml"
"#;

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

/// Names another `weir` binary than the built one, such as a released one.
pub const ENV_BINARY: &str = "WEIR_TEST_BINARY";

/// The built `weir`, or the one that [`ENV_BINARY`] names.
pub fn weir() -> &'static Path {
    static NAMED: LazyLock<Option<PathBuf>> = LazyLock::new(|| std::env::var_os(ENV_BINARY).map(PathBuf::from));
    NAMED.as_deref().unwrap_or(Path::new(env!("CARGO_BIN_EXE_weir")))
}

/// How long anything may take here; the machines are small.
pub const DEADLINE: Duration = Duration::from_secs(120);

const DELETE_WITHIN: Duration = Duration::from_secs(10);

/// Deletes all topics of a scene at its end from a Kafka that serves other tests after this process.
#[derive(Debug)]
struct Topics {
    kafka: KafkaClient,
    prefix: String,
}

impl Drop for Topics {
    fn drop(&mut self) {
        if is_shared(self.kafka.bootstrap()) {
            // The test has its result; topics that stay cost time only.
            let _ = self.kafka.delete_topics_of(&self.prefix, DELETE_WITHIN);
        }
    }
}

#[derive(Debug)]
pub struct Scene {
    pub kafka: KafkaClient,
    pub name: String,
    pub folder: Scratch,
    pub partitions: i32,
    pub redis: Vec<String>,
    pub delivery: &'static str,
    /// The manifest and the policy: paths or `s3://` URLs.
    pub segments: String,
    pub policy: String,
    /// Further sections of the configuration.
    pub extra: String,
    /// The worker's environment, which overrides the file: `WEIR__WORKER__BATCH`.
    pub env: Vec<(&'static str, String)>,
    _topics: Topics,
}

/// Checks each of these rules, and fails with the names of the broken ones. The panic of each comes first in the output.
pub fn keep(rules: &[(&str, fn())]) {
    let is_broken = |rule: fn()| std::panic::catch_unwind(rule).is_err();
    let broken: Vec<&str> = rules.iter().filter(|(_, rule)| is_broken(*rule)).map(|(name, _)| *name).collect();
    assert!(broken.is_empty(), "{} of {} rules are broken: {broken:#?}", broken.len(), rules.len());
}

pub const TOPICS: [&str; 4] = ["intents", "approved", "suppressed", "dead"];

/// The topics of a wheel, and how many partitions each has for a share.
pub const RINGS: [(&str, i32); 2] = [("hours", 96), ("minutes", 120)];

/// A policy whose caps deny nothing, with further sections.
pub fn unlimited(version: impl std::fmt::Display, more: &str) -> String {
    format!("version = \"{version}\"\n[default]\ncaps = \"unlimited\"\n{more}")
}

/// Asks a worker to end, which it does once it has drained; its log.
#[track_caller]
pub fn stop(worker: &mut Worker) -> String {
    worker.terminate();
    ends(worker, 0)
}

/// The log of a worker that ends with this code.
#[track_caller]
pub fn ends(worker: &mut Worker, code: i32) -> String {
    let exit = worker.wait_exit(DEADLINE).unwrap();
    assert_eq!(exit, Exit::Code(code), "{}", worker.log());
    worker.log()
}

/// What a worker printed that is not a log line.
pub fn paragraph(log: &str) -> String {
    log.lines().filter(|line| !line.starts_with('{')).collect::<Vec<_>>().join("\n")
}

/// Runs a command to its end, which has to be a good one.
#[track_caller]
pub fn succeed(command: &mut Command) -> Output {
    let output = output(command).unwrap();
    assert!(output.status.success(), "{}", said(&output));
    output
}

/// Fails unless a value is as a schema of the repository says.
#[track_caller]
pub fn is_by_schema(schema: impl AsRef<Path>, value: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(schema);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema = serde_json::from_slice(&text).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let problems: Vec<String> = schema.iter_errors(value).map(|problem| problem.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}: {value}");
}

/// All that a command has printed.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

impl Scene {
    /// Topics and files for one test; on the shared Kafka and the shared Redis Cluster.
    pub fn new(name: &str, partitions: i32, policy: &str) -> Self {
        Self::on_redis(Stack::shared().redis_cluster().to_vec(), name, partitions, policy)
    }

    /// The same on a Redis of one's own, to be broken.
    pub fn with_redis(name: &str, partitions: i32, policy: &str) -> (RedisServer, Self) {
        let redis = RedisServer::start::<&str>(&[]).unwrap();
        let scene = Self::on_redis(vec![redis.url()], name, partitions, policy);
        (redis, scene)
    }

    /// The same on these nodes of Redis.
    pub fn on_redis(redis: Vec<String>, name: &str, partitions: i32, policy: &str) -> Self {
        Self::on(Stack::shared().kafka().clone(), redis, name, partitions, policy)
    }

    pub fn on(kafka: KafkaClient, redis: Vec<String>, name: &str, partitions: i32, policy: &str) -> Self {
        let scene = Self::bare_on(kafka, redis, name, partitions, policy);
        scene.create_topics([partitions; 4]);
        scene.build_segments(&SEGMENTS);
        scene
    }

    /// A scene without topics and segments, on the shared servers.
    pub fn bare(name: &str, partitions: i32, policy: &str) -> Self {
        let stack = Stack::shared();
        Self::bare_on(stack.kafka().clone(), stack.redis_cluster().to_vec(), name, partitions, policy)
    }

    pub fn bare_on(kafka: KafkaClient, redis: Vec<String>, name: &str, partitions: i32, policy: &str) -> Self {
        let folder = testkit::folder();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (kafka, name) = (kafka.apart(), unique(name));
        let scene = Self {
            _topics: Topics { kafka: kafka.clone(), prefix: format!("{name}-") },
            kafka,
            name,
            partitions,
            redis,
            delivery: "exactly_once",
            segments: file("segments/manifest.json"),
            policy: file("policy.toml"),
            extra: String::new(),
            env: Vec::new(),
            folder,
        };
        scene.write_policy(policy);
        scene
    }

    /// Creates the topics with so many partitions: intents, approved, suppressed, dead letters.
    pub fn create_topics(&self, partitions: [i32; 4]) {
        let topics = TOPICS.map(|topic| self.topic(topic)).into_iter().zip(partitions);
        // Approved records are kept for as long as the history, as weir check requires.
        self.create_large(topics, "691200000");
    }

    /// Creates topics that take large records.
    fn create_large(&self, topics: impl IntoIterator<Item = (String, i32)>, retention_ms: &str) {
        let topics: Vec<(String, i32)> = topics.into_iter().collect();
        let topics: Vec<(&str, i32)> = topics.iter().map(|(topic, partitions)| (topic.as_str(), *partitions)).collect();
        let settings = [("max.message.bytes", "9000000"), ("retention.ms", retention_ms)];
        self.kafka.create_topics(&topics, &settings).unwrap();
    }

    /// Creates topics of intents that wait: until they are due, or for a route.
    pub fn create_waiting(&self, topics: impl IntoIterator<Item = (String, i32)>) {
        self.create_large(topics, "424800000");
    }

    /// Creates the topics of a wheel with so many shares; what their names begin with.
    pub fn create_wheel(&self, name: &str, shares: i32) -> String {
        let prefix = self.topic(name);
        self.create_waiting(RINGS.map(|(ring, buckets)| (format!("{prefix}-{ring}"), buckets * shares)));
        prefix
    }

    /// Creates the topics of a wheel with so many shares, and has intents deferred to them.
    pub fn defer(&mut self, shares: i32) {
        let prefix = self.create_wheel("deferred", shares);
        self.set("WEIR__KAFKA__DEFERRED", prefix);
    }

    /// Sets a variable of what is started from now on.
    pub fn set(&mut self, variable: &'static str, value: impl Into<String>) {
        self.unset(variable);
        self.env.push((variable, value.into()));
    }

    pub fn unset(&mut self, variable: &str) {
        self.env.retain(|(name, _)| *name != variable);
    }

    /// Creates a topic of the scene with so many partitions, and names it in a variable.
    pub fn set_topic(&mut self, variable: &'static str, name: &str, partitions: i32) {
        let topic = self.topic(name);
        self.kafka.create_topic(&topic, partitions).unwrap();
        self.set(variable, topic);
    }

    /// Has the group give away the partitions of a worker that was killed in half of the usual time.
    pub fn end_sessions_soon(&mut self) {
        self.set("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "3000");
    }

    /// Creates the topics of intents that wait for these routes, and has intents wait there.
    pub fn wait_for_routes(&mut self, routes: &[&str]) {
        self.wait_for_routes_on(32, routes);
    }

    /// The same, with so many partitions each.
    pub fn wait_for_routes_on(&mut self, partitions: i32, routes: &[&str]) {
        let prefix = self.topic("waiting");
        self.create_waiting(routes.iter().map(|route| (format!("{prefix}-{route}"), partitions)));
        self.set("WEIR__KAFKA__WAITING", prefix);
    }

    /// Replaces the policy file atomically.
    pub fn write_policy(&self, policy: &str) {
        std::fs::write(self.path("policy.new"), policy).unwrap();
        std::fs::rename(self.path("policy.new"), self.path("policy.toml")).unwrap();
    }

    /// Has the segments read from this folder of the bucket.
    pub fn put_segments(&mut self, bucket: &Bucket, folder: &str) {
        for file in std::fs::read_dir(self.path("segments")).unwrap().map(Result::unwrap) {
            let key = format!("{folder}/{}", file.file_name().to_str().unwrap());
            bucket.put(&key, std::fs::read(file.path()).unwrap()).unwrap();
        }
        self.segments = bucket.url(&format!("{folder}/manifest.json"));
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub fn topic(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    /// Builds the segments of u32 ids in the scene's folder.
    pub fn build_segments(&self, segments: &[(&str, std::ops::Range<u64>)]) {
        if segments != SEGMENTS {
            return self.build_into(&self.path("segments"), segments);
        }
        std::fs::create_dir_all(self.path("segments")).unwrap();
        for file in std::fs::read_dir(self.usual_segments()).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), self.path("segments").join(file.file_name())).unwrap();
        }
    }

    /// The folder of [`SEGMENTS`], which the first test of an hour builds for all.
    fn usual_segments(&self) -> PathBuf {
        let (program, hour) = (weir().metadata().unwrap(), SystemClock.now().millis() / 3_600_000);
        let mut hasher = DefaultHasher::new();
        (weir(), program.len(), program.modified().unwrap(), hour).hash(&mut hasher);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("segments-{:016x}", hasher.finish()));
        if !folder.exists() {
            let own = folder.with_file_name(&self.name);
            self.build_into(&own, &SEGMENTS);
            // Another test may have been as fast.
            if std::fs::rename(&own, &folder).is_err() {
                std::fs::remove_dir_all(&own).unwrap();
            }
        }
        folder
    }

    fn build_into(&self, folder: &Path, segments: &[(&str, std::ops::Range<u64>)]) {
        let mut build = Command::new(weir());
        build.args(["segments", "build", "--user-id", "u32", "--set-version", "test-set", "--into"]).arg(folder);
        for (name, users) in segments {
            build.arg(format!("{name}={}", self.ids(name, users.clone()).display()));
        }
        succeed(&mut build);
    }

    /// A file of ids, one per line.
    pub fn ids(&self, name: &str, users: impl IntoIterator<Item = impl std::fmt::Display>) -> PathBuf {
        let lines: String = users.into_iter().map(|user| format!("{user}\n")).collect();
        let file = self.path(&format!("{name}.ids"));
        std::fs::write(&file, lines).unwrap();
        file
    }

    /// The configuration of an instance.
    pub fn config(&self, instance: &str) -> String {
        let Self { name, redis, delivery, segments, policy, extra, .. } = self;
        let brokers = self.kafka.bootstrap();
        let [intents, approved, suppressed, dead] = TOPICS.map(|topic| self.topic(topic));
        format!(
            r#"
[kafka]
brokers = "{brokers}"
group = "{name}"
intents = "{intents}"
approved = "{approved}"
suppressed = "{suppressed}"
dead_letters = "{dead}"
delivery = "{delivery}"
instance = "{instance}"
[kafka.properties]
"session.timeout.ms" = "6000"
"heartbeat.interval.ms" = "500"
[redis]
nodes = {redis:?}
prefix = "{name}"
shards = 64
users = 10000
[segments]
source = {segments:?}
refresh = "1s"
[policy]
source = {policy:?}
refresh = "1s"
[worker]
lanes = 1
batch = 2000
[http]
listen = "127.0.0.1:0"
drain = "0s"
{extra}
"#
        )
    }

    /// A command of weir with the configuration and the environment of the workers.
    pub fn command(&self, args: &[&str]) -> Command {
        let config = self.path("weir.toml");
        std::fs::write(&config, self.config("command")).unwrap();
        let mut command = Command::new(weir());
        command.args(args).arg("--config").arg(config).current_dir(self.folder.path());
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// The summary of such a command, which has to succeed.
    #[track_caller]
    pub fn summary(&self, args: &[&str]) -> Value {
        let output = succeed(self.command(args).args(["--output", "json"]));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Writes a policy of this version, and waits until the worker has taken it up.
    pub fn change_policy(&self, worker: &Worker, version: &str, policy: &str) {
        self.write_policy(policy);
        http::wait_version(worker, "policy", version);
    }

    pub fn worker(&self, instance: &str) -> Worker {
        self.worker_with(instance, &[])
    }

    /// A worker that has said that it is ready.
    pub fn ready(&self, instance: &str) -> Worker {
        let worker = self.worker(instance);
        http::wait_ready(&worker);
        worker
    }

    /// Workers that have all said so.
    pub fn all_ready<const N: usize>(&self, instances: [&str; N]) -> [Worker; N] {
        let workers = instances.map(|instance| self.worker(instance));
        workers.iter().for_each(http::wait_ready);
        workers
    }

    /// A worker that has decided all intents.
    pub fn drained(&self, instance: &str) -> Worker {
        let mut worker = self.worker(instance);
        self.drain(&mut worker);
        worker
    }

    /// A worker with this clock, and with further environment variables.
    pub fn worker_by(&self, instance: &str, clock: &ProcessClock, more: &[(&str, &str)]) -> Worker {
        let clock = clock.env();
        let clock = clock.iter().map(|(name, value)| (*name, value.as_str()));
        self.worker_with(instance, &clock.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// A worker with further environment variables.
    pub fn worker_with(&self, instance: &str, env: &[(&str, &str)]) -> Worker {
        let own = self.env.iter().map(|(name, value)| (*name, value.as_str()));
        let env: Vec<(&str, &str)> = own.chain(env.iter().copied()).collect();
        Worker::run_with(weir(), &self.config(instance), &env).unwrap()
    }

    pub fn publish(&self, records: impl IntoIterator<Item = Record>) {
        self.kafka.publish(&self.topic("intents"), records).unwrap();
    }

    /// Waits until the group has committed the end of every partition of the intents.
    pub fn wait_until_drained(&self) {
        self.wait_until_drained_or(|| {});
    }

    /// The same for a worker that must not end before.
    pub fn drain(&self, worker: &mut Worker) {
        self.wait_until_drained_or(|| assert_eq!(worker.exit(), None, "the worker ended"));
    }

    /// Publishes these, and waits until all intents are decided.
    pub fn decide(&self, records: impl IntoIterator<Item = Record>) {
        self.publish(records);
        self.wait_until_drained();
    }

    /// The same by a worker that must not end before.
    pub fn decide_by(&self, worker: &mut Worker, records: impl IntoIterator<Item = Record>) {
        self.publish(records);
        self.drain(worker);
    }

    pub fn wait_until_drained_or(&self, meanwhile: impl FnMut()) {
        self.wait_read_or(&self.name, &self.topic("intents"), meanwhile);
    }

    /// Waits until a group has committed the end that every partition of a topic has now.
    pub fn wait_read_or(&self, group: &str, topic: &str, mut meanwhile: impl FnMut()) {
        // While brokers are broken on purpose there may be no answer.
        let ends = wait_for(DEADLINE, || self.kafka.end_offsets(topic).ok()).expect("the ends of the topic");
        wait_until_every(SLOW_INTERVAL, DEADLINE, &format!("all of {topic} is read"), || {
            meanwhile();
            // The group has no coordinator before its first member asks for one.
            let Ok(committed) = self.kafka.committed(group, topic) else { return false };
            ends.iter().zip(&committed).all(|(end, done)| *end == 0 || done.is_some_and(|done| done >= *end))
        });
    }

    /// Waits until what a group has committed are the ends of a topic, also of partitions that have never had anything.
    pub fn wait_at_end(&self, group: &str, topic: &str) {
        wait_until(DEADLINE, &format!("the ends of {topic} are committed"), || {
            let ends: Vec<Option<i64>> = self.kafka.end_offsets(topic).unwrap().into_iter().map(Some).collect();
            self.kafka.committed(group, topic).is_ok_and(|committed| committed == ends)
        });
    }

    /// How many intents the group has committed.
    pub fn done(&self) -> i64 {
        let committed = self.kafka.committed(&self.name, &self.topic("intents")).unwrap_or_default();
        committed.into_iter().flatten().sum()
    }

    pub fn is_open(&self, which: &str) -> bool {
        self.open(which).unwrap()
    }

    fn open(&self, which: &str) -> anyhow::Result<bool> {
        let topic = self.topic(which);
        let ends = self.kafka.end_offsets(&topic)?;
        Ok(self.kafka.stable_offsets(&topic)?.iter().zip(ends).any(|(stable, end)| *stable < end))
    }

    /// Brokers that are broken on purpose may not answer for a while.
    fn wait_closed(&self, which: &str) {
        wait_until_every(SLOW_INTERVAL, DEADLINE, "no transaction is open", || {
            self.open(which).is_ok_and(|open| !open)
        });
    }

    /// The records that a `read_committed` reader sees once no transaction is open: one that a killed worker left hides
    /// later commits of others until the broker ends it.
    pub fn output(&self, which: &str) -> Vec<Consumed> {
        self.wait_closed(which);
        self.kafka.read_committed(&self.topic(which)).unwrap()
    }

    /// How many records these are.
    pub fn count(&self, which: &str) -> usize {
        self.wait_closed(which);
        self.kafka.count_committed(&self.topic(which)).unwrap()
    }

    /// The same without the payloads of large records, which together may not fit into memory.
    pub fn slim_output(&self, which: &str) -> Vec<Consumed> {
        self.wait_closed(which);
        self.kafka.read_committed_cut(&self.topic(which), ("slim", slim)).unwrap()
    }

    /// All decisions, by intent id; fails if an id has several.
    pub fn decisions(&self) -> BTreeMap<String, Decision> {
        let mut all = BTreeMap::new();
        for (id, decision) in self.every_decision() {
            assert!(all.insert(id.clone(), decision).is_none(), "intent {id} has two records");
        }
        all
    }

    /// How many intents were approved whose ids begin so.
    pub fn approved(&self, begin: &str) -> usize {
        self.decisions().iter().filter(|(id, decision)| id.starts_with(begin) && decision.approved()).count()
    }

    /// All decisions with their intents' ids, however many an id has.
    pub fn every_decision(&self) -> Vec<(String, Decision)> {
        let approved = self.slim_output("approved").into_iter().map(Decision::approval);
        approved.chain(self.slim_output("suppressed").into_iter().map(Decision::suppression)).collect()
    }
}

/// A value longer than this is cut.
const SLIM_BYTES: usize = 2_000;

/// A record cut before the intent of an envelope, or before the payload of an intent; what is no JSON anywhere.
fn slim(mut record: Consumed) -> Consumed {
    let Some(value) = record.value.as_mut().filter(|value| value.len() > SLIM_BYTES) else { return record };
    let head = String::from_utf8_lossy(&value[..SLIM_BYTES]);
    if let Some(cut) = head.find(",\"intent\":").or_else(|| head.find(",\"payload\":")) {
        *value = format!("{}}}", &head[..cut]).into_bytes();
    } else if !head.starts_with('{') {
        *value = head.into_owned().into_bytes();
    }
    record
}

/// The decision on an intent; a suppressed one has an `envelope`.
#[derive(Debug, Clone)]
pub struct Decision {
    pub at_ms: i64,
    pub envelope: Option<Value>,
    pub record: Consumed,
}

impl Decision {
    /// The decision of an approved record, and its intent's id.
    pub fn approval(record: Consumed) -> (String, Self) {
        let intent: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        let at_ms = outcome::time_ms(&approval(&record)["decided_at"]).unwrap();
        (intent["id"].as_str().unwrap().to_owned(), Self { at_ms, envelope: None, record })
    }

    /// The same for a suppressed record.
    pub fn suppression(record: Consumed) -> (String, Self) {
        let envelope: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        let at_ms = outcome::time_ms(&envelope["decided_at"]).unwrap();
        let id = envelope["intent_id"].as_str().unwrap().to_owned();
        (id, Self { at_ms, envelope: Some(envelope), record })
    }

    pub fn approved(&self) -> bool {
        self.envelope.is_none()
    }

    pub fn reason(&self) -> &str {
        self.envelope.as_ref().map_or("approved", |envelope| envelope["reason"].as_str().unwrap())
    }
}

/// Nothing but one paragraph, that begins with the program's name.
#[track_caller]
pub fn is_a_paragraph(err: &str) {
    assert!(err.starts_with("weir: ") && !err.trim().contains("\n\n"), "{err}");
}

/// Fails unless the text has each of these parts.
#[track_caller]
pub fn contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// The decision that weir put on an approved record: the last header of its name.
#[track_caller]
pub fn approval(record: &Consumed) -> Value {
    let text = header(record, "weir-decision").unwrap_or_else(|| panic!("no decision on {record:?}"));
    serde_json::from_str(&text).unwrap()
}

pub fn header(record: &Consumed, name: &str) -> Option<String> {
    let (_, value) = record.headers.iter().rev().find(|(key, _)| key == name)?;
    Some(String::from_utf8(value.clone()?).unwrap())
}
