//! The tables of a run of CI: when its steps began and how long they took, its slowest tests, and the flaky ones. They are printed once,
//! however it ends.
#![expect(clippy::disallowed_types, reason = "the thread of signals prints them, too; no lane")]

use std::{
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{flakes, test_report};

struct Run {
    began: Instant,
    /// Whose tests are reported: that of a change first.
    profiles: &'static [&'static str],
    /// The steps that have begun or were left out.
    steps: Vec<Step>,
}

struct Step {
    name: &'static str,
    /// `None`: it was left out.
    ran: Option<Ran>,
    said: String,
}

/// When a step ran, counted from the beginning of the run.
#[derive(Debug, Clone, Copy)]
struct Ran {
    row: usize,
    began: Duration,
    /// `None`: it has not ended.
    ended: Option<Duration>,
}

/// The run; `None` before it has begun, and once its tables are printed.
static RUN: Mutex<Option<Run>> = Mutex::new(None);

/// Begins a run that reports the tests of these profiles.
pub fn begin(profiles: &'static [&'static str]) {
    *run() = Some(Run { began: Instant::now(), profiles, steps: Vec::new() });
}

pub fn begin_step(name: &'static str, row: usize) {
    with(|run| {
        let ran = Ran { row, began: run.began.elapsed(), ended: None };
        run.steps.push(Step { name, ran: Some(ran), said: String::new() });
    });
}

/// Ends a step; `how`: nothing where it has passed.
pub fn end_step(name: &str, how: &str) {
    with(|run| {
        let now = run.began.elapsed();
        let Some(step) = run.steps.iter_mut().rfind(|step| step.name == name) else { return };
        how.clone_into(&mut step.said);
        step.ran = step.ran.map(|ran| Ran { ended: Some(now), ..ran });
    });
}

/// Notes why a step is left out.
pub fn leave_out(name: &'static str, why: String) {
    with(|run| run.steps.push(Step { name, ran: None, said: why }));
}

/// Prints the tables, unless they are printed; who prints them meanwhile is waited for.
pub fn print() {
    let mut run = run();
    let Some(Run { began, profiles, steps }) = run.take() else { return };
    for profile in profiles {
        eprintln!("{}", test_report::slowest_and_flaky(profile));
    }
    for often in flakes::note(profiles) {
        eprintln!("{often}");
    }
    eprint!("{}", table(&steps, began.elapsed()));
}

/// A line for each step of a run that has taken so long.
fn table(steps: &[Step], all: Duration) -> String {
    let mut table = "steps, when they began and how long they took:\n".to_owned();
    for Step { name, ran, said } in steps {
        let _ = match *ran {
            None => writeln!(table, "{name:<14} {said}"),
            Some(ran) => {
                let (end, not) = ran.ended.map_or((all, ", and had not ended"), |ended| (ended, ""));
                let (began, took) = (ran.began.as_secs(), end.saturating_sub(ran.began).as_secs());
                let beside = beside(ran, steps, all);
                writeln!(table, "{name:<14} {began:>6} s {took:>6} s{beside}{said}{not}")
            }
        };
    }
    let _ = writeln!(table, "{:<14} {:>6} s {:>6} s", "all", 0, all.as_secs());
    table
}

/// The steps of the first row that ran while one of another did.
fn beside(ran: Ran, steps: &[Step], all: Duration) -> String {
    let end = |ran: Ran| ran.ended.unwrap_or(all);
    let met = |other: Ran| ran.row > 0 && other.row == 0 && other.began < end(ran) && ran.began < end(other);
    let met: Vec<&str> = steps.iter().filter(|step| step.ran.is_some_and(met)).map(|step| step.name).collect();
    if met.is_empty() { String::new() } else { format!(", beside {}", met.join(" and ")) }
}

fn run() -> MutexGuard<'static, Option<Run>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with(change: impl FnOnce(&mut Run)) {
    if let Some(run) = &mut *run() {
        change(run);
    }
}
