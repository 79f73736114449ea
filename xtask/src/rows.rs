//! Rows of steps side by side: the first waits for servers most of the time, the others, of a lower priority, take what it leaves of
//! the processor.
//!
//! Each step is a process of its own, a copy of this program: so what it has started, its deadline (`bounds`) and its temporary folder
//! are its own. What a step of the first row says goes where this process says it. What one beside it says goes to a file, and is
//! printed whole when it ends, however it ends. One thread looks after all of them; when a step fails, it ends the others.
#![expect(clippy::disallowed_types, reason = "the thread of signals ends the steps; no lane")]

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::parent_id,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, nice};

use crate::{
    bounds::{self, LOOK},
    tables, temporary,
};

/// How long a step's process may take beyond the step's deadline: what `bounds` waits for there takes up to 60 s.
const OVERTIME: Duration = Duration::from_secs(90);
/// By how much what runs beside the first row is nicer than it: it gets a quarter of a core that both want. At 19 it would get a
/// seventieth, and not end by its deadline where something else keeps the cores busy.
const NICE: i32 = 5;

#[derive(Debug, Clone, Copy)]
pub struct Planned {
    pub name: &'static str,
    /// After how many seconds it is ended.
    pub seconds: u64,
    pub in_part: bool,
}

pub struct Plan<'a> {
    pub rows: &'a [Vec<Planned>],
    /// When all steps have to have ended.
    pub end: Option<Instant>,
    /// The folder for what steps beside the first row say.
    pub outputs: &'a Path,
    /// The process of a step that is ended after so long, and whether it runs beside the first row. It calls [`begin_step()`].
    pub process: &'a dyn Fn(&Planned, Duration, bool) -> Command,
}

#[derive(Debug, Clone)]
struct Known {
    name: &'static str,
    row: usize,
    pid: u32,
    began: Instant,
    /// Where what it says goes, if not where this process says it.
    output: Option<PathBuf>,
}

struct Running {
    known: Known,
    child: Child,
    limit: Duration,
}

/// What the thread of signals shares.
struct State {
    is_ending: bool,
    steps: Vec<Known>,
}

static STATE: Mutex<State> = Mutex::new(State { is_ending: false, steps: Vec::new() });

/// Runs the rows. When a step fails, the steps beside it are ended, too.
pub fn run(plan: &Plan<'_>) -> Result<()> {
    bounds::begin_with(ask_to_end)?;
    fs::create_dir_all(plan.outputs).with_context(|| format!("cannot make {}", plan.outputs.display()))?;
    let mut running = Vec::new();
    let outcome = go_on(plan, &mut running);
    if matches!(outcome, Ok(None)) {
        return Ok(());
    }
    cut_off(running);
    // Not where a signal has come meanwhile: its thread says what ran, and ends this process.
    drop(state());
    let Some((step, why)) = outcome? else { return Ok(()) };
    // A process that was killed has left it.
    let _ = temporary::remove_of(step.pid);
    step.show("failed");
    let place = step.output.map_or_else(String::new, |output| format!(" and in {}", output.display()));
    bail!("step {} failed: {why}; what it said is above{place}", step.name)
}

/// Begins the process of a step: it ends with the one that has started it, and one beside the first row has a lower priority.
pub fn begin_step(parent: u32, is_beside: bool) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot have this step end with who has started it")?;
    ensure!(parent_id() == parent, "who has started this step has ended");
    if is_beside {
        nice(NICE).context("cannot lower the priority of this step")?;
    }
    Ok(())
}

/// Starts the steps and waits for them. Returns the first one that fails, and why, while others may run; `None`: all have passed.
fn go_on(plan: &Plan<'_>, running: &mut Vec<Running>) -> Result<Option<(Known, String)>> {
    let mut rows: Vec<_> = plan.rows.iter().map(|row| row.iter()).collect();
    loop {
        for (row, steps) in rows.iter_mut().enumerate() {
            let is_free = running.iter().all(|step| step.known.row != row);
            if is_free && let Some(step) = steps.next() {
                running.push(start(plan, step, row)?);
            }
        }
        if running.is_empty() {
            return Ok(None);
        }
        let ended = running.iter_mut().enumerate().find_map(|(at, step)| Some((at, step.ended()?)));
        let Some((at, outcome)) = ended else {
            thread::sleep(LOOK);
            continue;
        };
        let Running { known, .. } = running.remove(at);
        match outcome {
            Ok(()) => {
                tables::end_step(known.name, "");
                if known.output.is_none() {
                    say(&format!("== step {} passed after {} s\n", known.name, known.began.elapsed().as_secs()));
                }
                known.show("passed");
            }
            Err(why) => {
                tables::end_step(known.name, ", failed");
                return Ok(Some((known, why)));
            }
        }
    }
}

