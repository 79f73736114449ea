//! The dashboard and the alerts in deploy/: they use metrics and labels that exist, and each alert says what to do and is tested.

use std::collections::BTreeSet;

use serde_json::Value;
use weir::limits::Degraded;

use super::docs::{anchors, read};

const ALERTS: &str = "deploy/prometheus/alerts.yml";
const TESTS: &str = "deploy/prometheus/alerts.test.yml";
const DASHBOARD: &str = "deploy/grafana/weir.json";
/// Labels that Prometheus adds, or that a histogram has.
const OTHER_LABELS: [&str; 3] = ["job", "instance", "le"];
/// Metrics that are not on the dashboard, and why.
const NOT_SHOWN: [(&str, &str); 2] = [
    ("process_virtual_memory_bytes", "reserved addresses say nothing of memory that is used; resident memory does"),
    ("process_threads", "the settings set their number, and it does not change"),
];

/// The series and the labels of docs/metrics.md.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut series, mut labels) = (BTreeSet::new(), BTreeSet::from(OTHER_LABELS.map(str::to_owned)));
    let page = read("docs/metrics.md");
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        labels.extend(cells[3].split(", ").map(|label| label.trim_matches('`').to_owned()));
        if cells[2] == "histogram" {
            series.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        } else {
            series.insert(name.to_owned());
        }
    }
    (series, labels)
}

/// The expressions of the dashboard, those of its variables included.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(!panel["title"].as_str().unwrap().is_empty());
        let targets: Vec<String> =
            panel["targets"].as_array().into_iter().flatten().map(|target| text(&target["expr"]).unwrap()).collect();
        assert_eq!(targets.is_empty(), panel["type"] == "row", "{}", panel["title"]);
        expressions.extend(targets);
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    expressions.extend(variables.iter().filter_map(|variable| text(&variable["query"]["query"])));
    expressions
}

/// The values of a key in the alerts, one per line.
fn values(key: &str) -> Vec<String> {
    let alerts = read(ALERTS);
    let value =
        |line: &str| Some(line.trim().trim_start_matches("- ").strip_prefix(key)?.strip_prefix(": ")?.to_owned());
    alerts.lines().filter_map(value).collect()
}

/// The words of an expression that are not in quotes.
fn words(expression: &str) -> Vec<&str> {
    let unquoted = expression.split('"').step_by(2);
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    unquoted.flat_map(|part| part.split(move |sign| !is_word(sign))).collect()
}

/// The labels that an expression selects, groups or joins by.
fn labels(expression: &str) -> Vec<&str> {
    let inside = |open: &'static str, close: char| {
        expression.split(open).skip(1).map(move |rest| rest.split(close).next().unwrap())
    };
    let selected = inside("{", '}').flat_map(|matchers| {
        // What is in quotes is a value.
        let unquoted = matchers.split('"').step_by(2);
        unquoted.map(|matcher| matcher.trim_matches([',', ' ', '=', '!', '~'])).filter(|label| !label.is_empty())
    });
    let grouped = inside("by (", ')').chain(inside("on (", ')')).flat_map(|list| list.split(", "));
    selected.chain(grouped).collect()
}

#[test]
fn the_dashboard_and_the_alerts_use_metrics_and_labels_that_exist() {
    let (series, known_labels) = documented();
    let (dashboard, alerts) = (dashboard(), values("expr"));
    assert!(dashboard.len() > 50 && alerts.len() > 15, "{} {}", dashboard.len(), alerts.len());
    for expression in dashboard.iter().chain(&alerts) {
        let is_metric = |word: &&str| word.starts_with("weir_") || word.starts_with("process_");
        let used: Vec<&str> = words(expression).into_iter().filter(is_metric).collect();
        assert!(!used.is_empty(), "no metric in {expression}");
        let unknown: Vec<&str> = used.into_iter().filter(|name| !series.contains(*name)).collect();
        assert!(unknown.is_empty(), "docs/metrics.md has no {unknown:?}: {expression}");
        let unknown: Vec<&str> =
            labels(expression).into_iter().filter(|label| !known_labels.contains(*label)).collect();
        assert!(unknown.is_empty(), "no metric has the labels {unknown:?}: {expression}");
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let dashboard = dashboard();
    let shown: BTreeSet<&str> = dashboard.iter().flat_map(|expression| words(expression)).collect();
    let page = read("docs/metrics.md");
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let name = row.split('`').nth(1).unwrap();
        let parts = ["", "_bucket", "_sum", "_count"].map(|part| format!("{name}{part}"));
        let is_shown = parts.iter().any(|part| shown.contains(part.as_str()));
        let left_out = NOT_SHOWN.iter().any(|(metric, _)| *metric == name);
        assert!(is_shown != left_out, "{name}: put it on {DASHBOARD}, or into NOT_SHOWN with the reason, not both");
    }
}

#[test]
fn everything_that_may_be_degraded_has_a_row() {
    let page = read("docs/http.md");
    let (_, rows) = page.split_once("\n| `what` | meaning |\n").unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    let mut words: Vec<&str> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    words.sort_unstable();
    let mut all = Degraded::ALL.map(Degraded::as_str);
    all.sort_unstable();
    assert_eq!(words, all);
}

#[test]
fn whoever_reads_of_a_degraded_route_finds_each_of_its_causes() {
    let texts = [
        (ALERTS, "- alert: WeirRouteClosed\n", "- alert: "),
        ("docs/http.md", "\n| `route` | ", "\n"),
        ("docs/delivery.md", "`/v1/status` (`route`: ", ")"),
    ];
    for (path, begin, end) in texts {
        let page = read(path);
        let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("{path} lacks {begin:?}"));
        let text = rest.split(end).next().unwrap();
        let causes =
            ["known", "Redis does not answer", "another process has the name", "are behind", "have waited for"];
        for cause in causes {
            assert!(text.contains(cause), "{path} lacks {cause:?}: {text}");
        }
    }
}

#[test]
fn each_alert_says_what_it_means_and_what_to_do_and_is_tested() {
    let (names, tests) = (values("alert"), read(TESTS));
    for name in &names {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{TESTS} has no test of {name}");
    }
    for key in ["expr", "for", "labels", "summary", "action"] {
        assert_eq!(values(key).len(), names.len(), "each alert has {key}");
    }
    let runbooks = values("runbook");
    assert_eq!(runbooks.len(), names.len());
    for runbook in runbooks {
        let (page, anchor) = runbook.split_once('#').unwrap();
        assert!(anchors(&read(page)).contains(anchor), "{runbook} leads nowhere");
    }
}
