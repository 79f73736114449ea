//! The toolchains and packages of examples/, in .weir: its tests need no network.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use super::{fetch_python, remove};
use crate::shell::{self, command, workspace};

/// Installs what is missing but the jars, and builds the Go packages once, so that the tests compile the examples alone.
pub(super) fn fetch() -> Result<()> {
    fetch_python("testkit/toolchains.txt", "toolchains")?;
    fetch_python("examples/python/requirements.txt", "examples/python")?;
    fill("examples/node/package-lock.json", "examples/node", npm)?;
    fill("examples/go/go.sum", "examples/go", go)
}

fn toolchain(program: &str) -> PathBuf {
    workspace().join(".weir/toolchains/bin").join(program)
}

/// Fills a folder in .weir, unless it was filled for the same list. The list is written last, so that half an installation
/// never counts as complete.
fn fill(list: &str, folder: &str, fill: fn(PathBuf) -> Result<()>) -> Result<()> {
    let folder = workspace().join(".weir").join(folder);
    let wanted = fs::read(workspace().join(list)).with_context(|| format!("cannot read {list}"))?;
    if fs::read(folder.join("list")).is_ok_and(|had| had == wanted) {
        return Ok(());
    }
    remove(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fill(folder.clone())?;
    fs::write(folder.join("list"), wanted).with_context(|| format!("cannot write to {}", folder.display()))
}

fn npm(folder: PathBuf) -> Result<()> {
    for file in ["package.json", "package-lock.json"] {
        let from = workspace().join("examples/node").join(file);
        fs::copy(&from, folder.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let mut npm = command(toolchain("npm"), &["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    npm.current_dir(folder);
    shell::run(npm)
}

fn go(folder: PathBuf) -> Result<()> {
    // The second builds what the tests of the examples need beside them.
    for args in [["build", "./..."].as_slice(), &["test", "-run", "none", "./..."]] {
        let mut go = command(toolchain("go"), args);
        go.current_dir(workspace().join("examples/go")).env("GOMODCACHE", folder.join("modules"));
        go.env("GOFLAGS", "-modcacherw -buildvcs=false").env("GOTOOLCHAIN", "local");
        shell::run(go)?;
    }
    Ok(())
}
