//! The cost of HTTP for the lanes, and its latency while they work: `cargo xtask bench http`.
//!
//! The same backlog is drained twice per round, by `weir run` alone and with requests beside it. Requests are sent at a fixed
//! rate over connections that are kept; each is timed from the moment at which it was to be sent, so that one that waits for
//! a slow one before it is not counted as quick.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::Table;
use serde_json::json;
use testkit::{
    http::{self, Client},
    wait_for,
    worker::Worker,
};

use crate::{
    Settings, drain,
    report::{quantile, table},
    servers::{Run, Servers},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Requests per second: half of them users, a quarter decisions, a quarter dry runs.
const REQUESTS: u32 = 500;
/// Connections that they are sent over.
const CONNECTIONS: u32 = 8;

#[derive(Debug, Clone, Args)]
pub struct Load {
    #[command(flatten)]
    pub settings: Settings,
}

/// The requests, and how long their answers took.
#[derive(Debug, Clone, Default)]
struct Asked {
    failed: u32,
    requests: usize,
    p50_ms: f64,
    p99_ms: f64,
}

impl Asked {
    fn of(parts: Vec<(Vec<f64>, u32)>) -> Self {
        let failed = parts.iter().map(|(_, failed)| failed).sum();
        let mut times_ms: Vec<f64> = parts.into_iter().flat_map(|(times, _)| times).collect();
        times_ms.sort_by(f64::total_cmp);
        let [p50_ms, p99_ms] = [0.5, 0.99].map(|share| quantile(&times_ms, share));
        Self { failed, requests: times_ms.len(), p50_ms, p99_ms }
    }
}

#[derive(Debug)]
struct Round {
    alone_per_s: f64,
    beside_per_s: f64,
    asked: Asked,
}

pub fn run(load: &Load) -> Result<String> {
    let workload = load.settings.workload();
    let servers = Servers::start(&load.settings, workload)?;
    eprintln!("a round to warm up");
    alone(&servers)?;
    let rounds = (1..=load.settings.rounds).map(|number| {
        eprintln!("round {number} of {}", load.settings.rounds);
        let alone_per_s = alone(&servers)?;
        let (beside_per_s, asked) = beside(&servers)?;
        Ok(Round { alone_per_s, beside_per_s, asked })
    });
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    let lanes = load.settings.lane_count();
    Ok(format!(
        "{}\nload: {} intents, {lanes} lane(s); {REQUESTS} requests/s over {CONNECTIONS} connections\n\n{}",
        servers.machine,
        workload.intents,
        rows(&rounds)
    ))
}

fn start(servers: &Servers) -> Result<(Run, Worker)> {
    servers.flush_redis()?;
    // All requests come from one address.
    servers.weir("http", |config| config + "rate = 0\n")
}

fn alone(servers: &Servers) -> Result<f64> {
    let (run, mut process) = start(servers)?;
    let window = drain::watch(servers, &run, &mut process, || Ok(()))?;
    drain::end(process)?;
    Ok(window.intents / window.time.as_secs_f64())
}

/// With requests from when the lanes have their partitions to the last commit.
fn beside(servers: &Servers) -> Result<(f64, Asked)> {
    let (run, mut process) = start(servers)?;
    let weir = format!("http://127.0.0.1:{}", run.http.number());
    let ready = format!("{weir}/readyz");
    wait_for(PATIENCE, || http::get(&ready).ok().filter(|(status, _)| *status == 200))
        .context("weir does not become ready")?;
    let (window, asked) = asking(&weir, || drain::watch(servers, &run, &mut process, || Ok(())))?;
    let window = window?;
    drain::end(process)?;
    ensure!(asked.failed == 0, "{} requests were not answered with 200", asked.failed);
    Ok((window.intents / window.time.as_secs_f64(), asked))
}

/// Does something while requests are sent.
fn asking<T>(weir: &str, work: impl FnOnce() -> T) -> Result<(T, Asked)> {
    let done = AtomicBool::new(false);
    let every = Duration::from_secs_f64(f64::from(CONNECTIONS) / f64::from(REQUESTS));
    std::thread::scope(|scope| {
        let done = &done;
        let clients: Vec<_> = (0..CONNECTIONS).map(|one| scope.spawn(move || client(weir, one, every, done))).collect();
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let parts = clients.into_iter().map(|client| match client.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok((worked, Asked::of(parts.collect::<Result<_>>()?)))
    })
}

/// One connection's requests: the times in milliseconds, and how many were not answered with 200.
fn client(weir: &str, number: u32, every: Duration, done: &AtomicBool) -> Result<(Vec<f64>, u32)> {
    let client = Client::new(PATIENCE);
    let (mut times_ms, mut failed) = (Vec::new(), 0);
    let began = Instant::now() + every.mul_f64(f64::from(number % 64) / 64.0);
    for turn in 0_u32.. {
        let due = began + every * turn;
        while Instant::now() < due && !done.load(Ordering::Relaxed) {
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
        failed += u32::from(status(&client, weir, (number, turn))? != 200);
        times_ms.push(due.elapsed().as_secs_f64() * 1e3);
    }
    Ok((times_ms, failed))
}

/// Sends a client's request of this number.
fn status(client: &Client, weir: &str, (number, turn): (u32, u32)) -> Result<u16> {
    let user = (u64::from(number) * 7_919 + u64::from(turn) * 104_729) % 60_000;
    let query = match turn % 4 {
        0 | 2 => return Ok(client.get(&format!("{weir}/v1/users/{user}"))?.0),
        1 => "",
        _ => "?dry_run=true",
    };
    let intent = json!({"id": format!("bench-{number}-{turn}"), "user_id": user, "channel": "push"});
    Ok(client.send("POST", &format!("{weir}/v1/decisions{query}"), &intent)?.0)
}

fn rows(rounds: &[Round]) -> Table {
    let head = ["round", "intents/s alone", "with requests", "ratio", "requests", "p50, ms", "p99, ms"];
    let row = |(number, Round { alone_per_s, beside_per_s, asked }): (i32, &Round)| {
        let ms = |ms: f64| format!("{ms:.1}");
        [
            number.to_string(),
            format!("{alone_per_s:.0}"),
            format!("{beside_per_s:.0}"),
            format!("{:.2}", beside_per_s / alone_per_s),
            asked.requests.to_string(),
            ms(asked.p50_ms),
            ms(asked.p99_ms),
        ]
    };
    table(head, (1..).zip(rounds).map(row))
}
