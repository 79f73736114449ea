//! `notices`: the licences of everything that is in the binary, for the image and for releases.
//!
//! cargo-deny checks which licences crates declare; this collects their texts. It is no cargo-about, which compares every file of
//! every crate with every known licence, for minutes: the texts of all are printed anyway.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::{self, command};

/// Crates whose C code is compiled into the binary, and the file with its licence.
const BUNDLED: [(&str, &str); 5] = [
    ("aws-lc-sys", "LICENSE"),
    ("curl-sys", "curl/COPYING"),
    ("libz-sys", "src/zlib/LICENSE"),
    ("rdkafka-sys", "librdkafka/LICENSES.txt"),
    ("zstd-sys", "zstd/LICENSE"),
];
/// Crates that declare a native library and bring none: Debian's OpenSSL is not in the binary, the others have only a version lock.
const BRING_NONE: [&str; 5] = ["aws-lc-rs", "openssl-sys", "prettyplease", "rayon-core", "ring"];
/// The beginnings of the names of files with terms, in small letters.
const FILES: [&str; 5] = ["licen", "copying", "copyright", "notice", "unlicense"];

/// Writes the licences of all crates and C libraries of the binary to a file.
pub fn run(out: &Path) -> Result<()> {
    fs::write(out, notices()?).with_context(|| format!("cannot write {}", out.display()))
}

fn notices() -> Result<String> {
    let line = "=".repeat(80);
    let mut crates = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages()?.iter().filter(|package| !package["source"].is_null()) {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let found = files(package)?;
        let note = if found.is_empty() { "; the crate has no file with its text" } else { "" };
        crates += &format!("{name}: {}{note}\n", text(&package["license"]));
        for terms in found {
            texts.entry(terms).or_default().push(name.clone());
        }
    }
    let mut notices = format!("weir contains these crates, and the C libraries that some of them bring:\n\n{crates}");
    for (terms, of) in texts {
        notices += &format!("\n{line}\n{}\n\n{terms}\n", of.join(", "));
    }
    Ok(notices)
}

/// The texts of a crate's terms, and of the C code in it.
fn files(package: &Value) -> Result<BTreeSet<String>> {
    let (name, links, manifest) = (text(&package["name"]), text(&package["links"]), text(&package["manifest_path"]));
    let folder = Path::new(&manifest).parent().context("a manifest is in a folder")?;
    let read = |path: &Path| {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && FILES.iter().any(|name| file.starts_with(name)) {
            texts.insert(read(&path)?);
        }
    }
    if !links.is_empty() && !BRING_NONE.contains(&name.as_str()) {
        let (_, file) = BUNDLED.iter().find(|(bundles, _)| *bundles == name).with_context(|| {
            format!("{name} links the native library {links}: add the file with its licence to xtask/src/notices.rs")
        })?;
        texts.insert(read(&folder.join(file))?);
    }
    Ok(texts)
}

/// The packages that the binary is built from on Linux for this machine's processor, by normal dependencies.
fn packages() -> Result<Vec<Value>> {
    let mut metadata = command("cargo", &["metadata", "--locked", "--format-version", "1"]);
    metadata.args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    let metadata = shell::stdout(metadata)?;
    let metadata: Value = serde_json::from_slice(&metadata).context("cargo metadata printed no JSON")?;
    let is_normal = |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
    let mut waiting = vec![text(&metadata["resolve"]["root"])];
    let mut used = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let node = list(&metadata["resolve"]["nodes"]).find(|node| node["id"] == id.as_str());
        if let Some(node) = node.filter(|_| used.insert(id.clone())) {
            waiting.extend(list(&node["deps"]).filter(is_normal).map(|dependency| text(&dependency["pkg"])));
        }
    }
    Ok(list(&metadata["packages"]).filter(|package| used.contains(&text(&package["id"]))).cloned().collect())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notices_have_every_crate_of_the_binary_and_the_c_code_in_it() {
        let notices = notices().expect("every crate with C code is in the table");
        for words in ["\ntokio 1.", "Tokio Contributors", "\nrdkafka-sys ", "Magnus Edenhill", "Daniel Stenberg"] {
            assert!(notices.contains(words), "the notices lack {words:?}");
        }
        assert!(!notices.contains("\nproptest "), "tests are not in the binary");
    }
}
