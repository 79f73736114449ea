//! What people copy is right: the compose file, the chart, the image, the README's figures.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use weir::config::{
    self, Settings,
    keys::{Otherwise, SETTINGS},
};

use serde_json::Value;

use super::docs::{read, repository};
use crate::support::{contains_all, is_by_schema};

/// What stands behind each `before` up to the next white space or quote.
fn behind<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    let ends = |sign: char| sign.is_whitespace() || sign == '\'' || sign == '"';
    text.split(before).skip(1).map(|rest| rest.split(ends).next().unwrap()).collect()
}

#[test]
fn the_token_of_the_compose_files_example_is_the_one_that_it_sets() {
    let compose = read("docker-compose.yml");
    let set = behind(&compose, "WEIR__HTTP__TOKEN: ${WEIR_STACK_TOKEN:-");
    let shown = behind(&compose, "Authorization: Bearer ");
    let is_set = |token: &&str| set[0].strip_suffix('}') == Some(token);
    assert!(set.len() == 1 && !shown.is_empty() && shown.iter().all(is_set), "{set:?} {shown:?}");
}

#[test]
fn what_compose_creates_is_kept_for_as_long_as_the_history() {
    let compose = read("docker-compose.yml");
    let approved = compose.lines().find(|line| line.contains("create --topic send-approved")).unwrap();
    let kept: i64 = behind(approved, "retention.ms=")[0].parse().unwrap();
    let default = SETTINGS.iter().find(|setting| setting.key == "redis.history").unwrap();
    let Otherwise::Is(history) = default.default else { panic!("it has a default") };
    let history = humantime::parse_duration(history).unwrap().as_millis();
    assert!(kept >= i64::try_from(history).unwrap(), "{kept} ms for a history of {history} ms");
}

#[test]
fn the_images_user_is_a_number_and_not_root() {
    let image = read("Dockerfile");
    let user = behind(&image, "\nUSER ")[0];
    let ids: Vec<u32> = user.split(':').map(|id| id.parse().unwrap_or_else(|_| panic!("USER {user}"))).collect();
    assert!(!ids.is_empty() && !ids.contains(&0), "USER {user}");
}

/// The files of a folder and below, and their texts.
fn texts(folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(repository(folder)).unwrap();
    let names = entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap()));
    let below = |name: String| match repository(&name).is_dir() {
        true => texts(&name),
        false => vec![(name.clone(), read(&name))],
    };
    names.flat_map(below).collect()
}

#[test]
fn every_variable_in_what_people_copy_is_a_setting() {
    let is_known = |variable: &str| {
        SETTINGS.iter().any(|setting| match setting.form.has_entries() {
            true => variable.starts_with(&format!("{}__", setting.variable())),
            false => variable == setting.variable(),
        })
    };
    let others = ["docker-compose.yml", "Dockerfile"].map(|name| (name.to_owned(), read(name)));
    let (mut seen, mut unknown) = (0, Vec::new());
    for (name, text) in texts("deploy").into_iter().chain(others) {
        for (at, _) in text.match_indices("WEIR__") {
            let rest = &text[at..];
            let end = rest
                .find(|sign: char| !sign.is_ascii_uppercase() && !sign.is_ascii_digit() && sign != '_')
                .unwrap_or(rest.len());
            seen += 1;
            if &rest[..end] != "WEIR__" && !is_known(&rest[..end]) {
                unknown.push(format!("{name}: {}", &rest[..end]));
            }
        }
    }
    assert!(seen >= 7 && unknown.is_empty(), "{seen} variables; these are no settings: {unknown:?}");
}