fn start(plan: &Plan<'_>, step: &Planned, row: usize) -> Result<Running> {
    let name = step.name;
    let left = plan.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    let limit = left.min(Duration::from_secs(step.seconds));
    let mut process = (plan.process)(step, limit, row > 0);
    let output = (row > 0).then(|| plan.outputs.join(format!("{}.txt", name.replace(' ', "-"))));
    match &output {
        None => say(&format!("== step {name}, at most {} s\n", limit.as_secs())),
        Some(output) => {
            let place = output.display();
            say(&format!("== step {name} beside it, at most {} s; what it says is in {place}\n", limit.as_secs()));
            let file = File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
            let same = file.try_clone().with_context(|| format!("cannot write {} twice", output.display()))?;
            process.stdin(Stdio::null()).stdout(same).stderr(file);
        }
    }
    // Not released in between: the thread of signals knows of each process.
    let mut state = state();
    let child = process.spawn().with_context(|| format!("cannot start step {name}"))?;
    let known = Known { name, row, pid: child.id(), began: Instant::now(), output };
    state.steps.push(known.clone());
    drop(state);
    tables::begin_step(name, row);
    Ok(Running { known, child, limit })
}

/// Ends the steps that run, since another has failed, and all that they have started.
fn cut_off(running: Vec<Running>) {
    let steps: Vec<Known> = running.into_iter().map(|step| step.known).collect();
    end(&steps, "cut off, since another step failed,", "was cut off");
    steps.iter().for_each(|step| tables::end_step(step.name, ", cut off"));
    state().steps.clear();
}

/// Has the steps end when a signal ends this process: each asks what it has started.
fn ask_to_end() {
    let steps = {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_ending = true;
        state.steps.clone()
    };
    end(&steps, "a signal ends it", "was ended by a signal");
}

/// Asks steps to end, ends what does not, and shows what each has said.
fn end(steps: &[Known], why: &str, how: &str) {
    steps.iter().for_each(|step| step.end(why));
    bounds::left_after(bounds::ENDING);
    bounds::end_all();
    for step in steps {
        step.show(how);
        // What cannot be removed stays.
        let _ = temporary::remove_of(step.pid);
    }
}

/// The state. Once a signal ends this process, only the signal's thread goes on.
fn state() -> MutexGuard<'static, State> {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_ending {
        drop(state);
        loop {
            thread::park();
        }
    }
    state
}

impl Running {
    /// How it has ended, and why where it has not passed; `None` while it runs.
    fn ended(&mut self) -> Option<Result<(), String>> {
        let mut state = state();
        let outcome = match self.child.try_wait() {
            Ok(None) if self.known.began.elapsed() < self.limit.saturating_add(OVERTIME) => return None,
            Ok(None) => Err("it did not end by its deadline, nor did its xtask end it".to_owned()),
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(status.to_string()),
            Err(error) => Err(format!("its process is lost: {error}")),
        };
        state.steps.retain(|step| step.pid != self.known.pid);
        Some(outcome)
    }
}

impl Known {
    /// Asks its process to end, and says so.
    fn end(&self, why: &str) {
        let place = self.output.as_ref().map(|output| format!("; what it said is in {}", output.display()));
        let (seconds, place) = (self.began.elapsed().as_secs(), place.unwrap_or_default());
        say(&format!("step {}: {why} after {seconds} s{place}\n", self.name));
        bounds::signal(i32::try_from(self.pid).unwrap_or_default(), Signal::TERM);
    }

    /// Prints what it has said to its file.
    fn show(&self, how: &str) {
        let Some(output) = &self.output else { return };
        let said = fs::read(output).map(|said| String::from_utf8_lossy(&said).into_owned());
        let said = said.unwrap_or_else(|error| format!("cannot read {}: {error}\n", output.display()));
        let (name, seconds) = (self.name, self.began.elapsed().as_secs());
        say(&format!("== step {name} {how} after {seconds} s, and said:\n{said}== step {name} has said that\n"));
    }
}

/// Prints this in one piece, so that nothing of a step that runs gets in, as it may between the parts that `eprintln!` writes.
fn say(what: &str) {
    // Where nobody reads, nothing is to be done.
    let _ = io::stderr().write_all(what.as_bytes());
}

#[cfg(test)]
mod tests;
