//! `deploy`: checks the chart and the compose file with the tools of those who read them.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    setup::{
        deploy::{KUBERNETES, fetch, place},
        twice,
    },
    shell::{self, command, printed, workspace},
};

const CHART: &str = "deploy/helm/weir";
/// Values in the chart's ci/, and how many resources they make.
const VALUES: [(&str, u64); 5] = [("small", 7), ("full", 12), ("existing", 5), ("openshift", 6), ("large", 8)];
/// Values that the chart must refuse where they are set, on top of ci/full.yaml, and words of the reason.
const REFUSED: [(&str, &str); 36] = [
    ("config=", "config is empty"),
    ("config=kafka", "config is not TOML"),
    ("config=kafka.instance=\"weir-0\"", "config sets kafka.instance: leave it out, set instancePrefix"),
    ("config=worker.drain=\"90s\"", "set drainSeconds"),
    ("config=http.drain=\"90s\"", "set httpDrainSeconds"),
    ("config=http.listen=\"[::]:8080\"", "set listenAddress"),
    ("listenAddress=::", "listenAddress"),
    // Secrets, as in <https://github.com/goharbor/harbor-helm/issues/2218> and <https://github.com/gomods/athens/issues/1666>.
    ("config=redis.password=\"x\"", "config sets redis.password"),
    ("config=schemas.password=\"x\"", "config sets schemas.password"),
    ("config=password=\"x\"", "config sets \"password\" in a place where weir has no such setting"),
    ("config=redis.tls.password=\"x\"", "config sets \"password\" in a place"),
    ("config=kafka.property.\"sasl.password\"=\"x\"", "config sets \"sasl.password\" in a place"),
    ("config=redis.nodes=[\"redis://:x@redis-1:6379\"]", "config has a URL with a password"),
    // Not encoded, so that weir refuses it, too, where it is in the ConfigMap already.
    ("config=redis.nodes=[\"redis://:x/y@redis-1:6379\"]", "config has a URL with a password"),
    ("config=redis.nodes=[\"redis://us:a b@redis-1:6379\"]", "config has a URL with a password"),
    ("config=redis.nodes=['REDISS://us:a\"b@redis-1:6379']", "config has a URL with a password"),
    ("config=redis.nodes=\"redis://a:6379\\,redis://:a\\,b@c:6379\"", "config has a URL with a password"),
    ("config=schemas.url=\"https://us:a/b@schemas\"", "config has a URL with a password"),
    ("config=s3.secret_access_key=\"x\"", "config sets s3.secret_access_key"),
    ("config=kafka.properties.\"sasl.password\"=\"x\"", "config has a secret in [kafka.properties]"),
    ("config=kafka.properties.\"SASL.PASSWORD\"=\"x\"", "config has a secret in [kafka.properties]"),
    ("config=kafka.properties.\"sasl.jaas.config\"=\"x\"", "config has a secret in [kafka.properties]"),
    ("env[0].name=WEIR__REDIS__PASSWORD,env[0].value=x", "env shows the secret in WEIR__REDIS__PASSWORD"),
    ("env[0].name=WEIR__REDIS__NODES,env[0].value=redis://:a b@c", "env shows the secret in WEIR__REDIS__NODES"),
    ("env[0].name=AWS_SECRET_ACCESS_KEY,env[0].value=x", "env shows the secret in AWS_SECRET_ACCESS_KEY"),
    (
        "env[0].name=AWS_CONTAINER_AUTHORIZATION_TOKEN,env[0].value=x",
        "env shows the secret in AWS_CONTAINER_AUTHORIZATION_TOKEN",
    ),
    // As in <https://github.com/TykTechnologies/tyk-charts/issues/363> and <https://github.com/openobserve/openobserve/issues/13923>.
    (
        "env[0].name=OTEL_EXPORTER_OTLP_HEADERS,env[0].value=authorization=Bearer x",
        "env shows the secret in OTEL_EXPORTER_OTLP_HEADERS",
    ),
    (
        "env[0].name=OTEL_EXPORTER_OTLP_TRACES_HEADERS,env[0].value=api-key=x",
        "env shows the secret in OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    ),
    ("env[0].name=HTTPS_PROXY,env[0].value=http://u:p@proxy:3128", "env shows the secret in HTTPS_PROXY"),
    ("env[0].name=https_proxy,env[0].value=u:p@proxy:3128", "env shows the secret in https_proxy"),
    ("keda.metadata.password=x", "keda.metadata shows the secret password"),
    ("existingConfigMap=weir-config", "config and existingConfigMap are both set"),
    ("image.digest=latest", "digest"),
    ("keda.minReplicas=0", "minimum"),
    ("replicaCount=3", "replicaCount"),
    // Others: the_chart_refuses_numbers_and_truth_values_where_text_is_wanted (tests/pure/deploy.rs), by the same schema.
    ("image.tag=20161216", "/image/tag"),
];
/// What these values make of a kind: a resource that has these texts between ` | `, in this order.
const PROMISED: [(&str, &str, &str); 15] = [
    // With IPv6 addresses alone, probes would not reach 0.0.0.0 (<https://github.com/kagent-dev/kagent/issues/1642>,
    // <https://github.com/newrelic/helm-charts/issues/2169>).
    (
        "full",
        "StatefulSet",
        "serviceName: weir-headless | podManagementPolicy: Parallel | priorityClassName: \"messaging\" | \
         terminationGracePeriodSeconds: 115 | fsGroup: 10001 | runAsGroup: 10001 | runAsNonRoot: true | \
         runAsUser: 10001 | initContainers: | image: \"registry.example/weir:1.2.3\" | \
         fieldPath: metadata.name | value: \"east.caps.$(POD_NAME)\" | value: \"[::]:8080\" | startupProbe: | \
         failureThreshold: 120 | path: /livez | livenessProbe: | path: /livez | readinessProbe: | path: /readyz | lifecycle: | \
         allowPrivilegeEscalation: false | - ALL | readOnlyRootFilesystem: true | name: proxy | \
         path: \"secrets/kafka-password\"",
    ),
    ("full", "PodDisruptionBudget", "maxUnavailable: 1"),
    // Prometheus is let in (<https://github.com/kubescape/helm-charts/issues/761>), and looks at one of the two services.
    // OpenShift's DNS is reached (<https://github.com/pegasystems/pega-helm-charts/issues/503>, <https://github.com/grafana/loki/pull/21650>).
    (
        "full",
        "NetworkPolicy",
        "policyTypes: [Ingress, Egress] | app.kubernetes.io/name: prometheus | {protocol: UDP, port: 53} | {protocol: UDP, port: 5353} | \
         {protocol: TCP, port: 5353} | port: 9093",
    ),
    // A healthy installation of the same name must not hide one that stands (<https://github.com/thaum-xyz/ankhmorpork/pull/1279>).
    (
        "full",
        "ServiceMonitor",
        "app.kubernetes.io/component: http | path: /metrics | {targetLabel: job, replacement: \"default/weir\"}",
    ),
    ("full", "Service", "app.kubernetes.io/component: http | port: 8080"),
    ("full", "Service", "name: weir-headless | clusterIP: None"),
    (
        "full",
        "PrometheusRule",
        "release: prometheus | alert: WeirAbsent | absent(weir_build_info{job=\"default/weir\"})",
    ),
    ("full", "ConfigMap", "grafana_folder: messaging | weir.json:"),
    ("full", "ServiceAccount", "eks.amazonaws.com/role-arn:"),
    // The lag of deferred and waiting intents is no reason for more instances. KEDA takes a blank behind a comma for a part of the host's name, as
    // in <https://github.com/kroxylicious/kroxylicious/pull/3541>.
    (
        "full",
        "ScaledObject",
        "minReplicaCount: 2 | bootstrapServers: \"kafka-1:9093,kafka-2:9093\" | consumerGroup: \"caps\" | topic: \"send-intents\" | \
         lagThreshold:",
    ),
    // Of one release name, instances in two namespaces have different names: they would fence each other, as in
    // <https://github.com/xtdb/xtdb/issues/5447>.
    ("small", "StatefulSet", "terminationGracePeriodSeconds: 35 | value: \"default.weir.$(POD_NAME)\""),
    ("small", "NetworkPolicy", "podSelector: {}"),
    (
        "existing",
        "StatefulSet",
        "serviceAccountName: \"messaging\" | registry.example/weir@sha256:0123456789abcdef | \
         configMap: {name: \"weir-config\"}",
    ),
    ("existing", "Service", "clusterIP: None"),
    ("openshift", "StatefulSet", "runAsNonRoot: true | type: RuntimeDefault | readOnlyRootFilesystem: true"),
];
/// What these values keep out. OpenShift refuses users and groups that are not its own, as in
/// <https://github.com/goharbor/harbor-helm/issues/874> and <https://github.com/FairwindsOps/charts/issues/270>.
const ABSENT: [(&str, &str); 3] = [("openshift", "runAsUser"), ("openshift", "runAsGroup"), ("openshift", "fsGroup")];

/// What ci/large.yaml makes of a kind with a value set: its numbers, without an exponent.
const LARGE: [(&str, &str, &str); 2] = [
    (
        "keda.enabled=true",
        "ScaledObject",
        "minReplicaCount: 1000000 | maxReplicaCount: 2000000 | lagThreshold: \"10000000\"",
    ),
    (
        "keda.enabled=false",
        "StatefulSet",
        "replicas: 1000000 | maxUnavailable: 3000000 | fsGroup: 1000620000 | runAsUser: 1000620000 | \
         value: \"270000000\" | memory: 1073741824 | memory: 536870912",
    ),
];

/// Lints and renders the chart, compares the result with the schemas of Kubernetes, and reads the compose file.
pub fn run() -> Result<()> {
    twice(fetch)?;
    for (name, resources) in VALUES {
        let values = format!("{CHART}/ci/{name}.yaml");
        shell::run(command(place("bin/helm"), &["lint", "--strict", CHART, "-f", &values]))?;
        let manifests = printed(helm_template(&values, &[]))?;
        KUBERNETES.iter().try_for_each(|version| conforms(&manifests, version, resources))?;
        let mut promised = PROMISED.iter().filter(|(of, ..)| *of == name);
        promised.try_for_each(|(_, kind, lines)| promises(&manifests, kind, lines))?;
        let present = ABSENT.iter().find(|(of, text)| *of == name && manifests.contains(text));
        ensure!(present.is_none(), "these values keep {present:?} out: {manifests}");
    }
    for (set, kind, lines) in LARGE {
        let manifests = printed(helm_template(&format!("{CHART}/ci/large.yaml"), &["--set", set]))?;
        promises(&manifests, kind, lines)?;
    }
    has_defaults_where_values_lack()?;
    has_labels_where_its_version_has_a_digest()?;
    for (set, reason) in REFUSED {
        let output =
            helm_template(&format!("{CHART}/ci/full.yaml"), &["--set", set]).output().context("cannot start helm")?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "the chart accepts {set:?}");
        ensure!(err.contains(reason), "the chart refuses {set:?} without saying {reason:?}: {err}");
    }
    // It validates the file, with the defaults of its variables.
    printed(command(place("bin/cmd"), &["docker-compose.yml"])).map(drop)
}

