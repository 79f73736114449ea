//! The tests that were flaky in the last runs of CI on this machine: what is so twice in ten runs is to be repaired.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result};

use crate::{changes, test_report};

/// So many runs are remembered.
const RUNS: usize = 10;
/// What was flaky in so many of them is named.
const OFTEN: usize = 2;

/// Notes what was flaky in the runs of these profiles that have ended, and says what is so too often, a line each.
pub fn note(profiles: &[&str]) -> Vec<String> {
    let runs: Vec<BTreeSet<String>> = profiles.iter().filter_map(|profile| test_report::flaky(profile)).collect();
    // Where no test has run, nothing was flaky or was not.
    if runs.is_empty() {
        return Vec::new();
    }
    noted(&runs.into_iter().flatten().collect())
        .unwrap_or_else(|error| vec![format!("the flaky tests are not noted: {error:#}")])
}

fn noted(flaky: &BTreeSet<String>) -> Result<Vec<String>> {
    let Some(record) = changes::kept("ci-flaky")? else { return Ok(Vec::new()) };
    let (runs, often) = counted(&fs::read_to_string(&record).unwrap_or_default(), flaky);
    fs::write(&record, runs).with_context(|| format!("cannot write {}", record.display()))?;
    let line = |(name, times): (String, usize)| {
        format!("FLAKY in {times} of the last {RUNS} runs here: {name}: repair it, or ignore it with the reason")
    };
    Ok(often.into_iter().map(line).collect())
}

/// The record with one more run, a line for each with its flaky tests between tabs; and those of this run that were flaky often, with how
/// many times.
fn counted(record: &str, flaky: &BTreeSet<String>) -> (String, Vec<(String, usize)>) {
    let this = flaky.iter().map(String::as_str).collect::<Vec<_>>().join("\t");
    let mut runs: Vec<&str> = record.lines().chain([this.as_str()]).collect();
    runs.drain(..runs.len().saturating_sub(RUNS));
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for name in runs.iter().flat_map(|run| run.split('\t')) {
        *times.entry(name).or_default() += 1;
    }
    let of = |name: &String| Some((name.clone(), times.get(name.as_str()).copied().filter(|times| *times >= OFTEN)?));
    let often = flaky.iter().filter_map(of).collect();
    (runs.iter().map(|run| format!("{run}\n")).collect(), often)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_flaky_twice_in_ten_runs_is_named() {
        let run = |record: &str, names: &[&str]| counted(record, &names.iter().map(ToString::to_string).collect());
        let (record, often) = run("", &["a", "b"]);
        assert_eq!((record.as_str(), often), ("a\tb\n", Vec::new()));
        let (mut record, often) = run(&record, &["b", "c"]);
        assert_eq!((record.as_str(), often), ("a\tb\nb\tc\n", vec![("b".to_owned(), 2)]));
        for _ in 0..8 {
            record = run(&record, &[]).0;
        }
        assert_eq!(record.lines().count(), 10);
        // The first of them was ten runs ago.
        let (record, often) = run(&record, &["a", "c"]);
        assert_eq!((record.lines().count(), often), (10, vec![("c".to_owned(), 2)]));
    }
}
