//! What runs full: the broker's disk, the worker's memory. Row 25.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use testkit::{
    kafka::Kafka,
    process::{Exit, program},
};

use super::plain;
use crate::{
    ground::Ground,
    support::{POLICY, Scene, model::Sent},
    trial::{Findings, Order, PARTITIONS, SHORT_SESSION, Trial},
};

/// The broker's disk.
const DISK_MIB: u32 = 200;
/// How long a broker may take to notice that its disk is full.
const NOTICE_DEADLINE: Duration = Duration::from_secs(60);
/// How much more memory a worker may take, in bytes, once it works.
const MORE_BYTES: u64 = 8 << 20;
/// SIGABRT: how a Rust program and librdkafka end that get no memory.
const ABORTED: i32 = 6;

/// The broker ends when it cannot write; it is started again once there is room.
pub fn disk_full(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let redis = ground.cluster()?.nodes();
    let mut kafka = Kafka::start_on_small_disk(DISK_MIB)?;
    let client = kafka.client().clone();
    let mut trial = Trial::new(order, &client, Scene::on(client.clone(), redis, "disk-full", PARTITIONS, POLICY));
    trial.load(0)?;
    let worker = trial.start("only", &[]);
    trial.ready(worker)?;
    for _ in 0..order.times {
        trial.decided(300)?;
        kafka.disk(0)?.fill()?;
        let exit = kafka.wait_ended(0, NOTICE_DEADLINE)?;
        ensure!(exit != Exit::Code(0), "the broker ended as if all was well");
        trial.live(worker, Duration::from_secs(5))?;
        kafka.disk(0)?.free()?;
        kafka.restart(0)?;
        let mark = trial.over()?;
        trial.back(&mark)?;
        trial.live(worker, Duration::ZERO)?;
    }
    trial.note("the broker halts, the worker waits and goes on by itself");
    trial.finish(order.times)
}

/// The worker gets no more memory, while larger intents come.
pub fn memory_limit(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "memory-limit")?;
    let stream = trial.stream().map(|sent| Sent { padding: 4_000, ..sent });
    trial.load_of(stream, 0, 1_000)?;
    for _ in 0..order.times {
        let worker = trial.start("only", &SHORT_SESSION);
        trial.ready(worker)?;
        trial.decided(500)?;
        squeeze(trial.worker(worker).pid())?;
        let more: Vec<Sent> = trial.stream().take(2_000).map(|sent| Sent { padding: 20_000, ..sent }).collect();
        trial.publish(more)?;
        let exit = trial.worker(worker).wait_exit(NOTICE_DEADLINE)?;
        ensure!(exit == Exit::Signal(ABORTED), "it ended with {exit:?}, not by SIGABRT");
        let log = trial.worker(worker).log();
        ensure!(log.contains("memory allocation of") || log.contains("alloc"), "it does not say why: {log}");
        let next = trial.start("only", &SHORT_SESSION);
        let mark = trial.over()?;
        trial.back(&mark)?;
        trial.worker(next).terminate();
        trial.ends(next, 0, &[])?;
    }
    let _last = trial.start("only", &SHORT_SESSION);
    trial.note("SIGABRT, which names the allocation");
    trial.finish(order.times)
}

/// Lets a process have a little more memory than it has.
fn squeeze(pid: i32) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).context("no VmData")?;
    let kib: u64 = line.split_whitespace().next().context("no figure")?.parse()?;
    let limit = kib * 1024 + MORE_BYTES;
    let prlimit =
        Command::new(program("prlimit")?).args([format!("--pid={pid}"), format!("--data={limit}")]).output()?;
    ensure!(prlimit.status.success(), "prlimit: {}", String::from_utf8_lossy(&prlimit.stderr));
    Ok(())
}
