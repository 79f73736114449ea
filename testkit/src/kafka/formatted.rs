//! Formatted folders are kept: a broker's own differs from another's by its number alone, and Kafka's tool is the start of a JVM.

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::broker::{CLUSTER_ID, libs_folder};
use crate::{process::printed, unique};

/// Formats a broker's folder as another one was; `false`: none is kept yet.
pub(super) fn format_as_kept(data: &Path, node: usize) -> Result<bool> {
    let kept = kept()?;
    if !kept.is_dir() {
        return Ok(false);
    }
    copy(&kept, data)?;
    // The broker adds the id of the folder.
    fs::write(data.join("meta.properties"), format!("version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\n"))?;
    Ok(true)
}

/// Keeps what Kafka's tool has made of a folder, where none is kept.
pub(super) fn keep(data: &Path) -> Result<()> {
    let kept = kept()?;
    if kept.is_dir() {
        return Ok(());
    }
    let own = kept.with_file_name(unique("formatted"));
    copy(data, &own)?;
    // Another process may have been as fast.
    if fs::rename(&own, &kept).is_err() {
        fs::remove_dir_all(&own)?;
    }
    Ok(())
}

/// Where a folder is kept that these jars have formatted.
fn kept() -> Result<PathBuf> {
    let libs = libs_folder();
    let jars =
        fs::read_dir(&libs).with_context(|| format!("no jars in {}: run `cargo xtask setup`", libs.display()))?;
    let names = jars.map(|jar| Ok(jar?.file_name())).collect::<Result<BTreeSet<_>>>()?;
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    Ok(libs.with_file_name(format!("kafka-formatted-{:016x}", hasher.finish())))
}

/// Copies a folder to a place where there is none.
fn copy(from: &Path, to: &Path) -> Result<()> {
    printed(Command::new("cp").arg("-r").args([from, to])).map(drop)
}
