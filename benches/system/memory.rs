//! The most memory that a long drain takes: `cargo xtask bench memory`.
//!
//! Intents are published in slices while the worker drains, a bounded number ahead of it, and what is drained is
//! deleted from the topics, so that the broker's disk does not fill. The worker reads from a backlog all the time: its
//! queues are bounded far below what is ahead of it. Its peak resident memory (VmHWM) is read at the end.

use anyhow::{Context, Result, bail};
use clap::Args;
use testkit::{wait_for, worker::Worker};

use crate::{
    Settings,
    drain::{self, DEADLINE, Progress, peak_resident_mib},
    goals::{Goal, Wanted},
    servers::{Run, Servers},
    workload::Workload,
};

/// Goal 8 for two lanes without segments; what the rest of a drain is bounded by, too.
const GOAL_MIB: f64 = 250.0;
/// How many intents are published ahead of the worker at most: many times what its queues hold.
const AHEAD: u32 = 1_000_000;
/// An intent, in bytes.
const INTENT_BYTES: u32 = 260;
/// Small files, so that what is deleted goes from the disk at the broker's next look.
const TOPIC_SETTINGS: [(&str, &str); 2] = [("segment.bytes", "67108864"), ("file.delete.delay.ms", "1000")];

#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("intents", |intents| intents.default_value("2000000")),
    mut_arg("lanes", |lanes| lanes.default_value("2")),
)]
pub struct Memory {
    #[command(flatten)]
    settings: Settings,
}

pub fn run(memory: &Memory) -> Result<String> {
    let Settings { intents, lanes, partitions, batch, .. } = memory.settings;
    let workload = Workload { segmented: 4, ..memory.settings.workload() };
    let servers = Servers::start_empty(&memory.settings, workload)?;
    let client = servers.kafka.client();
    for topic in servers.outputs().iter().map(String::as_str).chain([servers.intents()]) {
        client.configure_topic(topic, &TOPIC_SETTINGS)?;
    }
    let (run, mut process) = servers.weir("memory", |config| config)?;
    feed(&servers, &run, &mut process)?;
    let peak_mib = peak_resident_mib(process.pid())?;
    drain::end(process)?;
    let gigabytes = f64::from(intents) * f64::from(INTENT_BYTES) / 1e9;
    Ok(format!(
        "{}\nload: {intents} intents of {INTENT_BYTES} bytes ({gigabytes:.1} GB), {lanes} lanes, {partitions} partitions, \
         batch {batch}\n\n{}",
        servers.machine,
        Goal::of(8, "resident at most, MiB", Wanted::AtMost(GOAL_MIB), peak_mib)
    ))
}

/// Publishes all intents, never too far ahead of the worker.
fn feed(servers: &Servers, run: &Run, process: &mut Worker) -> Result<()> {
    let publisher = servers.kafka.client().publisher(servers.intents())?;
    let progress = Progress::of(servers, &run.group)?;
    let all = servers.workload.intents;
    let mut intents = servers.workload.records(servers.settings().partitions);
    let (mut published, mut deleted) = (0, 0);
    loop {
        let committed = committed(&progress, process)?;
        if committed >= all {
            return Ok(());
        }
        if committed >= deleted + AHEAD {
            delete_drained(servers, &progress)?;
            deleted = committed;
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
