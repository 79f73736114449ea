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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_which_steps_ran_beside_each_other_and_how_each_ended() {
        let step = |name, row, began, ended: Option<u64>, said: &str| {
            let ran = Ran { row, began: Duration::from_secs(began), ended: ended.map(Duration::from_secs) };
            Step { name, ran: Some(ran), said: said.to_owned() }
        };
        let steps = [
            step("build", 0, 0, Some(300), ""),
            Step { name: "counts", ran: None, said: "not run: why".to_owned() },
            step("test", 0, 300, Some(1_000), ""),
            step("clippy", 1, 300, Some(700), ""),
            step("doc", 1, 700, Some(1_010), ", cut off"),
            step("faults", 0, 1_000, None, ""),
        ];
        let lines = [
            "steps, when they began and how long they took:",
            "build               0 s    300 s",
            "counts         not run: why",
            "test              300 s    700 s",
            "clippy            300 s    400 s, beside test",
            "doc               700 s    310 s, beside test and faults, cut off",
            "faults           1000 s     50 s, and had not ended",
            "all                 0 s   1050 s",
        ];
        assert_eq!(table(&steps, Duration::from_secs(1_050)).lines().collect::<Vec<_>>(), lines);
    }
}