/// A resource of a kind has these texts, in this order.
fn promises(manifests: &str, kind: &str, texts: &str) -> Result<()> {
    let is_of_kind = |manifest: &&str| manifest.lines().any(|line| line == format!("kind: {kind}"));
    let has_all = |manifest: &&str| {
        let behind = |rest: &str, text: &str| rest.split_once(text).map(|(_, behind)| behind.to_owned());
        texts.split(" | ").try_fold((*manifest).to_owned(), |rest, text| behind(&rest, text)).is_some()
    };
    let mut of_kind = manifests.split("\n---\n").filter(is_of_kind).peekable();
    ensure!(of_kind.peek().is_some(), "there is no {kind}");
    ensure!(of_kind.any(|manifest| has_all(&manifest)), "no {kind} has {texts:?} in this order: {manifests}");
    Ok(())
}

/// `helm upgrade --reuse-values` of a release that an older chart has made has no value that came later. `null` takes a default away as well.
fn has_defaults_where_values_lack() -> Result<()> {
    let defaults =
        fs::read_to_string(workspace().join(CHART).join("values.yaml")).context("cannot read values.yaml")?;
    let begins = defaults.lines().filter(|line| line.starts_with(|sign: char| sign.is_ascii_alphabetic()));
    let names = begins.filter_map(|line| line.split_once(':')).map(|(name, _)| name).filter(|name| *name != "config");
    let all: Vec<String> = names.map(|name| format!("{name}=null")).collect();
    let inner = "serviceMonitor.from=null,dashboard.labels=null,image.pullPolicy=null,keda.lagThreshold=null";
    for (name, lacking) in [("small", all.join(",")), ("full", inner.to_owned())] {
        let values = format!("{CHART}/ci/{name}.yaml");
        let expected = printed(helm_template(&values, &[]))?;
        let found = printed(helm_template(&values, &["--set", &lacking]))?;
        ensure!(found == expected, "with {lacking} the chart makes of {name} {found}, and by default {expected}");
    }
    Ok(())
}

