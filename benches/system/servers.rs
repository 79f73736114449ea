//! The servers of a run, and what lies on them: topics with the backlog, a policy, segments.

use std::{ffi::OsStr, process::Command, time::Duration};

use anyhow::{Context, Result};
use testkit::{
    kafka::Kafka,
    ports::Port,
    process::{printed, printed_within},
    redis::{RedisCluster, connect},
    scratch::Scratch,
    unique,
    worker::Worker,
};

use crate::{
    Settings,
    machine::Machine,
    workload::{SEGMENTS, Workload, policy},
};

/// The built `weir`, of the same profile as the bench.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const INTENTS: &str = "send-intents";
const BUILD_DEADLINE: Duration = Duration::from_secs(600);
const FLUSH_DEADLINE: Duration = Duration::from_secs(600);
/// The topics that come out.
pub const OUTPUTS: [&str; 3] = ["send-approved", "send-suppressed", "send-dead-letters"];
/// Primaries of the Redis Cluster unless said otherwise; no replicas, which would take CPU from what is measured.
pub const PRIMARIES: usize = 3;

/// Servers of this run alone.
pub struct Servers {
    pub kafka: Kafka,
    /// Its process id.
    pub broker: i32,
    pub redis: RedisCluster,
    pub machine: Machine,
    /// What is capped: the load's that is on.
    pub workload: Workload,
    load: Load,
}

/// A backlog on its topics, with the policy and the segments for it.
pub struct Load {
    workload: Workload,
    settings: Settings,
    intents: String,
    outputs: [String; 3],
    folder: Scratch,
}

/// One draining of the backlog: its own group and keyspace.
pub struct Run {
    /// The consumer group; also part of the transactional ids, and the keyspace's prefix.
    pub group: String,
    /// Where the worker answers HTTP.
    pub http: Port,
    pub config: String,
}

impl Servers {
    /// Starts them, makes topics, policy and segments, and publishes the backlog.
    pub fn start(settings: &Settings, workload: Workload) -> Result<Self> {
        Self::start_empty(settings, workload)?.with_backlog()
    }

    /// The same with a broker that is set as one in production.
    pub fn start_as_shipped(settings: &Settings, workload: Workload) -> Result<Self> {
        Self::around(Kafka::start_as_shipped, settings, workload)?.with_backlog()
    }

    fn with_backlog(self) -> Result<Self> {
        eprintln!("publishing {} intents", self.workload.intents);
        self.publish_behind(&self.load, self.workload)?;
        Ok(self)
    }

    /// Starts them, and makes topics, policy and segments; nothing is published.
    pub fn start_empty(settings: &Settings, workload: Workload) -> Result<Self> {
        Self::around(Kafka::start_gathering, settings, workload)
    }

    fn around(start: fn() -> Result<Kafka>, settings: &Settings, workload: Workload) -> Result<Self> {
        eprintln!("starting Kafka and a Redis Cluster");
        let mut kafka = start().context("Kafka")?;
        let broker = kafka.pid(0)?;
        let redis = RedisCluster::start(PRIMARIES, 0).context("the Redis Cluster")?;
        let (machine, load) = (Machine::look(&redis)?, Load::make(&kafka, settings, workload, "")?);
        Ok(Self { kafka, broker, redis, machine, workload, load })
    }

    /// Publishes a backlog to topics of its own, beside what is there.
    pub fn publish(&self, settings: &Settings, workload: Workload) -> Result<Load> {
        let load = Load::make(&self.kafka, settings, workload, &unique(""))?;
        self.publish_behind(&load, workload)?;
        Ok(load)
    }

    /// Publishes more to a load's topic of intents, behind what is there.
    pub fn publish_behind(&self, load: &Load, workload: Workload) -> Result<()> {
        let partitions = load.settings.partitions;
        self.kafka.client().publish(&load.intents, workload.records(partitions))
    }

    /// Switches to another load, which later runs drain. Returns the previous one.
    pub fn turn_to(&mut self, load: Load) -> Load {
        self.workload = load.workload;
        std::mem::replace(&mut self.load, load)
    }

    pub fn delete(&self, load: &Load) -> Result<()> {
        let client = self.kafka.client();
        load.topics().try_for_each(|topic| client.delete_topic(topic))
    }

