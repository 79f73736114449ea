//! The slowest and the flaky tests of the last run, from the report that nextest writes.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell::workspace;

/// The profiles of .config/nextest.toml: that of a change, and that of what only `--extent everything` runs.
pub const PROFILES: &[&str] = &["default", "everything"];
const SLOWEST: usize = 20;
/// How much of a failure is shown, in bytes.
const FAILURE_BYTES: usize = 2_000;

#[derive(Debug, Deserialize)]
struct Report {
    #[serde(rename = "testsuite", default)]
    suites: Vec<Suite>,
}

#[derive(Debug, Deserialize)]
struct Suite {
    #[serde(rename = "testcase", default)]
    tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
struct Test {
    #[serde(rename = "@classname")]
    binary: String,
    #[serde(rename = "@name")]
    name: String,
    /// Seconds.
    #[serde(rename = "@time")]
    time: f64,
    /// Failures of a test that passed in the end.
    #[serde(rename = "flakyFailure", default)]
    flaky: Vec<Failure>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    /// Where and how it failed.
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(rename = "$text", default)]
    text: String,
}

/// The slowest tests of the last run with a profile, and the flaky ones with their first failure; why there are none, if no test has run.
pub fn slowest_and_flaky(profile: &str) -> String {
    match read(profile) {
        Ok(report) => said(profile, report),
        Err(error) => format!("no tests of profile {profile} to report: {error:#}"),
    }
}

/// The flaky tests of the last run with a profile; `None` if no test has run.
pub fn flaky(profile: &str) -> Option<BTreeSet<String>> {
    let tests = read(profile).ok()?.suites.into_iter().flat_map(|suite| suite.tests);
    let flaky = tests.filter(|test| !test.flaky.is_empty());
    Some(flaky.map(|Test { binary, name, .. }| format!("{binary} {name}")).collect())
}

/// Removes the report of the last run with a profile, so that it is not taken for that of the next.
pub fn forget(profile: &str) {
    // One that is not there is no error.
    let _ = fs::remove_file(place(profile));
}

/// Where nextest writes a report, whatever folder cargo builds into.
fn place(profile: &str) -> PathBuf {
    workspace().join("target/nextest").join(profile).join("junit.xml")
}

fn read(profile: &str) -> Result<Report> {
    let path = place(profile);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    quick_xml::de::from_str(&text).with_context(|| format!("{} is no report of tests", path.display()))
}

fn said(profile: &str, report: Report) -> String {
    let mut tests: Vec<Test> = report.suites.into_iter().flat_map(|suite| suite.tests).collect();
    tests.sort_by(|one, other| other.time.total_cmp(&one.time));
    let mut said = format!("the slowest of {} tests, profile {profile}:\n", tests.len());
    for Test { binary, name, time, .. } in tests.iter().take(SLOWEST) {
        let _ = writeln!(said, "{time:>8.1} s  {binary} {name}");
    }
    let flaky: Vec<&Test> = tests.iter().filter(|test| !test.flaky.is_empty()).collect();
    let _ = writeln!(said, "flaky tests (failed, then passed): {}", flaky.len());
    for Test { binary, name, flaky, .. } in flaky {
        let Failure { message, text } = &flaky[0];
        let end = (0..=text.len().min(FAILURE_BYTES)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let _ = writeln!(said, "FLAKY {binary} {name}: {message}\n{}", &text[..end]);
    }
    said
}
