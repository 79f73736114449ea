//! `deploy`: checks the chart and the compose file with the tools of those who read them.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    setup::deploy::{KUBERNETES, fetch, place},
    shell::{self, command},
};

const CHART: &str = "deploy/helm/weir";
/// Values in the chart's ci/, and how many resources they make.
const VALUES: [(&str, u64); 3] = [("small", 6), ("full", 9), ("large", 7)];
/// Values that the chart must refuse, on top of ci/full.yaml, and words of the reason.
const REFUSED: [(&[&str], &str); 8] = [
    (&["--set", "config="], "config is empty"),
    (&["--set", "config=kafka"], "config is not TOML"),
    (&["--set", "config=kafka.instance=\"weir-0\""], "config sets kafka.instance: leave it out"),
    (&["--set", "config=worker.drain=\"90s\""], "set drainSeconds"),
    (&["--set", "config=http.drain=\"90s\""], "set httpDrainSeconds"),
    (&["--set", "keda.minReplicas=0"], "minimum"),
    (&["--set", "replicaCount=3"], "replicaCount"),
    (&["--set", "env[0].name=WEIR__REDIS__USERS,env[0].value=1000000"], "/env/0/value"),
];
/// What ci/full.yaml makes of a kind: lines that it must have, one after the other.
const PROMISED: [(&str, &[&str]); 6] = [
    (
        "StatefulSet",
        &[
            "podManagementPolicy: Parallel",
            "terminationGracePeriodSeconds: 85",
            "runAsNonRoot: true",
            "runAsUser: 10001",
            "fieldPath: metadata.name",
            "startupProbe:",
            "path: /livez",
            "livenessProbe:",
            "path: /livez",
            "readinessProbe:",
            "path: /readyz",
            "readOnlyRootFilesystem: true",
            "path: \"secrets/kafka-password\"",
        ],
    ),
    ("PodDisruptionBudget", &["maxUnavailable: 1"]),
    ("NetworkPolicy", &["policyTypes: [Ingress, Egress]"]),
    ("ServiceMonitor", &["path: /metrics"]),
    ("ServiceAccount", &["eks.amazonaws.com/role-arn:"]),
    // The lag of deferred and waiting intents is no reason for more instances.
    ("ScaledObject", &["minReplicaCount: 2", "consumerGroup: \"caps\"", "topic: \"send-intents\"", "lagThreshold:"]),
];

/// What ci/large.yaml makes of a kind with a value set: its numbers, without an exponent.
const LARGE: [(&str, &str, &[&str]); 2] = [
    (
        "keda.enabled=true",
        "ScaledObject",
        &["minReplicaCount: 1000000", "maxReplicaCount: 2000000", "lagThreshold: \"10000000\""],
    ),
    (
        "keda.enabled=false",
        "StatefulSet",
        &[
            "replicas: 1000000",
            "maxUnavailable: 3000000",
            "value: \"270000000\"",
            "memory: 1073741824",
            "memory: 536870912",
        ],
    ),
];

/// Lints and renders the chart, compares the result with the schemas of Kubernetes, and reads the compose file.
///
/// # Errors
/// When a tool cannot be installed, or finds something.
pub fn run() -> Result<()> {
    fetch()?;
    for (name, resources) in VALUES {
        let values = format!("{CHART}/ci/{name}.yaml");
        shell::run(command(place("bin/helm"), &["lint", "--strict", CHART, "-f", &values]))?;
        let manifests = printed(helm_template(&values, &[]))?;
        KUBERNETES.iter().try_for_each(|version| conforms(&manifests, version, resources))?;
        if name == "full" {
            PROMISED.iter().try_for_each(|(kind, lines)| promises(&manifests, kind, lines))?;
        }
    }
    for (set, kind, lines) in LARGE {
        let manifests = printed(helm_template(&format!("{CHART}/ci/large.yaml"), &["--set", set]))?;
        promises(&manifests, kind, lines)?;
    }
    for (set, reason) in REFUSED {
        let output = helm_template(&format!("{CHART}/ci/full.yaml"), set).output().context("cannot start helm")?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "the chart accepts {set:?}");
        ensure!(err.contains(reason), "the chart refuses {set:?} without saying {reason:?}: {err}");
    }
    // It validates the file, with the defaults of its variables.
    printed(command(place("bin/cmd"), &["docker-compose.yml"])).map(drop)
}

/// The resource of a kind has these texts, in this order.
fn promises(manifests: &str, kind: &str, texts: &[&str]) -> Result<()> {
    let is_of_kind = |manifest: &&str| manifest.lines().any(|line| line == format!("kind: {kind}"));
    let manifest = manifests.split("\n---\n").find(is_of_kind).with_context(|| format!("there is no {kind}"))?;
    let mut rest = manifest;
    for text in texts {
        (_, rest) = rest.split_once(text).with_context(|| format!("the {kind} lacks {text:?}: {manifest}"))?;
    }
    Ok(())
}

fn helm_template(values: &str, set: &[&str]) -> Command {
    let mut template = command(place("bin/helm"), &["template", "weir", CHART, "-f", values]);
    template.args(set);
    template
}

fn printed(mut command: Command) -> Result<String> {
    let said = shell::say(&command);
    let output = command.output().with_context(|| format!("cannot start `{said}`"))?;
    let err = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{said}` failed: {}: {err}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("`{said}` printed no UTF-8"))
}

/// All resources have a schema in this version of Kubernetes, and follow it.
fn conforms(manifests: &str, version: &str, resources: u64) -> Result<()> {
    let mut kubeconform = command(place("bin/kubeconform"), &["-strict", "-summary", "-output", "json"]);
    kubeconform.args(["-kubernetes-version", version]);
    for schemas in [
        "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json",
        "custom/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json",
    ] {
        kubeconform.arg("-schema-location").arg(place(schemas));
    }
    let said = shell::say(&kubeconform);
    let mut child = kubeconform
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{said}`"))?;
    child
        .stdin
        .take()
        .context("it has an input")?
        .write_all(manifests.as_bytes())
        .context("cannot write to kubeconform")?;
    let output = child.wait_with_output().with_context(|| format!("cannot wait for `{said}`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).with_context(|| format!("`{said}` printed no JSON: {text}"))?;
    ensure!(
        output.status.success() && report["summary"]["valid"] == resources,
        "not all {resources} resources are valid in Kubernetes {version}: {report:#}"
    );
    Ok(())
}