    pub fn flush_redis(&self) -> Result<()> {
        for node in 0..self.redis.nodes().len() {
            // Without testkit's deadline of two seconds: ten million users take longer.
            let client = redis::Client::open(self.redis.node(node).url())?;
            redis::cmd("FLUSHALL").arg("SYNC").exec(&mut connect(FLUSH_DEADLINE, &client)?)?;
        }
        Ok(())
    }

    /// Makes a run's keyspace: its epochs are there once, however many users there are.
    pub fn create_keyspace(&self, run: &Run, binary: impl AsRef<OsStr>) -> Result<()> {
        let file = self.load.folder.join("weir.toml");
        std::fs::write(&file, &run.config)?;
        printed(Command::new(binary).args(["check", "--create", "--config"]).arg(&file)).map(drop)
    }

    /// Starts `weir run` on a keyspace that it makes, as one draining, by a configuration that is changed so.
    pub fn weir(&self, name: &str, change: impl FnOnce(String) -> String) -> Result<(Run, Worker)> {
        let run = self.run(name)?;
        let run = Run { config: change(run.config), ..run };
        self.create_keyspace(&run, WEIR)?;
        let worker = Worker::run(WEIR, &run.config)?;
        Ok((run, worker))
    }

    pub fn intents(&self) -> &str {
        &self.load.intents
    }

    /// What the load that is on is drained with.
    pub fn settings(&self) -> &Settings {
        &self.load.settings
    }

    /// The topics that come out: approved, suppressed, dead letters.
    pub fn outputs(&self) -> &[String; 3] {
        &self.load.outputs
    }

    /// A run that begins at the start of the backlog.
    pub fn run(&self, name: &str) -> Result<Run> {
        let (group, http) = (unique(name), Port::lease()?);
        let config = self.config(&group, http.number());
        Ok(Run { group, http, config })
    }

    fn config(&self, group: &str, http: u16) -> String {
        let Load { intents, outputs, folder, settings, .. } = &self.load;
        let Settings { batch, shards, .. } = settings;
        let lanes = settings.lane_count();
        let [approved, suppressed, dead_letters] = outputs;
        let [segments, policy] = ["segments/manifest.json", "policy.toml"].map(|file| folder.join(file));
        let (brokers, nodes, users) = (self.kafka.bootstrap(), self.redis.nodes(), self.workload.users);
        format!(
            r#"
[kafka]
brokers = "{brokers}"
group = "{group}"
intents = "{intents}"
approved = "{approved}"
suppressed = "{suppressed}"
dead_letters = "{dead_letters}"
instance = "bench"
[redis]
nodes = {nodes:?}
prefix = "{group}"
shards = {shards}
users = {users}
tune = true
[segments]
source = {segments:?}
[policy]
source = {policy:?}
[worker]
lanes = {lanes}
batch = {batch}
[http]
drain = "0s"
listen = "127.0.0.1:{http}"
"#
        )
    }
}

impl Load {
    /// Makes topics of these names and what the worker reads besides.
    fn make(kafka: &Kafka, settings: &Settings, workload: Workload, suffix: &str) -> Result<Self> {
        let folder = Scratch::new("bench")?;
        let (intents, outputs) = (format!("{INTENTS}{suffix}"), OUTPUTS.map(|topic| format!("{topic}{suffix}")));
        let load = Self { workload, settings: settings.clone(), intents, outputs, folder };
        std::fs::write(load.folder.join("policy.toml"), policy(workload.caps))?;
        load.build_segments()?;
        load.topics().try_for_each(|topic| kafka.create_topic(topic, settings.partitions))?;
        Ok(load)
    }

    fn topics(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.intents).chain(&self.outputs)
    }

    fn build_segments(&self) -> Result<()> {
        let mut build = Command::new(WEIR);
        build.args(["segments", "build", "--user-id", "u32", "--set-version", "bench-1", "--into"]);
        build.arg(self.folder.join("segments"));
        for (index, segment) in SEGMENTS.iter().enumerate() {
            let file = self.folder.join(segment.name);
            std::fs::write(&file, self.workload.members(index))?;
            build.arg(format!("{}={}", segment.name, file.display()));
        }
        printed_within(BUILD_DEADLINE, &mut build).map(drop)
    }
}
