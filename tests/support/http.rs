//! What a worker says over HTTP.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{wait_for, worker::Worker};

use super::DEADLINE;

/// Where the worker listens; waits until it does.
pub fn address(worker: &Worker) -> String {
    let find = || {
        let log = worker.log();
        let line = log.lines().find(|line| line.contains("\"HTTP is up\""))?;
        let line: Value = serde_json::from_str(line).ok()?;
        Some(line["address"].as_str()?.to_owned())
    };
    wait_for(DEADLINE, find).unwrap_or_else(|| panic!("the worker does not listen: {}", worker.log()))
}

/// Status and body.
pub fn get(worker: &Worker, path: &str) -> (u16, String) {
    let url = format!("http://{}{path}", address(worker));
    let mut response = ureq::get(&url).config().http_status_as_error(false).build().call().unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// The sum of all samples of a metric whose labels contain `labels`; `None` where there is none.
pub fn metric(worker: &Worker, name: &str, labels: &str) -> Option<f64> {
    let (_, text) = get(worker, "/metrics");
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, with) = series.split_once('{').unwrap_or((series, ""));
        (found == name && with.contains(labels)).then(|| value.parse::<f64>().unwrap())
    });
    samples.reduce(|sum, value| sum + value)
}

/// Waits until `/readyz` says so.
pub fn wait_ready(worker: &Worker) {
    testkit::wait_until(DEADLINE, "the worker is ready", || get(worker, "/readyz").0 == 200);
}

/// Waits until a version of `segments` or `policy` is in force.
pub fn wait_version(worker: &Worker, source: &str, version: &str) {
    let labels = format!("source=\"{source}\",version=\"{version}\"");
    let what = format!("{source} {version} is in force");
    testkit::wait_until(DEADLINE, &what, || metric(worker, "weir_version_info", &labels) == Some(1.0));
}

/// What `/metrics` describes: name, as its samples have it without suffixes, and type.
pub fn described(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    text.lines().filter_map(line).collect()
}
