//! Checks deploy/prometheus with promtool: the alerts' syntax, their tests, and the expressions of the dashboard.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    setup,
    shell::{self, command, workspace},
};

pub fn run() -> Result<()> {
    let promtool = setup::promtool()?;
    let check = |verb: &str, file: &Path| shell::run(command(&promtool, &[verb, "rules"]).arg(file));
    let folder = workspace().join("deploy/prometheus");
    check("check", &folder.join("alerts.yml"))?;
    check("test", &folder.join("alerts.test.yml"))?;
    let expressions = shell::target("dashboard.yml");
    fs::write(&expressions, as_rules("deploy/grafana/weir.json")?)
        .with_context(|| format!("cannot write {}", expressions.display()))?;
    check("check", &expressions)
}

/// The expressions of a dashboard as a file of rules, which is YAML and so may be JSON.
fn as_rules(dashboard: &str) -> Result<String> {
    let text = fs::read_to_string(workspace().join(dashboard)).with_context(|| format!("cannot read {dashboard}"))?;
    let dashboard: Value = serde_json::from_str(&text).with_context(|| format!("{dashboard} is not JSON"))?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.filter_map(|target| target["expr"].as_str());
    let rule = |(number, text): (usize, &str)| {
        // Grafana puts in a time here.
        json!({"record": format!("panel:expression:{number}"), "expr": text.replace("$__rate_interval", "5m")})
    };
    let rules: Vec<Value> = expressions.enumerate().map(rule).collect();
    ensure!(!rules.is_empty(), "the dashboard has no expressions");
    Ok(json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string())
}
