//! A worker's HTTP answers; each request ends at its deadline.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{http, wait_for, worker::Worker};

use super::DEADLINE;

/// The worker's address; waits until it listens, and fails at once where it has ended before.
pub fn address(worker: &Worker) -> String {
    let found = wait_for(DEADLINE, || {
        let address = worker.address().map(str::to_owned);
        if address.is_none() {
            assert_runs(worker);
        }
        address
    });
    found.unwrap_or_else(|| panic!("the worker does not listen: {}", worker.log()))
}

/// Status and body.
pub fn get(worker: &Worker, path: &str) -> (u16, String) {
    http::get(&format!("http://{}{path}", address(worker))).unwrap()
}

/// The JSON that answers a request; its status has to be 200.
#[track_caller]
pub fn get_json(worker: &Worker, path: &str) -> Value {
    let (status, body) = get(worker, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Status and body of a request with a body of JSON.
pub fn send(worker: &Worker, method: &str, path: &str, json: &Value) -> (u16, String) {
    http::send(method, &format!("http://{}{path}", address(worker)), json).unwrap()
}

/// The sum of a metric's samples with labels that contain `labels`; `None` without samples.
pub fn metric(worker: &Worker, name: &str, labels: &str) -> Option<f64> {
    let (_, text) = get(worker, "/metrics");
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, with) = series.split_once('{').unwrap_or((series, ""));
        (found == name && with.contains(labels)).then(|| value.parse::<f64>().unwrap())
    });
    samples.reduce(|sum, value| sum + value)
}

fn assert_runs(worker: &Worker) {
    assert_eq!(worker.exit(), None, "the worker has ended: {}", worker.log());
}

/// Waits until `/readyz` answers so; fails at once where the worker has ended.
pub fn wait_ready(worker: &Worker) {
    testkit::wait_until(DEADLINE, "the worker is ready", || {
        assert_runs(worker);
        get(worker, "/readyz").0 == 200
    });
}

/// The degraded parts that `GET /v1/status` lists, with their messages.
pub fn degraded(worker: &Worker) -> Vec<(String, Value)> {
    let status = get_json(worker, "/v1/status");
    let all = status["degraded"].as_array().unwrap();
    all.iter().map(|one| (one["what"].as_str().unwrap().to_owned(), one.clone())).collect()
}

/// Waits until a worker is ready and nothing is degraded.
pub fn wait_whole(worker: &Worker) {
    wait_ready(worker);
    testkit::wait_until(DEADLINE, "nothing is degraded", || degraded(worker).is_empty());
}

/// Waits until this is degraded, returns its entry, and checks that the worker is still ready.
pub fn wait_degraded(worker: &Worker, what: &str) -> Value {
    let find = || degraded(worker).into_iter().find(|(found, _)| found == what);
    let (_, entry) = wait_for(DEADLINE, find).unwrap_or_else(|| panic!("{what} is not degraded: {}", worker.log()));
    assert_eq!(get(worker, "/readyz").0, 200, "what all instances share makes none of them unready: {entry}");
    entry
}

/// Waits until a version of `segments` or `policy` is in force.
pub fn wait_version(worker: &Worker, source: &str, version: &str) {
    let labels = format!("source=\"{source}\",version=\"{version}\"");
    let what = format!("{source} {version} is in force");
    testkit::wait_until(DEADLINE, &what, || metric(worker, "weir_version_info", &labels) == Some(1.0));
}

/// The metrics that `/metrics` describes: name, without the suffixes of samples, and type.
pub fn described(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    text.lines().filter_map(line).collect()
}
