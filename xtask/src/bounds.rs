//! A deadline for each step, and an end for every process that a step has started.
//!
//! A step starts cargo, which starts tests, which start servers, most of them in process groups of their own. So this process takes in
//! orphans (PR_SET_CHILD_SUBREAPER): whatever a step has started stays a descendant of this process, and is found by its parent.
#![expect(clippy::disallowed_types, reason = "the thread of signals says which step ran; no lane")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    process,
    sync::{
        Mutex, Once, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use procfs::process::Process;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

use crate::{tables, temporary};

/// How long processes have to end by themselves, after a step or after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(10);
/// How long those may take that have heard Ctrl-C themselves, before they are asked to end.
const HEARD: Duration = Duration::from_secs(2);
/// How long the process of a step has, once it is told to end: [`HEARD`], [`GRACE`], and a moment for itself.
pub const ENDING: Duration = Duration::from_secs(13);
/// How often it is looked whether they have.
pub const LOOK: Duration = Duration::from_millis(50);
const ENDED: i32 = 130;
/// How much of a command line is shown, in characters.
const SHOWN: usize = 200;
/// The step that runs, and since when.
static RUNNING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// Runs a step. At the deadline, ends all processes that it has started.
///
/// # Errors
/// The step's own; or that it did not end by the deadline, with the processes that ran then; or that processes were left when it ended,
/// with the tests that have started them: these are ended, too.
pub fn within(step: &str, limit: Duration, run: impl FnOnce() -> Result<()>) -> Result<()> {
    begin()?;
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some((step.to_owned(), Instant::now()));
    let (end, ended) = mpsc::channel::<()>();
    let (outcome, expired) = thread::scope(|scope| {
        let watch = scope.spawn(move || match ended.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => Some(expire(step, limit, &ended)),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        });
        let outcome = run();
        drop(end);
        (outcome, watch.join().expect("the watch does not panic"))
    });
    // After a deadline, too: what a step has started may ignore SIGTERM and outlive it.
    let left = listed(&left_after(GRACE));
    end_all();
    if let Some(running) = expired {
        bail!("it did not end within {} s; these processes ran:\n{running}", limit.as_secs());
    }
    outcome?;
    ensure!(left.is_empty(), "these processes were left when it ended:\n{left}");
    Ok(())
}

/// Takes in orphans; and ends, when it is ended itself (Ctrl-C, SIGTERM), all processes that it has started.
pub fn begin() -> Result<()> {
    begin_with(|| {
        say_what_ran();
        ask_to_end();
    })
}

/// The same with another way to ask processes to end. Only the first call of a process counts.
pub fn begin_with(ask: fn()) -> Result<()> {
    static BEGUN: Once = Once::new();
    let mut begun = Ok(());
    BEGUN.call_once(|| {
        begun = take_in_orphans().and_then(|()| {
            Ok(ctrlc::set_handler(move || {
                ask();
                end_all();
                exit(ENDED);
            })?)
        });
    });
    begun
}

fn exit(code: i32) -> ! {
    tables::print();
    // What cannot be removed stays.
    let _ = temporary::remove();
    process::exit(code)
}

/// Names the step and the tests that run, when this process is ended.
fn say_what_ran() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((step, since)) = running else { return };
    let tests: BTreeSet<String> = descendants().into_iter().filter_map(test_of).collect();
    let tests: String = tests.iter().map(|test| format!("\n  {test}")).collect();
    eprintln!("step {step}: a signal ends it after {} s; these tests ran:{tests}", since.elapsed().as_secs());
}

/// Ends what a step has started, and with it the step. Returns the processes that ran.
fn expire(step: &str, limit: Duration, ended: &mpsc::Receiver<()>) -> String {
    let processes = descendants();
    let (running, seconds) = (listed(&processes), limit.as_secs());
    eprintln!("step {step}: did not end within {seconds} s; these processes ran, and are ended now:\n{running}");
    processes.iter().for_each(|&pid| signal(pid, Signal::TERM));
    if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        end_all();
        if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("step {step}: xtask itself does not go on: it ends now");
            // What it has started since.
            end_all();
            exit(1);
        }
    }
    running
}

/// Lets the processes say how far they were: after Ctrl-C they have heard it, too; after SIGTERM they are asked.
fn ask_to_end() {
    left_after(HEARD).iter().for_each(|&pid| signal(pid, Signal::TERM));
    left_after(GRACE);
}

/// The processes that run after so long; none, as soon as none runs.
pub fn left_after(limit: Duration) -> Vec<i32> {
    until_none(limit, |_| {})
}

/// Kills all descendants, those too that are started meanwhile.
pub fn end_all() {
    until_none(GRACE, |pid| signal(pid, Signal::KILL));
}

/// Does this with each descendant until none runs, or so long; which are left.
fn until_none(limit: Duration, each: fn(i32)) -> Vec<i32> {
    let start = Instant::now();
    loop {
        let left = descendants();
        left.iter().copied().for_each(each);
        if left.is_empty() || start.elapsed() >= limit {
            return left;
        }
        // Orphans that have ended are zombies until someone waits for them. Nothing else waits: no step runs now.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        thread::sleep(LOOK);
    }
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // One that has ended meanwhile is no error.
        let _ = kill_process(pid, signal);
    }
}

/// A line per process: its id, command line, and the test that has started it.
fn listed(pids: &[i32]) -> String {
    pids.iter().map(|pid| format!("  {pid} {}\n", line(*pid))).collect()
}

fn take_in_orphans() -> Result<()> {
    // Any process means "yes".
    set_child_subreaper(Some(Pid::INIT)).context("cannot take in orphans")
}

/// The ids of all processes below this one that have not ended.
fn descendants() -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in procfs::process::all_processes().into_iter().flatten().flatten() {
        if let Ok(stat) = process.stat()
            && stat.state != 'Z'
        {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![i32::try_from(process::id()).unwrap_or_default()];
    while let Some(parent) = parents.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        parents.extend(&of_parent);
        found.extend(of_parent);
    }
    found
}

/// The command line of a process, and the test that has started it.
fn line(pid: i32) -> String {
    let Ok(process) = Process::new(pid) else { return "(has ended)".to_owned() };
    let whole = process.cmdline().unwrap_or_default().join(" ").replace('\n', " ");
    let line: String = whole.chars().take(SHOWN).collect();
    match test_of(pid) {
        Some(test) => format!("{line}  (of test {test})"),
        None => line,
    }
}

fn test_of(pid: i32) -> Option<String> {
    let env = Process::new(pid).ok()?.environ().ok()?;
    let of = |name: &str| Some(env.get(OsStr::new(name))?.to_string_lossy().into_owned());
    Some(format!("{} {}", of("NEXTEST_BINARY_ID")?, of("NEXTEST_TEST_NAME")?))
}
