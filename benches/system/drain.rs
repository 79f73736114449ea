//! Watches a process drain the backlog: from its first commit to its last.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use procfs::process::Process;
use rdkafka::{Offset, TopicPartitionList, consumer::Consumer};
use testkit::{kafka::BoundedConsumer, wait_for, worker::Worker};

use crate::servers::{Run, Servers};

pub const DEADLINE: Duration = Duration::from_secs(1800);
/// How long one question to the brokers may take.
const ASK: Duration = Duration::from_secs(10);
/// How long a process may take to end.
const END: Duration = Duration::from_secs(30);
/// Linux reports CPU times in this unit (USER_HZ is 100 on all its 64-bit platforms).
const TICK_US: f64 = 10_000.0;

/// The findings between the first commit and the last; `T` is the answer of `ask` at both.
#[derive(Debug)]
pub struct Window<T> {
    pub intents: f64,
    pub time: Duration,
    /// CPU of the process, all threads, user and system, in microseconds.
    pub cpu_us: f64,
    /// CPU of the broker, likewise.
    pub broker_cpu_us: f64,
    /// The most memory that the process had resident, in MiB.
    pub resident_mib: f64,
    /// The answers of `ask` at its start and its end.
    pub asked: (T, T),
}

pub fn watch<T>(
    servers: &Servers,
    run: &Run,
    process: &mut Worker,
    ask: impl FnMut() -> Result<T>,
) -> Result<Window<T>> {
    let progress = Progress::of(servers, &run.group)?;
    watch_progress(servers, &progress, (0, i64::from(servers.workload.intents)), process, ask)
}

/// Lets `process` go on until a group has come from one sum of committed offsets to another.
pub fn watch_progress<T>(
    servers: &Servers,
    progress: &Progress,
    (from, to): (i64, i64),
    process: &mut Worker,
    mut ask: impl FnMut() -> Result<T>,
) -> Result<Window<T>> {
    let mut edge = |from: i64| -> Result<_> {
        let committed = until(progress, from, process)?;
        Ok((committed, Instant::now(), [cpu_us(process.pid())?, cpu_us(servers.broker)?], ask()?))
    };
    let (first, began, [cpu_began, broker_began], asked) = edge(from + 1)?;
    let (last, ended, [cpu_ended, broker_ended], asked_last) = edge(to)?;
    let resident_mib = peak_resident_mib(process.pid())?;
    ensure!(first < last, "the backlog was gone with the first commit seen: take more intents");
    let (intents, time, asked) = ((last - first) as f64, ended - began, (asked, asked_last));
    let (cpu_us, broker_cpu_us) = (cpu_ended - cpu_began, broker_ended - broker_began);
    Ok(Window { intents, time, cpu_us, broker_cpu_us, resident_mib, asked })
}

/// Waits until a group has come to this sum of committed offsets at least, and gives it.
pub fn until(progress: &Progress, done: i64, process: &mut Worker) -> Result<i64> {
    let committed = wait_for(DEADLINE, || match process.exit() {
        Some(exit) => Some(Err(exit)),
        None => progress.committed().filter(|committed| *committed >= done).map(Ok),
    });
    match committed {
        Some(Ok(committed)) => Ok(committed),
        Some(Err(exit)) => bail!("it ended ({exit:?}); it said: {}", process.log()),
        None => bail!("it has not drained the backlog in {DEADLINE:?}; it said: {}", process.log()),
    }
}

pub fn end(mut process: Worker) -> Result<()> {
    process.terminate();
    process.wait_exit(END).map(|_| ())
}

/// The most memory that a process has had resident since its start, in MiB.
pub fn peak_resident_mib(pid: i32) -> Result<f64> {
    mib(Process::new(pid)?.status()?.vmhwm)
}

/// The memory that a process has resident now, in MiB.
pub fn resident_mib(pid: i32) -> Result<f64> {
    mib(Process::new(pid)?.status()?.vmrss)
}

fn mib(kib: Option<u64>) -> Result<f64> {
    Ok(kib.context("a process that has ended has no memory")? as f64 / 1024.0)
}

/// CPU that a process has used since its start, in microseconds.
pub fn cpu_us(pid: i32) -> Result<f64> {
    let stat = Process::new(pid)?.stat()?;
    Ok((stat.utime + stat.stime) as f64 * TICK_US)
}

/// A kept connection: a new one per question would take CPU from the measured processes.
pub struct Progress {
    consumer: BoundedConsumer,
    partitions: TopicPartitionList,
}

impl Progress {
    /// That of a group on the backlog's topic.
    pub fn of(servers: &Servers, group: &str) -> Result<Self> {
        Self::of_topic(servers, group, servers.intents())
    }

    pub fn of_topic(servers: &Servers, group: &str, topic: &str) -> Result<Self> {
        let client = servers.kafka.client();
        let consumer = client.config().set("group.id", group).create()?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range(topic, 0, client.partitions(topic)? - 1);
        Ok(Self { consumer, partitions })
    }

    /// Intents that the group has committed; `None` while its coordinator is not there yet.
    pub fn committed(&self) -> Option<i64> {
        Some(self.offsets()?.iter().sum())
    }

    /// The offset that each partition goes on from.
    pub fn offsets(&self) -> Option<Vec<i64>> {
        let list = self.consumer.committed_offsets(self.partitions.clone(), ASK).ok()?;
        let offset = |offset| match offset {
            Offset::Offset(offset) => offset,
            Offset::Beginning | Offset::End | Offset::Stored | Offset::Invalid | Offset::OffsetTail(_) => 0,
        };
        Some(list.elements().iter().map(|element| offset(element.offset())).collect())
    }
}
