//! A disk so small that it can be filled.
//!
//! A tmpfs in a mount namespace of its own, which a process of ours keeps open: it disappears with that process, however
//! that ends, and nobody else sees it. Making one takes the right to mount (root).

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::process::{Guarded, program};

const MOUNT_DEADLINE: Duration = Duration::from_secs(10);
const CHUNK_BYTES: usize = 64 * 1024;

/// Mounts at `$1`, of `$2` MiB, says so, and stays.
const KEEPER: &str = r#"mount -t tmpfs -o "size=$2m" tmpfs "$1" && echo mounted && exec sleep infinity"#;

/// A small disk over a folder, for the processes that are started on it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
    keeper: Guarded,
}

impl SmallDisk {
    /// A disk of so many MiB over an empty folder. `log` gets the output of mounting.
    ///
    /// # Errors
    /// When we may not mount: this needs root.
    pub fn over(folder: &Path, mib: u32, log: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut keeper = Command::new(program("unshare")?);
        keeper.args(["--mount", "--propagation", "private", "/bin/sh", "-c", KEEPER, "sh"]);
        keeper.arg(folder).arg(mib.to_string());
        let mut keeper = Guarded::spawn("a small disk", &keeper, log)?;
        let mounted = || std::fs::read_to_string(log).is_ok_and(|said| said.contains("mounted"));
        keeper.wait_ready(MOUNT_DEADLINE, mounted).context("a small disk needs the right to mount: run it as root")?;
        Ok(Self { folder: folder.to_owned(), keeper })
    }

    /// The same command, run where the disk is seen.
    ///
    /// # Errors
    /// When there is no nsenter.
    pub fn command(&self, command: &Command) -> Result<Command> {
        let mut on_disk = Command::new(program("nsenter")?);
        on_disk.args(["--target", &self.keeper.pid().to_string(), "--mount", "--"]);
        on_disk.arg(command.get_program()).args(command.get_args());
        Ok(on_disk)
    }

    /// Fills what is left of it.
    ///
    /// # Errors
    /// When writing fails for another reason than a full disk.
    pub fn fill(&self) -> Result<()> {
        let mut ballast = std::fs::File::create(self.ballast())?;
        loop {
            match ballast.write_all(&[0; CHUNK_BYTES]) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => bail!("the disk cannot be filled: {error}"),
            }
        }
    }

    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).context("the disk was not filled")
    }

    /// As we see it from outside.
    fn ballast(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.pid()));
        root.join(self.folder.strip_prefix("/").unwrap_or(&self.folder)).join("ballast")
    }
}
