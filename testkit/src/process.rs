//! Commands that are run to their end within a deadline, and child processes that end with their owner.
//!
//! [`output`] runs a command, and [`run_beside_parent`] one that takes as long as it does.
//! [`Guarded`] keeps a process and ends it, whatever happens to its owner: each runs under a small
//! `sh` in a process group of its own. The shell watches a pipe whose other end only we hold: when
//! it closes - because the test process ended, or was killed with SIGKILL - the shell kills the server.
//! PR_SET_PDEATHSIG would not do: it follows the thread that spawned, and test threads
//! end early. The group is its own so that Ctrl-C reaches us first and servers end in our order.
#![expect(clippy::disallowed_types, reason = "tests share their processes; no lane")]

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::FileExt,
        process::{CommandExt, ExitStatusExt, parent_id},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{Mutex, OnceLock, PoisonError, mpsc},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::{
    SLOW_INTERVAL,
    wait::{wait_for, wait_for_every},
};

/// How long a process that is frozen may take to stand still.
const FROZEN_WITHIN: Duration = Duration::from_secs(10);

/// Says the server's pid on stdout, waits for it, passes its status on, and leaves no process and no zombie behind.
/// `$1` is the log. Descriptor 3, because a shell without job control gives background commands /dev/null. HUP,
/// because the kernel sends it to a group that has lost its owner while one of its processes is frozen. ALRM ends the
/// server's own children, such as the browser of a WebDriver server: a shell can ignore it, and no program that tests
/// start handles it.
const GUARD: &str = r#"
log=$1; shift
exec 3<&0
"$@" 3<&- >>"$log" 2>&1 &
pid=$!
trap '' HUP ALRM
{ read -r never <&3; kill -9 "$pid"; } >/dev/null &
watcher=$!
echo "$pid"
exec >&-
wait "$pid"
status=$?
kill -s ALRM 0
kill -9 "$watcher"
wait "$watcher"
exit "$status"
"#;

/// How much of a log is shown when something failed.
const TAIL_BYTES: usize = 4_000;

pub const COMMAND_DEADLINE: Duration = Duration::from_secs(120);

/// How long a guard may take to start a process. Measured: 2 ms.
const GUARD_DEADLINE: Duration = Duration::from_secs(30);

/// How long a process may take to end after SIGKILL: one in an uninterruptible sleep does not end.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// Runs a command to its end, without input: its status and what it printed.
///
/// # Errors
/// When it cannot be started, or still runs after [`COMMAND_DEADLINE`]: then it is killed.
pub fn output(command: &mut Command) -> Result<Output> {
    output_within(COMMAND_DEADLINE, command)
}

pub fn output_within(deadline: Duration, command: &mut Command) -> Result<Output> {
    run(deadline, command.stdin(Stdio::null()), None)
}

/// What a command that succeeds prints on stdout.
///
/// # Errors
/// Also when it fails: with the end of what it printed.
pub fn printed(command: &mut Command) -> Result<String> {
    printed_within(COMMAND_DEADLINE, command)
}

pub fn printed_within(deadline: Duration, command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = output_within(deadline, command)?;
    ensure!(status.success(), "{command:?} ended with {status}: {}", tail(&[&stdout[..], &stderr].concat()));
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The same as [`output`] for a command that reads this input.
pub fn output_given(input: impl Into<Vec<u8>>, command: &mut Command) -> Result<Output> {
    run(COMMAND_DEADLINE, command.stdin(Stdio::piped()), Some(input.into()))
}

fn run(deadline: Duration, command: &mut Command, input: Option<Vec<u8>>) -> Result<Output> {
    // Files and not pipes: a process that the command leaves behind would keep a pipe open.
    let [stdout, stderr] = [tempfile::tempfile()?, tempfile::tempfile()?];
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    #[expect(clippy::disallowed_methods, reason = "this is the wait with a deadline")]
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A command that ends before it has read all is no failure of the writer.
        std::thread::spawn(move || pipe.write_all(&input));
    }
    let status = wait_ended(&mut child, deadline);
    if status.is_none() {
        child.kill()?;
        wait_ended(&mut child, KILL_DEADLINE);
    }
    let [stdout, stderr] = [written(&stdout)?, written(&stderr)?];
    let Some(status) = status else {
        let printed = [stdout, stderr].concat();
        bail!("{command:?} was killed: it still ran after {deadline:?}; it printed: {}", tail(&printed));
    };
    Ok(Output { status, stdout, stderr })
}

/// Runs a command for as long as it takes, with the streams of this process, and ends it when the process that has started this one
/// has ended, however it ended: nobody waits for the command any more. `parent` is that process, as this one has found it at its own start.
pub fn run_beside_parent(parent: u32, command: &mut Command) -> Result<ExitStatus> {
    #[expect(clippy::disallowed_methods, reason = "it ends with whoever waits for it")]
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let ended = wait_for_every(SLOW_INTERVAL, Duration::MAX, || {
        let status = child.try_wait().ok().flatten();
        (status.is_some() || parent_id() != parent).then_some(status)
    });
    if let Some(status) = ended.flatten() {
        return Ok(status);
    }
    send(i32::try_from(child.id())?, Signal::TERM);
    if wait_ended(&mut child, KILL_DEADLINE).is_none() {
        child.kill()?;
        wait_ended(&mut child, KILL_DEADLINE);
    }
    bail!("{command:?} was ended, because the process that started this one has ended")
}

