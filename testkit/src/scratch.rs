//! A temporary folder that is deleted with its owner, even when the owner is killed or is a static.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::process::{complain, wait_ended};

const DELETE_DEADLINE: Duration = Duration::from_secs(30);

/// Removes `$1` when its stdin closes. Servers may still write while they are being killed, so it tries for 5 s.
const JANITOR: &str = r#"
trap '' HUP
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$1" 2>/dev/null && break
  sleep 0.5
done
"#;

/// A temporary folder. Set `WEIR_TEST_KEEP=1` to keep it and the logs in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    janitor: Option<(Child, ChildStdin)>,
}

impl Scratch {
    /// An empty folder whose name begins with `weir-` and `name`.
    pub fn new(name: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("weir-{name}-")).tempdir();
        let path = folder.context("cannot make a temporary folder")?.keep();
        if std::env::var_os("WEIR_TEST_KEEP").is_some() {
            return Ok(Self { path, janitor: None });
        }
        let mut janitor = Command::new("/bin/sh");
        janitor.args(["-c", JANITOR, "sh"]).arg(&path).process_group(0);
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        #[expect(clippy::disallowed_methods, reason = "it ends when its stdin closes")]
        let mut janitor = janitor.spawn().context("cannot start /bin/sh")?;
        let leash = janitor.stdin.take().context("the janitor has no stdin")?;
        Ok(Self { path, janitor: Some((janitor, leash)) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

#[track_caller]
pub fn folder() -> Scratch {
    Scratch::new("test").unwrap_or_else(|error| panic!("{error:#}"))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((mut janitor, leash)) = self.janitor.take() {
            drop(leash);
            if wait_ended(&mut janitor, DELETE_DEADLINE).is_none() {
                complain(&format!("{} is not deleted after {DELETE_DEADLINE:?}", self.path.display()));
            }
        }
    }
}
