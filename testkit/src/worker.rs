//! The built `weir` binary as a process that tests end, freeze and kill.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    process::{Exit, Guarded, Signal},
    scratch::Scratch,
};

/// A running `weir`. Dropped while a test panics, it prints the end of its log.
#[derive(Debug)]
pub struct Worker {
    // Before `scratch`: the process ends before its folder goes.
    process: Guarded,
    scratch: Scratch,
    /// Where it answers HTTP, once it has said so.
    address: OnceLock<String>,
}

impl Worker {
    /// Starts `weir run` with this configuration (TOML, written to a file of its own). `binary` is
    /// `env!("CARGO_BIN_EXE_weir")` in the tests of weir.
    pub fn run(binary: impl AsRef<Path>, config: &str) -> Result<Self> {
        Self::run_with(binary, config, &[])
    }

    pub fn run_with(binary: impl AsRef<Path>, config: &str, env: &[(&str, &str)]) -> Result<Self> {
        Self::start(binary, config, |config| vec!["run".into(), "--config".into(), config.into()], env)
    }

    /// Starts `weir` with arguments that are told the configuration's path, and with environment variables.
    pub fn start(
        binary: impl AsRef<Path>,
        config: &str,
        args: impl FnOnce(PathBuf) -> Vec<std::ffi::OsString>,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let scratch = Scratch::new("worker")?;
        let file = scratch.join("weir.toml");
        std::fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = Command::new(binary.as_ref());
        command.args(args(file)).envs(env.iter().copied()).env("RUST_BACKTRACE", "1");
        let process = Guarded::spawn("weir", &command, &scratch.join("weir.log"))?;
        Ok(Self { process, scratch, address: OnceLock::new() })
    }

    /// The folder of its configuration and log; relative paths in the configuration mean files in it.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Asks it to drain and end (SIGTERM).
    pub fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Presses Ctrl-C (SIGINT).
    pub fn interrupt(&mut self) {
        self.process.signal(Signal::INT);
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Freezes it (SIGSTOP).
    pub fn freeze(&mut self) {
        self.process.signal(Signal::STOP);
    }

    /// Thaws it (SIGCONT).
    pub fn thaw(&mut self) {
        self.process.signal(Signal::CONT);
    }

    /// How it ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.process.exit()
    }

    pub fn wait_exit(&mut self, deadline: Duration) -> Result<Exit> {
        self.process.wait_exit(deadline)
    }

    /// Where it answers HTTP; `None` until its log says so.
    pub fn address(&self) -> Option<&str> {
        if self.address.get().is_none() {
            let log = self.log();
            let line = log.lines().find(|line| line.contains("\"HTTP is up\""))?;
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            // Whoever looks at the same time finds the same.
            let _ = self.address.set(line["address"].as_str()?.to_owned());
        }
        self.address.get().map(String::as_str)
    }

    /// All that it has said so far, on stdout and stderr.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failed test shows what its worker said")]
            {
                eprintln!("weir ({}) said: {}", self.process.pid(), self.process.log_tail());
            }
        }
    }
}
