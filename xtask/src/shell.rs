//! Running commands, and saying so.

use std::{
    borrow::BorrowMut,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    /// Optimised, for measurements.
    Release,
    Dist,
}

/// A file or folder in cargo's target folder.
pub fn target(path: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace().join(target).join(path)
}

/// Where cargo puts a binary.
pub fn built(profile: Profile, binary: &str) -> PathBuf {
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
        Profile::Dist => "dist",
    };
    target(folder).join(binary)
}

/// A file that CI keeps for itself or for whoever reads it, whatever folder cargo builds into; its folder for an empty name.
pub fn of_ci(name: &str) -> PathBuf {
    workspace().join("target/ci").join(name)
}

pub fn command<S: AsRef<std::ffi::OsStr>>(program: impl AsRef<std::ffi::OsStr>, args: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace());
    command
}

/// Prints a command, runs it, and prints how long it took.
pub fn run(mut command: impl BorrowMut<Command>) -> Result<()> {
    let command: &mut Command = command.borrow_mut();
    let said = say(command);
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{said}`"))?;
    ensure!(status.success(), "`{said}` failed: {status}");
    eprintln!("  took {:.0?}", start.elapsed());
    Ok(())
}

/// Prints a command, and returns what it prints.
pub fn say(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let said = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("$ {said}");
    said
}

/// The output of a command on stdout and stderr; `None` if it cannot be started or fails.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = command(program, args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Prints a command, runs it, and gives what it printed on stdout.
pub fn stdout(mut command: impl BorrowMut<Command>) -> Result<Vec<u8>> {
    let command: &mut Command = command.borrow_mut();
    let said = say(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{said}`"))?;
    ensure!(output.status.success(), "`{said}` failed: {}", output.status);
    Ok(output.stdout)
}

/// The same where what it prints on stderr is told only when it fails; without spaces around it.
pub fn printed(mut command: impl BorrowMut<Command>) -> Result<String> {
    let command: &mut Command = command.borrow_mut();
    let said = say(command);
    let output = command.output().with_context(|| format!("cannot start `{said}`"))?;
    let err = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{said}` failed: {}: {err}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Does this with each, as many at once as there are cores.
pub fn at_once<I: Copy + Sync, T: Send>(items: &[I], each: impl Fn(I) -> Result<T> + Sync) -> Result<Vec<T>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share =
        |core: usize| -> Result<Vec<T>> { items.iter().copied().skip(core).step_by(cores).map(&each).collect() };
    let shares: Vec<Result<Vec<T>>> = thread::scope(|scope| {
        let share = &share;
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || share(core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that runs commands does not panic")).collect()
    });
    Ok(shares.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}
