//! docs/metrics.md lists every metric of the code. `UPDATE=1 cargo test --test pure metrics` rewrites it.

use std::{fmt::Write as _, time::Duration};

use weir::metrics::{
    ActionLabel, BudgetLabel, BudgetTokenLabels, CapLabels, DecisionLabels, Metrics, NodeLabel, OfRouteLabel,
    OutcomeLabel, ReasonLabel, SegmentLabel, ServiceOutcomeLabels, SourceLabel, ThrottledLabels, TopicLabel,
    UndeliveredLabels, VersionLabels,
};
use weir_core::basis::time::Time;
use weir_worker::observer::{Observer as _, Stage};

use super::docs::{is_current, read};

const HEAD: &str = "# Metrics

`GET /metrics` returns the OpenMetrics text format, which Prometheus reads. A metric with labels appears with its first
value. Those of the process are reported on Linux. [operations.md](operations.md#what-to-watch) says which to alert on.

";

/// Metrics with one sample of each, so that all of them show.
fn all() -> Metrics {
    let metrics = Metrics::default();
    drop(metrics.decisions.get_or_create(&DecisionLabels { verdict: "v", reason: "r" }));
    drop(metrics.dead_letters.get_or_create(&ReasonLabel { reason: "r" }));
    drop(metrics.deferred_waiting.get_or_create(&TopicLabel { topic: "t".into() }));
    drop(metrics.cap_denials.get_or_create(&CapLabels { segment: "s".into(), cap: "c".into() }));
    drop(metrics.budget_tokens.get_or_create(&BudgetTokenLabels { budget: "b".into(), outcome: "o" }));
    drop(metrics.budget_left.get_or_create(&BudgetLabel { budget: "b".into() }));
    drop(metrics.ledger_calls.get_or_create(&OutcomeLabel { outcome: "o" }));
    drop(metrics.unavailable.get_or_create(&ActionLabel { action: "a" }));
    drop(metrics.redis_retries.get_or_create(&ReasonLabel { reason: "r" }));
    drop(metrics.degraded.get_or_create(&ReasonLabel { reason: "r" }));
    drop(metrics.refresh_failures.get_or_create(&SourceLabel { source: "s" }));
    drop(metrics.version_age.get_or_create(&SourceLabel { source: "s" }));
    drop(metrics.version.get_or_create(&VersionLabels { source: "s", version: "v".into() }));
    drop(metrics.segment_members.get_or_create(&SegmentLabel { segment: "s".into() }));
    drop(metrics.clock_skew.get_or_create(&NodeLabel { node: "n".into() }));
    let labels = ServiceOutcomeLabels { service: "s".into(), outcome: "o" };
    drop(metrics.service_admissions.get_or_create(&labels));
    let route = OfRouteLabel { route: "r".into() };
    drop(metrics.route_permits.get_or_create(&route));
    drop(metrics.route_throttled.get_or_create(&ThrottledLabels { route: "r".into(), why: "w" }));
    drop(metrics.route_lag.get_or_create(&route));
    drop(metrics.route_drain_rate.get_or_create(&route));
    drop(metrics.route_waiting.get_or_create(&route));
    drop(metrics.route_oldest_waiting.get_or_create(&route));
    drop(metrics.route_overdue.get_or_create(&route));
    drop(metrics.route_expected_wait.get_or_create(&route));
    drop(metrics.waiting.get_or_create(&route));
    drop(metrics.waiting_lane_ready.get_or_create(&route));
    drop(metrics.deleted_undecided.get_or_create(&TopicLabel { topic: "t".into() }));
    drop(metrics.retried.get_or_create(&route));
    drop(metrics.undelivered.get_or_create(&UndeliveredLabels { route: "r".into(), why: "w" }));
    metrics.stage(Stage::Poll, Duration::ZERO);
    metrics.set_lag(0, 0, None);
    metrics.note_lag_seconds(Time::MIN);
    metrics.http_request("/", 200, Duration::ZERO);
    metrics
}

/// The labels of a metric's first sample, without a histogram's own.
fn labels(text: &str, name: &str) -> Vec<String> {
    let sample = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    let Some((_, rest)) = sample.and_then(|sample| sample.split_once('{')) else { return Vec::new() };
    let pairs = rest.split_once('}').unwrap().0.split(',');
    pairs.map(|pair| pair.split_once('=').unwrap().0.to_owned()).filter(|label| label != "le").collect()
}

fn document(text: &str) -> (String, usize) {
    let mut rows = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    let mut count = 0;
    for help in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, meaning) = help.split_once(' ').unwrap();
        let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap();
        let shown = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        let labels: Vec<String> = labels(text, name).iter().map(|label| format!("`{label}`")).collect();
        writeln!(rows, "| `{shown}` | {kind} | {} | {meaning} |", labels.join(", ")).unwrap();
        // Of the process there are figures beside the table.
        count += usize::from(name.starts_with("weir_"));
    }
    (rows, count)
}

#[test]
fn the_documentation_lists_every_metric() {
    let (rows, count) = document(&all().render());
    // One line a metric in the code's table: none is left out above.
    let code = read("src/metrics.rs");
    let table = code.split_once("\nmetrics! {\n").unwrap().1.split_once("\n}").unwrap().0;
    assert_eq!(count, table.lines().count(), "this test's `all` leaves one out");
    is_current("docs/metrics.md", |_| format!("{HEAD}{rows}"));
}
