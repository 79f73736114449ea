//! The tables of a run of CI: how long its steps took, its slowest tests, and the flaky ones. They are printed once, however it ends.
#![expect(clippy::disallowed_types, reason = "the thread of signals prints them, too; no lane")]

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{flakes, test_report};

/// What is known of a run.
struct Run {
    began: Instant,
    /// Whose tests are reported: that of a change first.
    profiles: &'static [&'static str],
    /// A line for each step that has ended or was left out.
    steps: Vec<(&'static str, String)>,
    /// The step that runs, and since when.
    running: Option<(&'static str, Instant)>,
    /// What else is said at the end.
    notes: Vec<String>,
}

/// The run; `None` before it has begun, and once its tables are printed.
static RUN: Mutex<Option<Run>> = Mutex::new(None);

/// Begins a run that reports the tests of these profiles.
pub fn begin(profiles: &'static [&'static str]) {
    let (steps, notes) = (Vec::new(), Vec::new());
    *run() = Some(Run { began: Instant::now(), profiles, steps, running: None, notes });
}

/// Begins a step.
pub fn begin_step(name: &'static str) {
    with(|run| run.running = Some((name, Instant::now())));
}

/// Ends the step that runs.
pub fn end_step() {
    with(|run| {
        let ended = run.running.take();
        run.steps.extend(ended.map(|(name, since)| (name, seconds(since))));
    });
}

/// Notes why a step is left out.
pub fn leave_out(name: &'static str, why: String) {
    with(|run| run.steps.push((name, why)));
}

/// Has something said at the end.
pub fn note(what: String) {
    with(|run| run.notes.push(what));
}

/// Prints the tables, unless they are printed; who prints them meanwhile is waited for.
pub fn print() {
    let mut run = run();
    let Some(Run { began, profiles, mut steps, running, notes }) = run.take() else { return };
    for profile in profiles {
        eprintln!("{}", test_report::slowest_and_flaky(profile));
    }
    // Ignored tests are not tried again.
    for often in profiles.first().map(|change| flakes::note(change)).unwrap_or_default() {
        eprintln!("{often}");
    }
    steps.extend(running.map(|(name, since)| (name, format!("{}, and had not ended", seconds(since)))));
    eprintln!("steps:");
    for (name, took) in steps.into_iter().chain([("all", seconds(began))]) {
        eprintln!("{name:<12} {took}");
    }
    notes.iter().for_each(|note| eprintln!("{note}"));
}

fn seconds(since: Instant) -> String {
    format!("{:>6} s", since.elapsed().as_secs())
}

fn run() -> MutexGuard<'static, Option<Run>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with(change: impl FnOnce(&mut Run)) {
    if let Some(run) = &mut *run() {
        change(run);
    }
}
