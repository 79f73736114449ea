//! The catalogue of faults: every row is injected into real servers under load, and one judge checks the same four
//! promises on the committed output. `cargo xtask faults` runs it and writes the table of docs/reliability.md.
#![allow(clippy::unwrap_used, reason = "a row that cannot go on fails")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the person who started it")]

mod catalogue;
mod ground;
mod judge;
mod load;
mod report;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod trial;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;

use catalogue::{CASES, Case};
use ground::Ground;
use report::{Outcome, Report};
use trial::{Findings, Order};

/// How long a case may take: one that takes longer hangs. One of them waits for up to half an hour; in CI, 70 s were measured.
const CASE_DEADLINE: Duration = Duration::from_secs(3_600);
const CASE_DEADLINE_IN_CI: Duration = Duration::from_secs(300);

/// Inject every fault of the catalogue, and judge the committed output
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask faults")]
struct Cli {
    /// Only these rows or cases: `1,4,16c`
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The part that CI runs: faults that nothing else in tests/ injects, fewer times
    #[arg(long)]
    ci: bool,
    /// How often each fault is injected [default: each case's own number]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    times: Option<u32>,
    /// Seed of the load and of the moments of faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results into the table of docs/reliability.md; a run of everything always does
    #[arg(long)]
    write: bool,
    /// Only print the cases
    #[arg(long)]
    list: bool,
}

impl Cli {
    fn wants(&self, case: &Case) -> bool {
        let row = case.row().to_string();
        let named = self.rows.is_empty() || self.rows.iter().any(|wanted| *wanted == row || wanted == case.key);
        named && (!self.ci || case.in_ci.is_some())
    }

    fn order(&self, case: &'static Case) -> Order {
        let own = if self.ci { case.in_ci.unwrap_or(case.times) } else { case.times };
        let times = self.times.map_or(own, |times| usize::try_from(times).unwrap());
        // A change is not judged by how fast a machine is.
        Order { case, times, seed: self.seed, times_count: !self.ci, folder: logs_folder().join(case.key) }
    }
}

/// Where the logs of failed cases are kept.
fn logs_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults")
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let cases: Vec<&'static Case> = CASES.iter().filter(|case| cli.wants(case)).collect();
    anyhow::ensure!(!cases.is_empty(), "no case is called {}: see --list", cli.rows.join(", "));
    if cli.list {
        for case in cases {
            println!("{:4} {}", case.key, case.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let _ = std::fs::remove_dir_all(logs_folder());
    std::fs::create_dir_all(logs_folder())?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let writes = cli.write || (cli.rows.is_empty() && !cli.ci);
    let mut ground = Ground::default();
    let mut report = Report::begin();
    for case in cases {
        let outcome = run(&cli.order(case), &mut ground);
        eprintln!("{}", outcome.line());
        report.outcomes.push(outcome);
        if writes {
            report.write(&page)?;
        }
    }
    drop(ground);
    println!("{}", report.table(&BTreeMap::new()));
    let good = report.outcomes.iter().all(Outcome::holds);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ends this process, and with it its servers, where a case hangs, and names the case. Whoever runs the case drops the sender at its end.
fn watch(order: &Order) -> Sender<()> {
    let (running, end) = channel();
    let (case, limit) = (order.case, if order.times_count { CASE_DEADLINE } else { CASE_DEADLINE_IN_CI });
    std::thread::spawn(move || {
        if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{:4} FAILS: it has not ended after {} s", case.key, limit.as_secs());
            std::process::exit(1);
        }
    });
    running
}

/// Runs one case; a panic is a failure like any other.
fn run(order: &Order, ground: &mut Ground) -> Outcome {
    eprintln!("{:4} {} ...", order.case.key, order.case.what);
    let (start, _running) = (Instant::now(), watch(order));
    let found = catch_unwind(AssertUnwindSafe(|| (order.case.run)(ground, order)));
    let found: Result<Findings, String> = match found {
        Ok(Ok(findings)) => Ok(findings),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(panic) => Err(said(&*panic)),
    };
    let outcome = Outcome::of(order, found, start.elapsed());
    if !outcome.holds() {
        ground.keep_logs(&order.folder);
        // The leftovers of a failed case must not break the next one.
        *ground = Ground::default();
    }
    outcome
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_else(|| "a panic".to_owned())
}
