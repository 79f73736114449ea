//! The rounds: in each the bare loop, the published way and weir, one after the other on the same servers.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use testkit::{wait_for, worker::Worker};

use crate::{
    bare_loop::{Committed, Kind},
    drain::{self, Window},
    redis_info::{RedisTotals, largest_key_bytes},
    servers::{Run, Servers, WEIR},
};

/// How long a process may take to report its commits.
const TOLD_DEADLINE: Duration = Duration::from_secs(30);
/// weir's count of intents decided and committed.
const DECISIONS: &str = "weir_decisions_total";
/// weir's count of sends that Redis has decided.
const REDIS_DECISIONS: &str = "weir_redis_decisions_total";

#[derive(Debug, Clone, Serialize)]
pub struct Round {
    pub bare: Drained,
    /// The loop that writes the bytes that weir writes.
    pub same_bytes: Drained,
    pub zset: Capped,
    pub weir: Weir,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Capped {
    pub drained: Drained,
    pub redis: RedisCost,
}

/// The cost of draining the backlog, from the first commit to the last.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Drained {
    pub intents_per_s: f64,
    pub cpu_us: f64,
    pub broker_cpu_us: f64,
    /// Intents per commit, in the mean.
    pub batch: f64,
    /// The most memory that the process had resident, in MiB.
    pub resident_mib: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct RedisCost {
    /// CPU of the servers per decision, in microseconds.
    pub cpu_us: f64,
    /// used_memory per user with an intent, in bytes.
    pub user_bytes: f64,
    pub script_calls: f64,
    /// Commands that scripts called, a decision.
    pub redis_calls: f64,
    pub suppressed: f64,
}

/// All rounds, after one that is not counted: the broker's JVM compiles what it runs often.
pub fn all(servers: &Servers, rounds: u32) -> Result<Vec<Round>> {
    eprintln!("a round to warm up");
    bare(servers, Kind::Bare).context("the bare loop")?;
    let rounds = (1..=rounds).map(|number| {
        eprintln!("round {number} of {rounds}");
        let same_bytes = bare(servers, Kind::SameBytes).context("the loop that writes the same bytes")?;
        let bare = bare(servers, Kind::Bare).context("the bare loop")?;
        let zset = capped(servers, Kind::SortedSets).context("the published way")?;
        let weir = weir(servers, &Program::this(), |_| Ok(())).context("weir")?;
        Ok(Round { bare, same_bytes, zset, weir })
    });
    rounds.collect()
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Weir {
    pub capped: Capped,
    /// MEMORY USAGE of the largest key, in bytes.
    pub largest_key_bytes: f64,
    /// Pipelines per batch and node.
    pub round_trips: f64,
}

fn bare(servers: &Servers, kind: Kind) -> Result<Drained> {
    let run = servers.run(&kind.name())?;
    let mut process = start_loop(&run, kind)?;
    let window = drain::watch(servers, &run, &mut process, || Ok(()))?;
    let told = told(servers, &process)?;
    drain::end(process)?;
    Ok(drained(servers, &window, f64::from(told.batches)))
}

/// Drains by the published way.
pub fn capped(servers: &Servers, kind: Kind) -> Result<Capped> {
    servers.flush_redis()?;
    let empty = RedisTotals::ask(&servers.redis)?;
    let run = servers.run(&kind.name())?;
    let mut process = start_loop(&run, kind)?;
    let window = drain::watch(servers, &run, &mut process, || RedisTotals::ask(&servers.redis))?;
    let told = told(servers, &process)?;
    drain::end(process)?;
    let full = RedisTotals::ask(&servers.redis)?;
    let (first, last) = &window.asked;
    let decisions = last.script_calls - first.script_calls;
    ensure_exact(servers, f64::from(told.suppressed))?;
    let redis = cost(servers, (first, last), decisions, (&empty, &full), f64::from(told.suppressed));
    Ok(Capped { drained: drained(servers, &window, f64::from(told.batches)), redis })
}

/// A build of weir, and the environment that it runs in.
#[derive(Debug, Clone)]
pub struct Program {
    pub binary: PathBuf,
    /// Environment variables, besides this process's.
    pub env: Vec<(String, String)>,
}

impl Program {
    /// The build that the bench belongs to.
    pub fn this() -> Self {
        Self { binary: WEIR.into(), env: Vec::new() }
    }

    fn run(&self, config: &str) -> Result<Worker> {
        let env: Vec<(&str, &str)> = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Worker::run_with(&self.binary, config, &env)
    }
}

/// Drains by weir, on a keyspace that `fill` is given when it is new.
pub fn weir(servers: &Servers, program: &Program, fill: impl FnOnce(&Run) -> Result<()>) -> Result<Weir> {
    servers.flush_redis()?;
    let run = servers.run("weir")?;
    servers.create_keyspace(&run, &program.binary)?;
    fill(&run)?;
    let empty = RedisTotals::ask(&servers.redis)?;
    let mut process = program.run(&run.config)?;
    let url = format!("http://127.0.0.1:{}/metrics", run.http.number());
    let ask = || Ok((RedisTotals::ask(&servers.redis)?, Figures::read(&url)?));
    let window = drain::watch(servers, &run, &mut process, ask)?;
    let figures = Figures::read_when_all_is_told(servers, &url)?;
    let largest_key_bytes = largest_key_bytes(&servers.redis)?;
    drain::end(process)?;
    // Its connections are gone, so their buffers are not counted.
    let full = RedisTotals::ask(&servers.redis)?;
    let ((first, figures_first), (last, figures_last)) = &window.asked;
    let decisions = figures_last.of(REDIS_DECISIONS) - figures_first.of(REDIS_DECISIONS);
    let suppressed = figures.sum(&format!(r#"{DECISIONS}{{verdict="suppressed""#));
    ensure_exact(servers, suppressed)?;
    let redis = cost(servers, (first, last), decisions, (&empty, &full), suppressed);
    let drained = drained(servers, &window, figures.of("weir_batch_intents_count"));
    let grown = |name: &str| figures_last.of(name) - figures_first.of(name);
    let batches = grown("weir_batch_intents_count") * servers.redis.primaries()?.len() as f64;
    let round_trips = grown("weir_redis_round_trips_total") / batches;
    Ok(Weir { capped: Capped { drained, redis }, largest_key_bytes, round_trips })
}

pub fn start_loop(run: &Run, kind: Kind) -> Result<Worker> {
    let args = |config: PathBuf| {
        vec!["bare-loop".into(), "--kind".into(), kind.name().into(), "--config".into(), config.into_os_string()]
    };
    Worker::start(std::env::current_exe()?, &run.config, args, &[])
}

/// The output of a loop once it has reported all intents, a moment after they are committed.
fn told(servers: &Servers, process: &Worker) -> Result<Committed> {
    let all = |told: &Committed| told.intents >= servers.workload.intents;
    wait_for(TOLD_DEADLINE, || Some(Committed::told(&process.log())).filter(all))
        .context("it has committed all intents and does not report them")
}

fn drained<T>(servers: &Servers, window: &Window<T>, batches: f64) -> Drained {
    Drained {
        intents_per_s: window.intents / window.time.as_secs_f64(),
        cpu_us: window.cpu_us / window.intents,
        broker_cpu_us: window.broker_cpu_us / window.intents,
        batch: f64::from(servers.workload.intents) / batches,
        resident_mib: window.resident_mib,
    }
}

/// Nothing leaves a window during a run, so the number of approved intents does not depend on time.
fn ensure_exact(servers: &Servers, suppressed: f64) -> Result<()> {
    let exact = servers.workload.suppressed();
    ensure!(suppressed == f64::from(exact), "it suppressed {suppressed} intents, and the caps say {exact}");
    Ok(())
}

/// CPU and calls of the `window` of so many decisions; memory from empty to full.
fn cost(
    servers: &Servers,
    (first, last): (&RedisTotals, &RedisTotals),
    decisions: f64,
    (empty, full): (&RedisTotals, &RedisTotals),
    suppressed: f64,
) -> RedisCost {
    let users = servers.workload.users_met() as f64;
    RedisCost {
        cpu_us: (last.cpu_us - first.cpu_us) / decisions,
        user_bytes: (full.memory_bytes - empty.memory_bytes) / users,
        script_calls: (last.script_calls - first.script_calls) / decisions,
        redis_calls: (last.redis_calls - first.redis_calls) / decisions,
        suppressed: suppressed / f64::from(servers.workload.intents),
    }
}

/// The samples of `/metrics`.
struct Figures(Vec<(String, f64)>);

impl Figures {
    fn read(url: &str) -> Result<Self> {
        let (status, text) = testkit::http::get(url)?;
        ensure!(status == 200, "{url} answers {status}: {text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Self(samples.collect()))
    }

    /// The metrics once the worker has counted all intents, a moment after they are committed.
    fn read_when_all_is_told(servers: &Servers, url: &str) -> Result<Self> {
        let all = f64::from(servers.workload.intents);
        let told = wait_for(TOLD_DEADLINE, || match Self::read(url) {
            Ok(figures) if figures.sum(DECISIONS) < all => None,
            told => Some(told),
        });
        told.context("the worker has committed all intents and does not count them")?
    }

    /// One sample; 0 if there is none yet.
    fn of(&self, name: &str) -> f64 {
        self.0.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value)
    }

    /// All samples that begin so.
    fn sum(&self, prefix: &str) -> f64 {
        self.0.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, value)| value).sum()
    }
}
