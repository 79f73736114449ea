//! A temporary folder of its own for what a step starts: it has to be empty when the step ends.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    bounds::{self, GRACE, LOOK},
    setup, shell,
};

/// Has tests keep their folders: the variable of testkit's `Scratch`.
const KEEP: &str = "WEIR_TEST_KEEP";

/// The folder of a process, by its id. It is not in the workspace: the path of a socket may be no longer than 107 bytes.
fn folder_of(id: u32) -> PathBuf {
    std::env::temp_dir().join(format!("weir-step-{id}"))
}

/// Removes this process's folder, where there is one.
pub fn remove() -> Result<()> {
    remove_of(process::id())
}

/// Removes the folder of a process that was killed, and so could not.
pub fn remove_of(id: u32) -> Result<()> {
    setup::remove(&folder_of(id))
}

/// Runs a command, and all that it starts, with this folder as the temporary one; with the system's, where tests are told to keep theirs.
pub fn run(mut command: Command) -> Result<()> {
    if std::env::var_os(KEEP).is_some() {
        return shell::run(command);
    }
    // So that the folder goes, too, when this process is ended.
    bounds::begin()?;
    let folder = folder_of(process::id());
    remove()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    command.env("TMPDIR", &folder);
    if let Err(error) = shell::run(command) {
        // What it has left hides nothing of that, and is not waited for: the step may be at its deadline.
        let _ = remove();
        return Err(error);
    }
    let left = left_in(&folder);
    remove()?;
    let left = left?;
    ensure!(left.is_empty(), "these were left in the temporary folder: {}", left.join(", "));
    Ok(())
}

/// The names of what does not go.
fn left_in(folder: &Path) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let left: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        if left.is_empty() || start.elapsed() >= GRACE {
            return Ok(left);
        }
        thread::sleep(LOOK);
    }
}
