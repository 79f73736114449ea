//! The servers of a run, and what lies on them: topics with the backlog, a policy, segments.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use testkit::{kafka::Kafka, ports::Port, redis::RedisCluster, scratch::Scratch, unique};

use crate::{
    Settings,
    workload::{SEGMENTS, Workload, policy},
};

/// The built `weir`, of the same profile as the bench.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// The topic with the backlog.
const INTENTS: &str = "send-intents";
/// The topics that come out.
pub const OUTPUTS: [&str; 3] = ["send-approved", "send-suppressed", "send-dead-letters"];
/// Primaries of the Redis Cluster; no replicas, which would take CPU from what is measured.
const PRIMARIES: usize = 3;

/// Servers of this run alone.
pub struct Servers {
    /// One broker.
    pub kafka: Kafka,
    /// Three primaries.
    pub redis: RedisCluster,
    /// What is capped.
    pub workload: Workload,
    settings: Settings,
    folder: Scratch,
}

/// One draining of the backlog: its own group and keyspace.
pub struct Run {
    /// The consumer group; also part of the transactional ids, and the keyspace's prefix.
    pub group: String,
    /// Where the worker answers HTTP.
    pub http: Port,
    /// The configuration file's text.
    pub config: String,
}

impl Servers {
    /// Starts them, makes topics, policy and segments, and publishes the backlog.
    pub fn start(settings: &Settings, workload: Workload) -> Result<Self> {
        let kafka = Kafka::start(1).context("Kafka")?;
        let redis = RedisCluster::start(PRIMARIES, 0).context("the Redis Cluster")?;
        let folder = Scratch::new("bench")?;
        let servers = Self { kafka, redis, workload, settings: settings.clone(), folder };
        std::fs::write(servers.folder.join("policy.toml"), policy())?;
        servers.build_segments()?;
        for topic in std::iter::once(INTENTS).chain(OUTPUTS) {
            servers.kafka.create_topic(topic, settings.partitions)?;
        }
        servers.kafka.client().publish(INTENTS, workload.intents().map(|intent| intent.record()))?;
        Ok(servers)
    }

    fn build_segments(&self) -> Result<()> {
        let mut build = Command::new(WEIR);
        build.args(["segments", "build", "--user-id", "u32", "--version", "bench-1", "--out"]);
        build.arg(self.folder.join("segments"));
        for (index, segment) in SEGMENTS.iter().enumerate() {
            let file = self.folder.join(segment.name);
            std::fs::write(&file, self.workload.members(index))?;
            build.arg(format!("{}={}", segment.name, file.display()));
        }
        let built = build.output().context("cannot start weir")?;
        ensure!(built.status.success(), "weir segments build: {}", String::from_utf8_lossy(&built.stderr));
        Ok(())
    }

    /// Empties Redis.
    pub fn flush_redis(&self) -> Result<()> {
        for node in 0..PRIMARIES {
            self.redis.node(node).query::<String>(&["FLUSHALL", "SYNC"])?;
        }
        Ok(())
    }

    /// Makes a run's keyspace: its epochs are there once, however many users there are.
    pub fn create_keyspace(&self, run: &Run) -> Result<()> {
        let file = self.folder.join("weir.toml");
        std::fs::write(&file, &run.config)?;
        let check = Command::new(WEIR).args(["check", "--create", "--config"]).arg(&file).output()?;
        ensure!(check.status.success(), "weir check --create: {}", String::from_utf8_lossy(&check.stderr));
        Ok(())
    }

    /// The topic of the backlog.
    pub fn intents(&self) -> &'static str {
        INTENTS
    }

    /// A run that begins at the start of the backlog.
    pub fn run(&self, name: &str) -> Result<Run> {
        let (group, http) = (unique(name), Port::lease()?);
        let config = self.config(&group, http.number());
        Ok(Run { group, http, config })
    }

    fn config(&self, group: &str, http: u16) -> String {
        let Settings { lanes, batch, shards, .. } = self.settings;
        let nodes = self.redis.nodes().iter().map(|node| format!("{node:?}")).collect::<Vec<_>>().join(", ");
        let [approved, suppressed, dead_letters] = OUTPUTS;
        let text = |path: &Path| format!("{:?}", path.display().to_string());
        let (segments, policy) = (self.folder.join("segments/manifest.json"), self.folder.join("policy.toml"));
        format!(
            r#"
[kafka]
brokers = "{}"
group = "{group}"
intents = "{INTENTS}"
approved = "{approved}"
suppressed = "{suppressed}"
dead_letters = "{dead_letters}"
instance = "bench"
[redis]
nodes = [{nodes}]
prefix = "{group}"
shards = {shards}
users = {}
tune = true
[segments]
source = {}
[policy]
source = {}
[worker]
lanes = {lanes}
batch = {batch}
[http]
listen = "127.0.0.1:{http}"
"#,
            self.kafka.bootstrap(),
            self.workload.users,
            text(&segments),
            text(&policy),
        )
    }
}
