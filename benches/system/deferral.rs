//! What it costs to defer an intent, and how fast deferred intents come back: `cargo xtask bench deferral`.
//!
//! One lane decides a backlog of intents that may be sent at once. Then the same intents come with one `not_before`, some minutes
//! ahead, behind some of other users that may be sent at once: one lane decides the latter, so that it is at full speed and its buffers
//! are as large as they get, and defers the former to one minute. Its memory is looked at with the first of them deferred, and with
//! all. When the minute begins, the lane of what is due decides them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::wait_for;

use crate::{
    Settings,
    drain::{self, DEADLINE, Progress, Window, resident_mib},
    goals::{self, Goal, Wanted},
    machine::Machine,
    report::table,
    servers::Servers,
    workload::Workload,
};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Intents that are published and deferred per second at the least, on a machine that is worth measuring on.
const SLOWEST_A_S: i64 = 25_000;
/// Intents that are decided before any is deferred.
const WARM_UP: u32 = 200_000;
/// How many are deferred, at the least, when memory is looked at first.
const FIRST: i64 = 10_000;

#[derive(Debug, Clone, Args)]
#[command(mut_arg("intents", |intents| intents.default_value("1000000")))]
pub struct Deferral {
    #[command(flatten)]
    settings: Settings,
    /// Partitions of a bucket
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    shares: u16,
}

#[derive(Debug, Clone, Copy)]
struct Drained {
    intents_per_s: f64,
    /// CPU of the worker, in microseconds per intent.
    cpu_us: f64,
}

impl<T> From<Window<T>> for Drained {
    fn from(window: Window<T>) -> Self {
        Self { intents_per_s: window.intents / window.time.as_secs_f64(), cpu_us: window.cpu_us / window.intents }
    }
}

/// Fails also where the machine is too slow for the minute that the intents are due in.
pub fn run(deferral: &Deferral) -> Result<String> {
    let Deferral { settings, shares } = deferral;
    let (intents, workload) = (settings.intents, settings.workload());
    let mut servers = Servers::start(settings, workload)?;
    for (ring, buckets) in [("hours", 96), ("minutes", 120)] {
        let kept = [("retention.ms", "424800000")];
        servers.kafka.client().create_topic_with(&format!("later-{ring}"), buckets * i32::from(*shares), &kept)?;
    }
    let defers = |config: String| config.replace("[kafka]", "[kafka]\ndeferred = \"later\"");
    eprintln!("intents that may be sent at once");
    let (run, mut process) = servers.weir("fresh", defers)?;
    let fresh = Drained::from(drain::watch(&servers, &run, &mut process, || Ok(()))?);
    drain::end(process)?;

    // All of one minute, in the running hour, and not before all of them can be deferred.
    let due_ms = due_ms(intents);
    let others = Workload { intents: WARM_UP, seed: workload.seed.wrapping_add(1), ..workload };
    let many = servers.publish(settings, others)?;
    servers.publish_behind(&many, Workload { not_before_ms: Some(due_ms), ..workload })?;
    eprintln!("intents that are deferred");
    servers.turn_to(many);
    let (run, mut process) = servers.weir("deferred", defers)?;
    let minutes = Progress::of_topic(&servers, &format!("{}-later", run.group), "later-minutes")?;
    let progress = Progress::of(&servers, &run.group)?;
    let (warm, all) = (i64::from(WARM_UP), i64::from(intents));
    let first = drain::until(&progress, warm + FIRST, &mut process)? - warm;
    let with_first_mib = resident_mib(process.pid())?;
    let deferred = drain::watch_progress(&servers, &progress, (warm + first, warm + all), &mut process, || Ok(()))?;
    let deferred = Drained::from(deferred);
    let with_all_mib = resident_mib(process.pid())?;
    let before = minutes.committed().unwrap_or_default();
    ensure!(now_ms() < due_ms && before == 0, "they were due before all of them were deferred: take fewer intents");
    eprintln!("waiting until they are due");
    let wait = Duration::from_millis(u64::try_from(due_ms - now_ms())?);
    let began = wait_for(wait + DEADLINE, || minutes.committed().filter(|committed| *committed > 0));
    began.context("nothing has come back")?;
    let released = drain::watch_progress(&servers, &minutes, (0, all), &mut process, || Ok(()))?;
    drain::end(process)?;
    let drains = [fresh, deferred, Drained::from(released)];
    Ok(found(&servers.machine, deferral, drains, [(first, with_first_mib), (all, with_all_mib)]))
}

/// `resident_mib`: how many intents were deferred when the worker's memory was looked at, and what it had resident, in MiB.
fn found(machine: &Machine, deferral: &Deferral, drains: [Drained; 3], resident_mib: [(i64, f64); 2]) -> String {
    let Deferral { settings: Settings { intents, .. }, shares } = deferral;
    let [fresh, deferred, released] = drains;
    let [(first, with_first), (all, with_all)] = resident_mib;
    let cpu = deferred.cpu_us / fresh.cpu_us;
    let (rate, memory) = (released.intents_per_s / fresh.intents_per_s, with_all / with_first);
    let goals = [
        Goal::of(11, "CPU of a deferral, of an approval's", Wanted::AtMost(1.3), cpu),
        Goal::of(11, "deferred intents per second, of fresh ones", Wanted::AtLeast(0.8), rate),
        Goal::of(11, "memory with all deferred, of that with the first 10,000", Wanted::AtMost(1.05), memory),
    ];
    let rows = [
        ("intents that may be sent at once", fresh),
        ("the same, deferred", deferred),
        ("the same, when they are due", released),
    ];
    let rows = rows.map(|(name, Drained { intents_per_s, cpu_us })| {
        [name.to_owned(), format!("{intents_per_s:.0}"), format!("{cpu_us:.2}")]
    });
    format!(
        "{machine}\n{intents} intents, {shares} partition(s) a bucket\n\n{}\n\
         resident with {first} deferred: {with_first:.0} MiB, with {all}: {with_all:.0} MiB\n\n{}",
        table(["one lane", "intents/s", "worker CPU, us per intent"], rows),
        goals::lines(&goals)
    )
}

/// The minute that all are due in.
fn due_ms(intents: u32) -> i64 {
    let ready_ms = now_ms() + 2 * MINUTE_MS + (i64::from(intents) + i64::from(WARM_UP)) * 1000 / SLOWEST_A_S;
    let due_ms = ready_ms - ready_ms.rem_euclid(MINUTE_MS) + MINUTE_MS;
    // At the begin of an hour its bucket is still being moved: not what is measured.
    if due_ms.rem_euclid(HOUR_MS) < 10 * MINUTE_MS { due_ms + 10 * MINUTE_MS } else { due_ms }
}

#[expect(clippy::disallowed_methods, reason = "intents are due by the true time")]
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
