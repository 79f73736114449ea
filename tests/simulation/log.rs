//! What weir logs in a run, as lines of its trace.

use std::io;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

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

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        Lines(self.0.clone())
    }
}

/// Notes what is logged on this thread until the guard is dropped; `None` where the run keeps no trace.
pub fn keep(env: &Env) -> Option<DefaultGuard> {
    let log = || tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    let subscriber = |env: &Env| log().with_writer(Lines(env.clone())).finish();
    env.is_traced().then(|| tracing::subscriber::set_default(subscriber(env)))
}
