//! The most memory that a long drain takes: `cargo xtask bench memory`.
//!
//! Intents are published in slices while the worker drains, a bounded number ahead of it, and what is drained is
//! deleted from the topics, so that the broker's disk does not fill. The worker reads from a backlog all the time: its
//! queues are bounded far below what is ahead of it. Its memory is looked at ten times per second.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use testkit::{wait_for, worker::Worker};

use crate::{
    Settings,
    drain::{self, DEADLINE, Progress, peak_resident_mib, resident_mib},
    goals::{Goal, Wanted},
    report::{Found, table},
    servers::{Run, Servers},
    workload::Workload,
};

/// Goal 8 for two lanes without segments; what the rest of a drain is bounded by, too.
const GOAL_MIB: f64 = 250.0;
/// How many intents are published ahead of the worker at most: many times what its queues hold.
const AHEAD: u32 = 1_000_000;
/// An intent, in bytes.
const INTENT_BYTES: u32 = 260;
const LOOK: Duration = Duration::from_millis(100);
const ROWS: u32 = 10;
/// Small files, so that what is deleted goes from the disk at the broker's next look.
const TOPIC_SETTINGS: [(&str, &str); 2] = [("segment.bytes", "67108864"), ("file.delete.delay.ms", "1000")];

#[derive(Debug, Clone, Args, Serialize)]
#[command(
    mut_arg("intents", |intents| intents.default_value("2000000")),
    mut_arg("lanes", |lanes| lanes.default_value("2")),
)]
pub struct Memory {
    #[command(flatten)]
    settings: Settings,
}

/// What was seen until so many intents were committed, since the row before.
#[derive(Debug, Clone, Copy, Serialize)]
struct Row {
    committed: u32,
    resident_mib: f64,
    intents_per_s: f64,
}

pub fn run(memory: &Memory) -> Result<Found> {
    let workload = Workload { segmented: 4, ..memory.settings.workload() };
    let servers = Servers::start_empty(&memory.settings, workload)?;
    let client = servers.kafka.client();
    for topic in servers.outputs().iter().map(String::as_str).chain([servers.intents()]) {
        client.configure_topic(topic, &TOPIC_SETTINGS)?;
    }
    let (run, mut process) = servers.weir("memory", |config| config)?;
    let most = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let rows = thread::scope(|scope| {
        let pid = process.pid();
        let (most, done) = (&most, &done);
        scope.spawn(move || look(pid, most, done));
        let rows = feed(&servers, &run, &mut process, most);
        done.store(true, Ordering::Relaxed);
        rows
    })?;
    let peak_mib = peak_resident_mib(process.pid())?;
    drain::end(process)?;
    let text = format!("{}\n{}", servers.machine, text(&memory.settings, &rows, peak_mib));
    // VmHWM: the most that the process ever had resident.
    Ok(Found { all: json!({"machine": servers.machine, "memory": memory, "rows": rows, "peak_mib": peak_mib}), text })
}

/// Keeps the most memory seen, in KiB, until `done`.
fn look(pid: i32, most: &AtomicU64, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        if let Ok(mib) = resident_mib(pid) {
            most.fetch_max((mib * 1024.0) as u64, Ordering::Relaxed);
        }
        thread::park_timeout(LOOK);
    }
}

/// Publishes all intents, never too far ahead of the worker; a row for each tenth that is committed.
fn feed(servers: &Servers, run: &Run, process: &mut Worker, most: &AtomicU64) -> Result<Vec<Row>> {
    let publisher = servers.kafka.client().publisher(servers.intents())?;
    let progress = Progress::of(servers, &run.group)?;
    let all = servers.workload.intents;
    let mut intents = servers.workload.records(servers.settings().partitions);
    let (mut published, mut rows, mut began) = (0, Vec::new(), Instant::now());
    for number in 1..=ROWS {
        let upto = u32::try_from(u64::from(all) * u64::from(number) / u64::from(ROWS))?;
        let from = rows.last().map_or(0, |row: &Row| row.committed);
        loop {
            let committed = committed(&progress, process)?;
            if committed >= upto {
                break;
            }
            let room = (committed + AHEAD).min(all).saturating_sub(published).min(AHEAD / 4 + 1);
            intents.by_ref().take(room as usize).try_for_each(|intent| publisher.send(&intent))?;
            publisher.flush()?;
            published += room;
            if room == 0 {
                let moved = wait_for(DEADLINE, || (progress.committed()? > i64::from(committed)).then_some(()));
                moved.context("the worker has stopped committing")?;
            }
        }
        delete_drained(servers, &progress)?;
        let row = Row {
            committed: upto,
            resident_mib: most.swap(0, Ordering::Relaxed) as f64 / 1024.0,
            intents_per_s: f64::from(upto - from) / began.elapsed().as_secs_f64(),
        };
        eprintln!("{} intents: {:.0} MiB", row.committed, row.resident_mib);
        rows.push(row);
        began = Instant::now();
    }
    Ok(rows)
}

fn committed(progress: &Progress, process: &mut Worker) -> Result<u32> {
    if let Some(exit) = process.exit() {
        bail!("the worker ended ({exit:?}); it said: {}", process.log());
    }
    Ok(u32::try_from(progress.committed().unwrap_or_default())?)
}

/// Deletes records that nobody will read again.
fn delete_drained(servers: &Servers, progress: &Progress) -> Result<()> {
    let client = servers.kafka.client();
    for (partition, offset) in (0..).zip(progress.offsets().context("no committed offsets")?) {
        client.delete_records(servers.intents(), partition, offset)?;
    }
    for topic in servers.outputs() {
        for (partition, offset) in (0..).zip(client.end_offsets(topic)?) {
            client.delete_records(topic, partition, offset)?;
        }
    }
    Ok(())
}

fn text(settings: &Settings, rows: &[Row], peak_mib: f64) -> String {
    let Settings { intents, lanes, partitions, batch, .. } = settings;
    let gigabytes = f64::from(*intents) * f64::from(INTENT_BYTES) / 1e9;
    let head = ["intents committed", "resident at most, MiB", "intents/s, publishing beside it"];
    let row = |Row { committed, resident_mib, intents_per_s }: &Row| {
        [committed.to_string(), format!("{resident_mib:.0}"), format!("{intents_per_s:.0}")]
    };
    format!(
        "load: {intents} intents of {INTENT_BYTES} bytes ({gigabytes:.1} GB), {lanes} lanes, {partitions} partitions, batch {batch}\n\n\
         {}\n\n{}",
        table(head, rows.iter().map(row)),
        Goal::of(8, "resident at most, MiB", Wanted::AtMost(GOAL_MIB), peak_mib)
    )
}
