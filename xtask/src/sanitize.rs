//! `sanitize`: weir under AddressSanitizer, for its few lines of `unsafe` (`crates/kafka/src/native.rs`).

use anyhow::{Context, Result};

use crate::{
    servers,
    shell::{self, command, output, workspace},
};

/// Its own target folder: it shares no artefact with the ordinary build.
const FOLDER: &str = "target/sanitize";
/// The tests that pass records of every shape through a worker, in several batches and with rewinds.
const TESTS: [&str; 4] = ["--test", "worker", "contract::", "end_to_end::"];

/// Builds weir with AddressSanitizer and runs the tests that start it with this binary. librdkafka is not instrumented,
/// but its allocations are watched, so that what weir reads of them after their end is found: such a worker ends by a signal and says where.
pub fn run() -> Result<()> {
    let version = output("rustc", &["-vV"]).context("rustc does not run")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut build = command("cargo", &["build", "--locked", "-p", "weir", "--bin", "weir", "--target", host]);
    // Sanitizers are a nightly option; the flag lets this build alone use them with the stable compiler.
    build.args(["--target-dir", FOLDER]).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    shell::run(build)?;
    let binary = workspace().join(FOLDER).join(host).join("debug/weir");
    let env = [
        ("WEIR_TEST_BINARY", binary.as_os_str()),
        // weir exits without exit handlers, so memory that lives until then is not a leak.
        ("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1".as_ref()),
    ];
    servers::test_with(&env, &TESTS.map(str::to_owned))
}