/// Reads a configuration in a folder that has the files of secrets.
fn settings(text: &str, env: &[(&str, &str)]) -> Settings {
    let folder = testkit::folder();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    for secret in ["kafka-password", "redis-password", "http-token"] {
        fs::write(folder.path().join("secrets").join(secret), "secret\n").unwrap();
    }
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    config::parse("weir.toml", text, folder.path(), env).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The lines of a block scalar of YAML, `name: |`.
fn block(yaml: &str, name: &str) -> String {
    let (_, rest) = yaml.split_once(&format!("\n{name}: |\n")).unwrap();
    let lines = rest.lines().map_while(|line| line.strip_prefix("  "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_configurations_that_the_chart_is_checked_with_are_valid_with_the_variables_it_sets() {
    let env = [
        ("WEIR__KAFKA__INSTANCE", "weir-0"),
        ("WEIR__WORKER__DRAIN", "20s"),
        ("WEIR__HTTP__DRAIN", "5s"),
        ("WEIR__HTTP__LISTEN", "0.0.0.0:8080"),
    ];
    let pod = read("deploy/helm/weir/templates/statefulset.yaml");
    assert!(env.iter().all(|(name, _)| pod.contains(&format!("name: {name}"))), "the chart sets others: {pod}");
    for values in ["small", "large"] {
        settings(&block(&read(&format!("deploy/helm/weir/ci/{values}.yaml")), "config"), &env);
    }
    let full = settings(&block(&read("deploy/helm/weir/ci/full.yaml"), "config"), &env);
    let password = full.kafka.properties().find(|(name, _)| *name == "sasl.password").unwrap().1;
    assert_eq!((password.expose(), full.http.tokens().count()), ("secret", 1), "secrets are read from files");
    assert!(full.redis.password_file.is_some(), "read for each connection");
}

#[test]
fn a_pod_and_a_container_get_longer_to_stop_than_weir_takes() {
    let pod = read("deploy/helm/weir/templates/statefulset.yaml");
    let lines = [
        "terminationGracePeriodSeconds: {{ add .Values.httpDrainSeconds .Values.drainSeconds .Values.graceSeconds }}",
        "WEIR__WORKER__DRAIN, value: \"{{ int64 .Values.drainSeconds }}s\"",
        "WEIR__HTTP__DRAIN, value: \"{{ int64 .Values.httpDrainSeconds }}s\"",
    ];
    contains_all(&pod, &lines);
    let seconds: u64 =
        behind(&read("docker-compose.yml"), "stop_grace_period: ")[0].trim_end_matches('s').parse().unwrap();
    let settings = settings(&read("deploy/weir.toml"), &[]);
    let drain = (settings.http.drain + settings.worker.drain).as_secs();
    assert!(seconds > drain, "{seconds} s for a drain of {drain} s");
}

/// The values of the chart that are whole numbers, by its schema.
fn whole_numbers(schema: &Value, path: &str) -> Vec<String> {
    let is_whole = |schema: &Value| schema["type"] == "integer";
    if is_whole(schema) || schema["anyOf"].as_array().is_some_and(|forms| forms.iter().any(is_whole)) {
        return vec![path.to_owned()];
    }
    let below = schema["properties"].as_object().into_iter().flatten();
    below.flat_map(|(name, schema)| whole_numbers(schema, &format!("{path}.{name}"))).collect()
}

#[test]
fn the_chart_prints_no_number_with_an_exponent() {
    // Helm reads the numbers of a values file as floats, and prints 1000000 as 1e+06.
    let schema: Value = serde_json::from_str(&read("deploy/helm/weir/values.schema.json")).unwrap();
    let numbers = whole_numbers(&schema, ".Values");
    assert!(numbers.len() >= 6, "{numbers:?}");
    let templates = texts("deploy/helm/weir/templates");
    for number in numbers {
        let lines = templates.iter().flat_map(|(_, text)| text.lines());
        let uses: Vec<&str> = lines.filter(|line| line.contains(&number)).collect();
        let whole = ["int64", "toYaml"].map(|function| format!("{{{{ {function} {number}"));
        // Whatever `add` adds becomes a whole number.
        let is_whole = |line: &&str| line.contains("{{ add ") || whole.iter().any(|printed| line.contains(printed));
        assert!(!uses.is_empty() && uses.iter().all(is_whole), "print {number} with int64: {uses:?}");
    }
}

/// A tag of digits as in <https://github.com/helm/helm/issues/6867>, a variable as in
/// <https://github.com/webrecorder/browsertrix/issues/3145>, a node's label as in <https://github.com/cert-manager/cert-manager/pull/7579>: Helm
/// or YAML makes a number or a truth value of them, and Kubernetes or KEDA wants text.
#[test]
fn the_chart_refuses_numbers_and_truth_values_where_text_is_wanted() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/weir/values.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let cases = [
        (r#"{"image": {"tag": VALUE}}"#, "20161216"),
        (r#"{"env": [{"name": "WEIR__REDIS__USERS", "value": VALUE}]}"#, "1000000"),
        (r#"{"nodeSelector": {"spot": VALUE}}"#, "true"),
        (r#"{"tolerations": [{"key": "spot", "value": VALUE}]}"#, "true"),
        (r#"{"podAnnotations": {"build": VALUE}}"#, "1234567"),
        (r#"{"podLabels": {"build": VALUE}}"#, "12e5"),
        (r#"{"serviceAccount": {"annotations": {"a": VALUE}}}"#, "true"),
        (r#"{"keda": {"metadata": {"activationLagThreshold": VALUE}}}"#, "10"),
    ];
    for (values, value) in cases {
        let is_valid = |value: &str| schema.is_valid(&serde_json::from_str(&values.replace("VALUE", value)).unwrap());
        assert!(is_valid(&format!("\"{value}\"")), "{values}, {value} as text");
        assert!(!is_valid(value), "{values}, {value}");
    }
}

/// `condition: weir.enabled` of a chart that depends on this one, as in <https://github.com/cert-manager/trust-manager/issues/749> and
/// <https://github.com/community-charts/helm-charts/issues/416>: Helm hands the condition's value on to the chart. It removes the chart where it
/// is false, which nobody does for a chart on its own.
#[test]
fn the_chart_takes_the_values_that_helm_gives_a_dependency() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/weir/values.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let cases = [(r#"{"enabled": true, "global": {"a": 1}}"#, true), (r#"{"enabled": false}"#, false), ("{}", true)];
    for (values, is_valid) in cases {
        assert_eq!(schema.is_valid(&serde_json::from_str(values).unwrap()), is_valid, "{values}");
    }
}

#[test]
fn the_chart_has_the_alerts_the_dashboard_and_its_defaults() {
    // Templates read no file outside of a chart, nor its own values.yaml.
    for (own, original) in [
        ("alerts.yml", "deploy/prometheus/alerts.yml"),
        ("dashboard.json", "deploy/grafana/weir.json"),
        ("values.yaml", "deploy/helm/weir/values.yaml"),
    ] {
        let copy = format!("deploy/helm/weir/files/{own}");
        assert!(read(&copy) == read(original), "{copy} is another one: cp {original} {copy}");
    }
}

#[test]
fn instances_of_compose_share_no_name_and_no_port() {
    let compose = read("docker-compose.yml");
    assert!(!compose.contains("container_name") && !compose.contains("WEIR__KAFKA__INSTANCE"), "{compose}");
    assert!(!read("deploy/weir.toml").contains("\ninstance"), "the host name differs, a fixed name does not");
    let (_, ports) = compose.split_once("${WEIR_STACK_HTTP_PORTS:-").unwrap();
    let (first, last) = ports.split_once('}').unwrap().0.split_once('-').unwrap();
    assert!(first.parse::<u16>().unwrap() < last.parse::<u16>().unwrap(), "{first} to {last}");
}

fn stack_variables(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|sign| sign.is_ascii_uppercase()).collect::<String>();
    text.split("WEIR_STACK_").skip(1).map(name).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>()
}

#[test]
fn the_variables_of_compose_are_documented_and_have_defaults() {
    let compose = read("docker-compose.yml");
    let uses: Vec<&str> = compose.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    assert!(!uses.is_empty() && uses.iter().all(|used| used.contains(":-")), "without a default: {uses:?}");
    assert_eq!(stack_variables(&uses.join(" ")), stack_variables(&read("docs/deploy.md")));
}

#[test]
fn the_chart_is_of_this_version() {
    let chart = read("deploy/helm/weir/Chart.yaml");
    assert_eq!(behind(&chart, "appVersion: \"")[0], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_image_is_built_from_all_that_the_build_reads() {
    // Without build.rs the image would build, and lack the bound on what compressed records inflate to.
    let ignored = read(".dockerignore");
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap().iter();
    let folders = members.map(|member| member.as_str().unwrap().split('/').next().unwrap()).filter(|name| *name != ".");
    for name in ["Cargo.toml", "Cargo.lock", "build.rs", "src", "lua", "LICENSE"].into_iter().chain(folders) {
        assert!(ignored.lines().any(|line| line == format!("!{name}")), ".dockerignore keeps {name} out");
    }
}

#[test]
fn the_image_is_one_debian_and_the_current_one() {
    let image = read("Dockerfile");
    let bases = behind(&image, "\nFROM ");
    assert!(bases.len() == 2 && bases.iter().all(|base| base.contains("trixie")), "{bases:?}");
    assert!(image.contains("base.name=\"docker.io/library/debian:trixie-slim\""), "{image}");
}

#[test]
fn the_readme_counts_the_fuzz_targets() {
    let targets = read("fuzz/Cargo.toml").matches("[[bin]]").count();
    let words = ["seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"];
    let readme = read("README.md");
    let said = words.iter().position(|word| readme.contains(&format!("({word} targets"))).unwrap() + 7;
    assert_eq!(said, targets);
}

/// The samples that people copy: those of `deploy/`, and the valid ones of `schemas/examples/`.
fn samples() -> Vec<std::path::PathBuf> {
    let folders = ["deploy", "schemas/examples"].map(repository);
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_sample = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".toml") && !name.contains(".invalid.")
    };
    paths.filter(is_sample).collect()
}

#[test]
fn every_sample_names_its_schema_and_keeps_to_it() {
    let samples = samples();
    assert!(samples.len() >= 6, "{samples:?}");
    for path in samples {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display();
        let schema = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let schema = path.parent().unwrap().join(schema.unwrap_or_else(|| panic!("{name} has no #:schema line")));
        is_by_schema(schema, &toml::from_str(&text).unwrap());
    }
}

#[test]
fn the_sample_of_compose_is_a_configuration() {
    let folder = Path::new("deploy");
    let settings = weir::config::parse("weir.toml", &read("deploy/weir.toml"), folder, []).unwrap();
    assert_eq!(settings.policy.source.to_string(), "deploy/policy.toml");
}

#[test]
fn a_release_is_built_as_the_image_is_and_checked_before_it_is_published() {
    let (workflow, image) = (read(".github/workflows/release.yml"), read("Dockerfile"));
    let base = behind(&image, "FROM ")[0];
    let toolchain = read("rust-toolchain.toml");
    assert!(toolchain.contains(base.trim_start_matches("rust:").split('-').next().unwrap()), "{base}");
    let (rust, _) = base.split_once('-').unwrap();
    let older = format!("{rust}-bookworm");
    assert_eq!(behind(&workflow, "container: "), [older.as_str(); 2], "the same Rust on an older Debian");
    assert_eq!(
        workflow.matches("--add safe.directory").count(),
        2,
        "both ask git, which trusts no other user's checkout"
    );
    assert!(workflow.contains("bash .ci/run") && workflow.contains("needs: [check, build]"));
    let command = workflow.lines().find(|line| line.contains("cargo xtask release")).unwrap();
    let (folder, uploaded) = (behind(command, "--into ")[0], behind(&workflow, "path: ")[0]);
    assert_eq!(uploaded, format!("{folder}/*"), "what the command makes is uploaded");
}
