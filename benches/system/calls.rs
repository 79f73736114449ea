//! The longest script calls, where they are worst: each case on a Redis of its own that does nothing else.
//!
//! The server's clock times them (SLOWLOG), so what else the machine does is in the longest. A stall of the machine is
//! in one run and not in the next, so figures are medians of several.

use std::{fmt, sync::Arc};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use testkit::redis::RedisServer;
use weir_core::{
    basis::time::Time,
    history::{admit::CapQuery, decide::AdmitVerdict},
    intent::class::Filter,
};

use crate::{
    goals::{self, Goal},
    keyspace::{Opened, START_MS, request, sliding},
    redis_info::{note_calls, noted_calls_us},
    report::{median, quantile, table},
};

/// The sends of a case: how often, and how many per user.
struct Plan {
    shards: u16,
    /// Users that the keyspace is made for.
    keyed: u64,
    caps: Vec<CapQuery>,
    users: u32,
    sends: u32,
    rounds: u32,
}

/// Where a script call may be long: a name, what it is, and its sends. No cap of them denies (which is checked), and none can be
/// answered without looking into its window: rounds are a millisecond apart, and every other send is a push.
fn cases() -> [(&'static str, &'static str, Plan); 6] {
    let pushes = |limit, length_ms| CapQuery {
        filter: Arc::new(Filter { channels: Some(["push".to_owned()].into()), categories: None }),
        ..sliding(limit, length_ms)
    };
    let two = |sends: u32| vec![sliding(6 * sends, 6), sliding(12 * sends, 12)];
    // An email counts for nothing and is held to the cap all the same.
    let hundred = (0..50).flat_map(|_| [sliding(12, 12), pushes(7, 12)]).collect();
    let alone = || Plan { shards: 1, keyed: 1, caps: two(1), users: 128, sends: 1, rounds: 24 };
    let caps = vec![sliding(3, 3), sliding(6, 6)];
    let usual = Plan { shards: 128, keyed: 60_000, caps, users: 10_000, rounds: 12, ..alone() };
    // Two per user of up to 48 sends.
    let largest_call = Plan { keyed: 4_096, caps: two(2), users: 800, sends: 2, ..alone() };
    // 60 KB, one send per batch.
    let long_history = Plan { caps: vec![pushes(501, 1_000)], users: 1, rounds: 3_000, ..alone() };
    let longest_history = Plan { caps: vec![pushes(513, 32)], users: 1, sends: 32, rounds: 94, ..alone() };
    let hundred_caps = Plan { keyed: 4_096, caps: hundred, users: 320, ..alone() };
    [
        ("usual", "two caps, 10,000 users per batch, 128 shards", usual),
        ("largest-call", "as many sends as a call may carry", largest_call),
        ("long-history", "a user of up to 3,000 sends, a cap with a filter", long_history),
        ("longest-history", "the same, 32 sends per batch", longest_history),
        ("hundred-caps", "100 caps, half of them with a filter, users of 24 sends", hundred_caps),
        // 63 KB, all of them asked for.
        ("fullest-key", "128 users of 24 sends in one key", alone()),
    ]
}

#[derive(Debug, Serialize)]
pub struct LongestCalls(Vec<CallTimes>);

/// The duration of a case's calls in the latter half of its rounds, when histories are long.
#[derive(Debug, Clone, Copy, Serialize)]
struct CallTimes {
    case: &'static str,
    #[serde(skip)]
    says: &'static str,
    /// Calls in the first run.
    calls: usize,
    /// Half of a run's calls took no longer; of this and the next two, the median of the runs, in milliseconds.
    p50_ms: f64,
    /// All but a thousandth took no longer; of fewer calls, that is the longest.
    p999_ms: f64,
    longest_ms: f64,
}

impl LongestCalls {
    /// The longest p99.9 of a case, in milliseconds.
    pub fn p999_ms(&self) -> f64 {
        self.0.iter().map(|times| times.p999_ms).fold(0.0, f64::max)
    }

    /// The longest call of a case, the median of its runs, in milliseconds.
    pub fn longest_ms(&self) -> f64 {
        self.0.iter().map(|times| times.longest_ms).fold(0.0, f64::max)
    }
}

#[derive(Debug, Args)]
pub struct Calls {
    /// Runs of each case; figures are their medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
}

pub fn run(calls: &Calls) -> Result<String> {
    let calls = measure(calls.runs)?;
    let goals = Goal::of_calls(&calls);
    Ok(format!("{calls}\n\n{}", goals::lines(&goals)))
}

pub fn measure(runs: u32) -> Result<LongestCalls> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let of_case = |(case, says, plan): (&'static str, &'static str, Plan)| {
        let runs = (0..runs).map(|_| runtime.block_on(run_once(&plan)).with_context(|| says));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let at = |share: f64| -> Vec<f64> { runs.iter().map(|times| quantile(times, share)).collect() };
        let calls = runs.first().map_or(0, Vec::len);
        let [p50_ms, p999_ms, longest_ms] = [0.5, 0.999, 1.0].map(|share| median(&at(share)));
        Ok(CallTimes { case, says, calls, p50_ms, p999_ms, longest_ms })
    };
    cases().into_iter().map(of_case).collect::<Result<_>>().map(LongestCalls)
}

/// The milliseconds of one run's calls, ascending.
async fn run_once(plan: &Plan) -> Result<Vec<f64>> {
    // Hashes stay packed, as large as a case needs them.
    let server = RedisServer::start(&["--hash-max-listpack-value", "1024"])?;
    let Plan { shards, keyed, ref caps, users, sends, rounds } = *plan;
    let mut store = Opened::new(&[server.url()], "weir", (keyed, shards), Time::default().plus(START_MS)).await?;
    let cap_sets = [caps.clone()];
    let mut number = 0_u32;
    for round in 0..rounds {
        if round == rounds / 2 {
            note_calls(&server)?;
        }
        let mut requests = Vec::new();
        for user in 0..users {
            for send in 0..sends {
                let channel = if (round + send) % 2 == 0 { "push" } else { "email" };
                requests.push(request(user, number, channel));
                number += 1;
            }
        }
        let answers = store.decide(i64::from(round), &cap_sets, requests).await?;
        let denied = answers.iter().filter(|answer| answer.verdict != AdmitVerdict::Allowed).count();
        ensure!(denied == 0, "{denied} of {} sends of round {round} were not allowed", answers.len());
    }
    let mut times_ms: Vec<f64> = noted_calls_us(&server)?.into_iter().map(|us| us / 1e3).collect();
    ensure!(!times_ms.is_empty(), "the server has logged no call of a script");
    times_ms.sort_by(f64::total_cmp);
    Ok(times_ms)
}

impl fmt::Display for LongestCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["script calls, alone on their server", "calls", "p50, ms", "p99.9, ms", "longest, ms"];
        let row = |CallTimes { says, calls, p50_ms, p999_ms, longest_ms, .. }: &CallTimes| {
            let ms = |value: &f64| format!("{value:.2}");
            [(*says).to_owned(), calls.to_string(), ms(p50_ms), ms(p999_ms), ms(longest_ms)]
        };
        write!(f, "{}", table(head, self.0.iter().map(row)))
    }
}