/// Waits until a child has ended; `None` when it still runs at the deadline.
pub(crate) fn wait_ended(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    wait_for(deadline, || child.try_wait().ok().flatten())
}

/// What was written to a file. Its offset is the writer's, too, so it does not move.
fn written(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn tail(printed: &[u8]) -> String {
    let end = String::from_utf8_lossy(&printed[printed.len().saturating_sub(TAIL_BYTES)..]);
    if end.trim().is_empty() { "(nothing)".to_owned() } else { format!("\n{end}") }
}

/// The first line of what a guard says; `None` if it does not come in time.
fn first_line(said: ChildStdout) -> Option<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // Nobody listens any more after the deadline.
        let _ = BufReader::new(said).read_line(&mut line).map(|_| tell.send(line));
    });
    told.recv_timeout(GUARD_DEADLINE).ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Whether every thread of a process is stopped; also where that is not to be seen.
fn is_frozen(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state is behind the name, in which anything may stand.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    // Locked, so that whoever shares it finds out whether it has ended.
    guard: Mutex<Child>,
    pid: i32,
    log: PathBuf,
    // Held for its closing alone.
    _leash: ChildStdin,
    exit: OnceLock<Exit>,
}

impl Guarded {
    /// Starts `command` (its program, arguments, environment and folder count; its streams do not), with stdout and
    /// stderr appended to the file `log`. `name` is for messages.
    ///
    /// # Errors
    /// When the shell cannot be started. A program that cannot be started exits with code 126 or 127.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self> {
        let mut guard = Command::new("/bin/sh");
        guard.args([OsStr::new("-c"), OsStr::new(GUARD), OsStr::new("sh"), log.as_os_str()]);
        guard.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guard.env(key, value),
                None => guard.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            guard.current_dir(folder);
        }
        guard.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        #[expect(clippy::disallowed_methods, reason = "this is the guard")]
        let mut guard = guard.spawn().with_context(|| format!("cannot start /bin/sh to guard {name}"))?;
        let leash = guard.stdin.take().context("the guard has no stdin")?;
        let said = guard.stdout.take().context("the guard has no stdout")?;
        let Some(line) = first_line(said) else {
            guard.kill()?;
            bail!("the guard of {name} said nothing in {GUARD_DEADLINE:?}");
        };
        let pid = line.trim().parse().with_context(|| format!("the guard of {name} said {line:?}, not a pid"))?;
        let (name, log, exit) = (name.to_owned(), log.to_owned(), OnceLock::new());
        Ok(Self { name, guard: Mutex::new(guard), pid, log, _leash: leash, exit })
    }

    /// The process id of the server itself.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to it, and waits until it is frozen, if that is what it does: a test whose process goes on fails. One that has ended
    /// already is left alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.exit().is_some() {
            return;
        }
        send(self.pid, signal);
        if signal == Signal::STOP {
            // Its threads stop one after the other, and answer until then.
            let stands = wait_for(FROZEN_WITHIN, || (self.exit().is_some() || is_frozen(self.pid)).then_some(()));
            assert!(stands.is_some(), "{} (process {}) is not frozen after {FROZEN_WITHIN:?}", self.name, self.pid);
        }
    }

    /// How it ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        if self.exit.get().is_none() {
            let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
            let status = guard.try_wait().ok().flatten()?;
            self.exit.get_or_init(|| told(status));
        }
        self.exit.get().copied()
    }

    pub fn wait_exit(&mut self, deadline: Duration) -> Result<Exit> {
        match wait_for(deadline, || self.exit()) {
            Some(exit) => Ok(exit),
            None => bail!("{} still runs after {deadline:?}; its log ends: {}", self.name, self.log_tail()),
        }
    }

    pub fn wait_ready(&mut self, deadline: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let answer = wait_for(deadline, || match self.exit() {
            Some(exit) => Some(Err(exit)),
            None => ready().then_some(Ok(())),
        });
        let why = match answer {
            Some(Ok(())) => return Ok(()),
            Some(Err(exit)) => format!("ended at its start ({exit:?})"),
            None => format!("is not ready after {deadline:?}"),
        };
        bail!("{} {why}; its log ends: {}", self.name, self.log_tail())
    }

    pub fn kill(&mut self) {
        if self.exit().is_some() {
            return;
        }
        send(self.pid, Signal::KILL);
        if wait_for(KILL_DEADLINE, || self.exit()).is_none() {
            complain(&format!("{} (process {}) still runs {KILL_DEADLINE:?} after SIGKILL", self.name, self.pid));
            self.exit.get_or_init(|| Exit::Signal(Signal::KILL.as_raw()));
        }
    }

    /// All that it has said so far, on stdout and stderr.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn log_tail(&self) -> String {
        tail(&std::fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a guard's status says of its server.
fn told(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        // A shell reports a child ended by signal n as 128 + n.
        (Some(code), _) if code > 128 => Exit::Signal(code - 128),
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
    }
}

/// Says what could not be cleaned up; the test goes on.
#[expect(clippy::print_stderr, reason = "a drop can report a problem in no other way")]
pub(crate) fn complain(problem: &str) {
    eprintln!("testkit: {problem}");
}

/// Callers have just seen the guard alive, which holds the process, or its number as a zombie, until the moment before it ends itself.
pub(crate) fn send(pid: i32, signal: Signal) {
    // One that has ended meanwhile is no error.
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
}

pub fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| File::open(file).is_ok());
    found.with_context(|| format!("{name} is not installed: run `cargo xtask setup`"))
}