/// Flux adds a digest to a chart's version, and a label has no `+`: <https://github.com/stakater/Reloader/pull/686> and
/// <https://github.com/prometheus-community/helm-charts/pull/7195>.
fn has_labels_where_its_version_has_a_digest() -> Result<()> {
    let (version, folder) = ("0.1.0+570022cfeb6c", shell::target("chart").display().to_string());
    let versions = ["--version", version, "--app-version", version, "--destination", &folder];
    printed(command(place("bin/helm"), &[&["package", CHART][..], &versions].concat()))?;
    let (chart, values) = (format!("{folder}/weir-{version}.tgz"), format!("{CHART}/ci/existing.yaml"));
    let manifests = printed(command(place("bin/helm"), &["template", "weir", &chart, "-f", &values]))?;
    ensure!(!manifests.contains(version), "Kubernetes refuses the labels of this: {manifests}");
    promises(&manifests, "StatefulSet", "helm.sh/chart: weir-0.1.0_570022cfeb6c")
}

fn helm_template(values: &str, set: &[&str]) -> Command {
    command(place("bin/helm"), &[&["template", "weir", CHART, "-f", values][..], set].concat())
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
    let file = shell::target("manifests.yaml");
    fs::write(&file, manifests).with_context(|| format!("cannot write {}", file.display()))?;
    kubeconform.arg(&file).stderr(Stdio::inherit());
    let said = shell::say(&kubeconform);
    let output = kubeconform.output().with_context(|| format!("cannot start `{said}`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).with_context(|| format!("`{said}` printed no JSON: {text}"))?;
    let are_valid = output.status.success() && report["summary"]["valid"] == resources;
    ensure!(are_valid, "not all {resources} resources are valid in Kubernetes {version}: {report:#}");
    Ok(())
}
