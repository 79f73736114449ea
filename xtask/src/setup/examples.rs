//! The toolchains and packages of examples/, in .weir: its tests need no network.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{fetch_python, fill, text_of};
use crate::shell::{self, command, workspace};

/// Installs what is missing but the jars, and builds the Go packages once, so that the tests compile the examples alone.
pub(super) fn fetch() -> Result<()> {
    fetch_python("testkit/toolchains.txt", "toolchains")?;
    fetch_python("examples/python/requirements.txt", "examples/python")?;
    fill(&text_of("examples/node/package-lock.json")?, ("examples/node", "list"), npm)?;
    fill(&text_of("examples/go/go.sum")?, ("examples/go", "list"), go)
}

fn toolchain(program: &str) -> PathBuf {
    workspace().join(".weir/toolchains/bin").join(program)
}

fn npm(folder: &Path) -> Result<()> {
    for file in ["package.json", "package-lock.json"] {
        let from = workspace().join("examples/node").join(file);
        fs::copy(&from, folder.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    shell::run(command(toolchain("npm"), &args).current_dir(folder))
}

fn go(folder: &Path) -> Result<()> {
    // The second builds what the tests of the examples need beside them.
    for args in [["build", "./..."].as_slice(), &["test", "-run", "none", "./..."]] {
        let mut go = command(toolchain("go"), args);
        go.current_dir(workspace().join("examples/go")).env("GOMODCACHE", folder.join("modules"));
        shell::run(go.env("GOFLAGS", "-modcacherw -buildvcs=false").env("GOTOOLCHAIN", "local"))?;
    }
    Ok(())
}
