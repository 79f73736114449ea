//! What weir logs in a run, as lines of its trace.

use std::io;

use tracing::subscriber::DefaultGuard;

use super::env::Env;

struct Lines(Env);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.note(|| format!("weir: {}", String::from_utf8_lossy(bytes).trim_end()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Notes what is logged on this thread until the guard is dropped; `None` where the run keeps no trace.
pub fn keep(env: &Env) -> Option<DefaultGuard> {
    let log = || tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    let lines = env.clone();
    env.is_traced().then(|| tracing::subscriber::set_default(log().with_writer(move || Lines(lines.clone())).finish()))
}
