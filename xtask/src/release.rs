//! `release`: what people download of a version: an archive for this processor, its parts list (SBOM) and their checksums.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    notices, setup,
    shell::{self, Profile, built, command, workspace},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Files of the repository that are in the archive.
const FILES: [&str; 7] = [
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "deploy/prometheus/alerts.yml",
    "deploy/grafana/weir.json",
    // For editors: `#:schema config.schema.json`.
    "schemas/config.schema.json",
    "schemas/policy.schema.json",
];
/// The Helm chart. The archive has its committed files only.
const CHART: &str = "deploy/helm/weir";
/// Shells with a completion script, and the name under which each looks for it.
const SHELLS: [(&str, &str); 3] = [("bash", "weir.bash"), ("zsh", "_weir"), ("fish", "weir.fish")];
/// Writes the parts list. Also in docs/dependencies.md.
const CYCLONEDX: (&str, &str) = ("cyclonedx", "0.5.9");

/// Makes the files of a release in `out`: `weir-VERSION-PROCESSOR-linux.tar.gz`, `.cdx.json` and `.sha256`.
pub fn run(tag: Option<&str>, out: &Path) -> Result<()> {
    if let Some(tag) = tag {
        matches(tag)?;
    }
    let out = workspace().join(out);
    let name = format!("weir-{VERSION}-{}-linux", std::env::consts::ARCH);
    let folder = out.join(&name);
    setup::programs(&setup::BUILD_TOOLS)?;
    setup::install_cargo_tool(CYCLONEDX.0, CYCLONEDX.1)?;
    setup::remove(&folder)?;
    fs::create_dir_all(folder.join("completions")).with_context(|| format!("cannot make {}", folder.display()))?;
    shell::run(command("cargo", &["build", "--profile", "dist", "--locked", "--bin", "weir"]))?;
    fill(&folder)?;
    let archive = archive(&out, &name)?;
    let parts = parts(&out, &name)?;
    works(&out, &archive)?;
    let sums = shell::stdout(command("sha256sum", &[archive, parts]).current_dir(&out))?;
    let file = out.join(format!("{name}.sha256"));
    fs::write(&file, sums).with_context(|| format!("cannot write {}", file.display()))?;
    setup::remove(&folder)
}

/// A tag is `v` and the version in Cargo.toml, which the changelog describes.
fn matches(tag: &str) -> Result<()> {
    ensure!(tag == format!("v{VERSION}"), "the tag is {tag}, the version in Cargo.toml {VERSION}: change one of them");
    let changelog = fs::read_to_string(workspace().join("CHANGELOG.md")).context("cannot read CHANGELOG.md")?;
    let heading = format!("## {VERSION}");
    let is_it = |line: &str| line == heading || line.starts_with(&format!("{heading} "));
    ensure!(changelog.lines().any(is_it), "CHANGELOG.md has no section `{heading}`: rename `## Unreleased`");
    Ok(())
}

fn fill(folder: &Path) -> Result<()> {
    let binary = built(Profile::Dist, "weir");
    copy(&binary, &folder.join("weir"))?;
    for file in FILES {
        let name = Path::new(file).file_name().unwrap_or_default();
        copy(&workspace().join(file), &folder.join(name))?;
    }
    chart(&folder.join("helm"))?;
    notices::run(&folder.join("THIRD-PARTY.txt"))?;
    for (shell, name) in SHELLS {
        let script = shell::stdout(command(&binary, &["completions", shell]))?;
        let file = folder.join("completions").join(name);
        fs::write(&file, script).with_context(|| format!("cannot write {}", file.display()))?;
    }
    shell::run(command(&binary, &["man".as_ref(), folder.join("man").as_os_str()]))
}

/// The files of the chart, as they are in the folder.
fn chart(into: &Path) -> Result<()> {
    let files = shell::stdout(command("git", &["ls-files", "--", CHART]))?;
    for file in String::from_utf8_lossy(&files).lines() {
        let to = into.join(file.strip_prefix("deploy/helm/").unwrap_or(file));
        let folder = to.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        copy(&workspace().join(file), &to)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// The archive's name. Its bytes depend on the files alone: the time is that of the commit, and the owner is nobody.
fn archive(out: &Path, name: &str) -> Result<String> {
    let archive = format!("{name}.tar.gz");
    let time = shell::stdout(command("git", &["log", "-1", "--format=@%ct"]))?;
    let mut tar =
        command("tar", &["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip -n"]);
    tar.arg(format!("--mtime={}", String::from_utf8_lossy(&time).trim())).args(["-cf", &archive, name]);
    shell::run(tar.current_dir(out))?;
    Ok(archive)
}

/// The name of the parts list: CycloneDX, of what is in the binary on this platform.
fn parts(out: &Path, name: &str) -> Result<String> {
    let list = format!("{name}.cdx");
    let arguments = ["cyclonedx", "--format", "json", "--no-build-deps", "--override-filename", &list];
    shell::run(command("cargo", &arguments))?;
    // It writes one beside each Cargo.toml of the workspace.
    let file = format!("{list}.json");
    let written = shell::stdout(command("git", &["ls-files", "--others", "--", &format!(":(glob)**/{file}")]))?;
    let made = workspace().join(&file);
    let text = fs::read_to_string(&made).with_context(|| format!("cannot read {}", made.display()))?;
    // It names weir's own crates by the folder of this machine.
    let text = text.replace(&workspace().canonicalize()?.display().to_string(), "/weir");
    fs::write(out.join(&file), &text).with_context(|| format!("cannot write {file}"))?;
    for path in String::from_utf8_lossy(&written).lines() {
        fs::remove_file(workspace().join(path)).with_context(|| format!("cannot remove {path}"))?;
    }
    let bom: Value = serde_json::from_str(&text).with_context(|| format!("{file} is not JSON"))?;
    let components = bom["components"].as_array().map_or(0, Vec::len);
    let main = &bom["metadata"]["component"];
    ensure!(main["name"] == "weir" && main["version"] == VERSION && components > 100, "{file} is not of {VERSION}");
    Ok(file)
}

/// Unpacks the archive as a user does, and runs what is in it.
fn works(out: &Path, archive: &str) -> Result<()> {
    let folder = out.join("unpacked");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    shell::run(command("tar", &["--strip-components=1", "-xf"]).arg(out.join(archive)).arg("-C").arg(&folder))?;
    let said = shell::stdout(command(folder.join("weir"), &["--version"]))?;
    ensure!(String::from_utf8_lossy(&said).contains(VERSION), "the binary in {archive} is not of {VERSION}");
    for file in ["THIRD-PARTY.txt", "completions/_weir", "man/weir.1", "LICENSE", "weir.json", "helm/weir/Chart.yaml"] {
        ensure!(folder.join(file).is_file(), "{archive} lacks {file}");
    }
    setup::remove(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_has_the_chart_as_it_is_checked_in() {
        let folder = shell::target("chart-of-an-archive");
        chart(&folder).expect("the chart can be copied");
        for file in ["weir/Chart.yaml", "weir/values.yaml", "weir/templates/statefulset.yaml"] {
            let own = fs::read(workspace().join("deploy/helm").join(file)).expect("the chart has it");
            assert_eq!(fs::read(folder.join(file)).ok(), Some(own), "{file}");
        }
        fs::remove_dir_all(folder).expect("the copy can be removed");
    }
}
