//! weir as a process: what it prints, where, and with which exit code.

use std::{path::Path, process::Command};

use serde_json::Value;
use testkit::process::output;

use crate::support::{POLICY, SMALLEST, weir};

/// The exit code, stdout and stderr of weir with these arguments and variables, in this folder.
pub fn run(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let output = output(Command::new(weir()).args(args).current_dir(folder).envs(env.iter().copied())).unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap_or_else(|| panic!("a signal ended it: {out}{err}")), out, err)
}

/// Writes `weir.toml`, with these brokers and further lines, and the policy that it names.
pub fn configure(folder: &Path, brokers: &str, more: &str) {
    let servers = SMALLEST.replace("b:9092", brokers).replace("//r:6379", "//127.0.0.1:1");
    std::fs::write(folder.join("weir.toml"), format!("{servers}{more}")).unwrap();
    std::fs::write(folder.join("policy.toml"), POLICY).unwrap();
}

/// What `weir check --offline` finds of this subject: the kinds of its findings, and the messages.
pub fn found(folder: &Path, env: &[(&str, &str)], subject: &str) -> Vec<(String, String)> {
    let (_, out, err) = run(folder, &["check", "--config", "weir.toml", "--offline", "--output", "json"], env);
    let lines: Vec<Value> = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let of_subject = lines.iter().filter(|line| line["what"] == subject);
    of_subject.map(|line| (text(line, "finding"), text(line, "message"))).collect()
}

/// What is wrong with the settings.
pub fn invalid(folder: &Path) -> Vec<String> {
    let found = found(folder, &[], "configuration").into_iter();
    found.filter(|(finding, _)| finding == "invalid").map(|(_, message)| message).collect()
}
