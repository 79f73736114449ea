//! A full disk of the broker, no memory for the worker, a large backlog. Rows 12 and 25.

use testkit::process::{output, program};

use super::*;

const DISK_MIB: u32 = 200;
/// How long a broker may take to notice that its disk is full.
const NOTICE_DEADLINE: Duration = Duration::from_secs(60);
/// How much more memory a running worker may take, in bytes.
const MORE_BYTES: u64 = 8 << 20;
/// Bytes of padding of each intent of the backlog.
const PADDED_BYTES: usize = 20_000;
/// Intents published at once.
const AT_ONCE: usize = 5_000;
const BACKLOG_DEADLINE: Duration = Duration::from_secs(1_800);
/// The most that a worker of two lanes takes: 300 MB.
const RSS_MIB: u64 = 286;
/// SIGABRT: how Rust and librdkafka end without memory.
const ABORTED: i32 = 6;

/// The broker ends when it cannot write; it restarts once there is room.
pub fn disk_full(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let redis = ground.cluster()?.nodes();
    let mut kafka = Kafka::start_on_small_disk(DISK_MIB)?;
    let (mut trial, worker) = Trial::new(order, kafka.client(), redis, "disk-full").at_work("only", &[])?;
    for _ in 0..order.times {
        trial.decided(300)?;
        kafka.disk(0)?.fill()?;
        let exit = kafka.wait_ended(0, NOTICE_DEADLINE)?;
        ensure!(exit != Exit::Code(0), "the broker ended as if all was well");
        trial.live(worker, Duration::from_secs(5))?;
        kafka.disk(0)?.free()?;
        kafka.restart(0)?;
        trial.comes_back_with(worker)?;
    }
    trial.finish_noting(order.times, "the broker halts, the worker waits and continues by itself")
}

/// The worker cannot allocate memory while larger intents arrive.
pub fn memory_limit(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "memory-limit")?;
    let stream = trial.stream();
    trial.load_of(stream, LoadRate { backlog: 0, a_second: 1_000, padding: 4_000 })?;
    for _ in 0..order.times {
        let worker = trial.start_ready("only", &SHORT_SESSION)?;
        trial.decided(500)?;
        // Frozen meanwhile: it finds more than it may hold, however fast it is.
        trial.worker(worker).freeze();
        let more: Vec<Sent> = trial.stream().take(AT_ONCE).collect();
        trial.publish_padded(more, PADDED_BYTES)?;
        let pid = trial.worker(worker).pid();
        limit(pid, &format!("data={}", figure(pid, "VmData:")? * 1024 + MORE_BYTES))?;
        trial.worker(worker).thaw();
        let exit = trial.worker(worker).wait_exit(NOTICE_DEADLINE)?;
        ensure!(exit == Exit::Signal(ABORTED), "it ended with {exit:?}, not by SIGABRT");
        let log = trial.worker(worker).log();
        ensure!(log.contains("memory allocation of") || log.contains("alloc"), "it does not say why: {log}");
        let next = trial.start("only", &SHORT_SESSION);
        trial.comes_back()?;
        trial.stop(next)?;
    }
    let _last = trial.start("only", &SHORT_SESSION);
    trial.finish_noting(order.times, "SIGABRT; the message names the allocation")
}

/// A backlog of as many GB as `times` says, with the default batch and two lanes.
pub fn backlog(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "backlog")?;
    let count = order.times * (1_000_000_000 / PADDED_BYTES);
    let mut stream = trial.stream();
    for _ in 0..count / AT_ONCE {
        let some: Vec<Sent> = stream.by_ref().take(AT_ONCE).collect();
        trial.publish_padded(some, PADDED_BYTES)?;
    }
    let worker = trial.start("only", &[("WEIR__WORKER__LANES", "2"), ("WEIR__WORKER__BATCH", "10000")]);
    let start = std::time::Instant::now();
    let mut done = 0;
    while done < i64::try_from(count / AT_ONCE * AT_ONCE)? {
        ensure!(start.elapsed() < BACKLOG_DEADLINE, "{done} of {count} are decided after {BACKLOG_DEADLINE:?}");
        trial.live(worker, Duration::from_secs(1))?;
        done = trial.scene.done();
    }
    let rss_kib = figure(trial.worker(worker).pid(), "VmHWM:")?;
    let mib = rss_kib / 1024;
    ensure!(mib < RSS_MIB, "the worker took {mib} MiB at the most, {RSS_MIB} are promised");
    trial.note(format!(
        "{} GB in {:.0} s; resident set {mib} MiB at the most",
        order.times,
        start.elapsed().as_secs_f64()
    ));
    trial.finish(1)
}

/// Limits a process (`data=1000`), as prlimit does.
pub fn limit(pid: impl std::fmt::Display, limit: &str) -> Result<()> {
    let prlimit = output(Command::new(program("prlimit")?).args([format!("--pid={pid}"), format!("--{limit}")]))?;
    ensure!(prlimit.status.success(), "prlimit --{limit}: {}", String::from_utf8_lossy(&prlimit.stderr));
    Ok(())
}

/// A figure of a process, in KiB.
pub fn figure(pid: i32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.split_whitespace().next().context("no figure")?.parse()?)
}
