//! What has changed since a commit that passed CI, so that a step whose subject is as it was then need not run again.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::shell::{self, command};

/// Where the last commit that passed is noted.
const PASSED: &str = "ci-passed";

#[derive(Debug, Default)]
pub struct Changes {
    /// The commit that passed, and the paths that differ from it, also uncommitted ones. `None`: no such commit is known.
    since: Option<(String, Vec<String>)>,
}

impl Changes {
    /// The changes since this commit, or else since the last one that passed on this machine. Nothing is known where that
    /// is not an ancestor of what is checked out, or git does not answer.
    pub fn since(commit: Option<String>) -> Self {
        let since = commit.or_else(|| fs::read_to_string(kept(PASSED).ok()??).ok()).and_then(|commit| {
            let commit = commit.trim().to_owned();
            lines(&["merge-base", "--is-ancestor", &commit, "HEAD"])?;
            let mut paths = lines(&["diff", "--name-only", "--no-renames", &commit])?;
            paths.extend(lines(&["ls-files", "--others", "--exclude-standard"])?);
            Some((commit, paths))
        });
        Self { since }
    }

    /// The commit that passed, where nothing has changed since in these files and folders (`lua/ Cargo.`).
    pub fn none_in(&self, places: &str) -> Option<&str> {
        let (commit, paths) = self.since.as_ref()?;
        // git puts unusual names in quotes.
        let is_in = |path: &String| places.split(' ').any(|place| path.trim_start_matches('"').starts_with(place));
        (!paths.iter().any(is_in)).then_some(commit.as_str())
    }
}

/// The commit that is checked out; `None` where something is uncommitted.
pub fn checked_out() -> Option<String> {
    let uncommitted = lines(&["status", "--porcelain"])?;
    lines(&["rev-parse", "HEAD"])?.into_iter().next().filter(|_| uncommitted.is_empty())
}

pub fn passed(commit: &str) -> Result<()> {
    let Some(record) = kept(PASSED)? else { return Ok(()) };
    fs::write(&record, format!("{commit}\n")).with_context(|| format!("cannot write {}", record.display()))
}

/// The place of a file that is kept from run to run on this machine; `None` without a home folder.
pub fn kept(file: &str) -> Result<Option<PathBuf>> {
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let Some(caches) = caches.or_else(|| Some(std::env::home_dir()?.join(".cache"))) else { return Ok(None) };
    let folder = caches.join("weir");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(Some(folder.join(file)))
}

/// What git prints; `None` if it fails.
fn lines(args: &[&str]) -> Option<Vec<String>> {
    let printed = shell::stdout(command("git", args)).ok()?;
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
        assert_eq!(Changes::default().none_in("lua/"), None);
        assert_eq!(changes(&[]).none_in("lua/"), Some("abc"));
        assert_eq!(changes(&["docs/lua/x", "Cargo.toml"]).none_in("lua/"), Some("abc"));
        assert_eq!(changes(&["README.md", "lua/take.lua"]).none_in("fuzz/ lua/"), None);
        assert_eq!(changes(&["Cargo.lock"]).none_in("Cargo."), None);
        assert_eq!(changes(&["\"lua/caf\\303\\251.lua\""]).none_in("lua/"), None);
    }

    #[test]
    fn a_commit_that_does_not_exist_is_no_commit_that_passed() {
        let changes = Changes::since(Some("0000000000000000000000000000000000000000".to_owned()));
        assert_eq!(changes.none_in("nowhere/"), None);
    }
}
