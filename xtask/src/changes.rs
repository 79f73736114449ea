//! What has changed since a commit that passed CI, so that a step whose subject is as it was then need not run again.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::shell::{self, command};

/// The changes since a commit.
#[derive(Debug, Default)]
pub struct Changes {
    /// The commit that passed, and the paths that differ from it, also uncommitted ones. `None`: no such commit is known.
    since: Option<(String, Vec<String>)>,
}

impl Changes {
    /// The changes since this commit, or else since the last one that passed on this machine. Nothing is known where that
    /// is not an ancestor of what is checked out, or git does not answer.
    pub fn since(commit: Option<String>) -> Self {
        let since = commit.or_else(|| fs::read_to_string(record()?).ok()).and_then(|commit| {
            let commit = commit.trim().to_owned();
            lines(command("git", &["merge-base", "--is-ancestor", &commit, "HEAD"]))?;
            let mut paths = lines(command("git", &["diff", "--name-only", "--no-renames", &commit]))?;
            paths.extend(lines(command("git", &["ls-files", "--others", "--exclude-standard"]))?);
            Some((commit, paths))
        });
        Self { since }
    }

    /// The commit that passed, where nothing has changed since in these files and folders (`lua/`).
    pub fn none_in(&self, places: &[&str]) -> Option<&str> {
        let (commit, paths) = self.since.as_ref()?;
        let is_in = |path: &String| places.iter().any(|place| path.starts_with(place));
        (!paths.iter().any(is_in)).then_some(commit.as_str())
    }
}

/// The commit that is checked out; `None` where something is uncommitted.
pub fn checked_out() -> Option<String> {
    let uncommitted = lines(command("git", &["status", "--porcelain"]))?;
    lines(command("git", &["rev-parse", "HEAD"]))?.into_iter().next().filter(|_| uncommitted.is_empty())
}

/// Notes that this commit has passed.
///
/// # Errors
/// When the note cannot be written.
pub fn passed(commit: &str) -> Result<()> {
    let Some(record) = record() else { return Ok(()) };
    let folder = record.parent().context("the record is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&record, format!("{commit}\n")).with_context(|| format!("cannot write {}", record.display()))
}

/// Where the last commit that passed is noted; `None` without a home folder.
fn record() -> Option<PathBuf> {
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Some(caches.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("weir/ci-passed"))
}

/// What a command prints; `None` if it fails.
fn lines(command: Command) -> Option<Vec<String>> {
    let printed = shell::stdout(command).ok()?;
    Some(String::from_utf8_lossy(&printed).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_untouched_only_where_a_commit_that_passed_is_known() {
        let changes = |paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            Changes { since: Some(("abc".to_owned(), paths)) }
        };
        assert_eq!(Changes::default().none_in(&["lua/"]), None);
        assert_eq!(changes(&[]).none_in(&["lua/"]), Some("abc"));
        assert_eq!(changes(&["docs/lua/x", "Cargo.toml"]).none_in(&["lua/"]), Some("abc"));
        assert_eq!(changes(&["README.md", "lua/take.lua"]).none_in(&["fuzz/", "lua/"]), None);
        assert_eq!(changes(&["Cargo.lock"]).none_in(&["Cargo."]), None);
    }

    #[test]
    fn a_commit_that_does_not_exist_is_no_commit_that_passed() {
        let changes = Changes::since(Some("0000000000000000000000000000000000000000".to_owned()));
        assert_eq!(changes.none_in(&["nowhere/"]), None);
    }
}
