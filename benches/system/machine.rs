//! The machine that the figures are of.

use std::fmt;

use anyhow::Result;
use procfs::{CpuInfo, Current as _, LoadAverage, Meminfo};
use serde::Serialize;
use testkit::{kafka::libs_folder, redis::RedisCluster};

use crate::servers::WEIR;

/// What figures depend on besides weir.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// The load average of the last minute when the servers were up; above some 1 others were at work, too.
    pub load: String,
    pub weir: String,
    pub kafka: String,
    pub redis: String,
    pub librdkafka: String,
}

impl Machine {
    pub fn look(redis: &RedisCluster) -> Result<Self> {
        let info: redis::InfoDict = redis.node(0).query(&["INFO", "server"])?;
        let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
        Ok(Self {
            cpu: CpuInfo::current()?.model_name(0).unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: Meminfo::current()?.mem_total / (1024 * 1024),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: format!("{:.2}", LoadAverage::current()?.one),
            weir: said(WEIR)?,
            kafka: broker_version()?,
            redis: info.get("redis_version").unwrap_or_else(|| "unknown".to_owned()),
            librdkafka,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, memory_mib, kernel, load, weir, kafka, redis, librdkafka } = self;
        writeln!(f, "machine: {cores} cores of {cpu}, {memory_mib} MiB, Linux {kernel}, load {load} at the start")?;
        write!(f, "versions: weir {weir}, Kafka {kafka}, Redis {redis}, librdkafka {librdkafka}")
    }
}

fn said(program: &str) -> Result<String> {
    let output = testkit::process::output(std::process::Command::new(program).arg("--version"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(text.strip_prefix("weir ").unwrap_or(&text).to_owned())
}

/// 4.1.0, from the name of the broker's jar.
fn broker_version() -> Result<String> {
    let jars = std::fs::read_dir(libs_folder())?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions = jars.filter_map(|jar| Some(jar.strip_prefix("kafka_2.13-")?.strip_suffix(".jar")?.to_owned()));
    Ok(versions.next().unwrap_or_else(|| "unknown".to_owned()))
}
