//! `counts`: the instructions that the pure parts take, compared with the baseline.
//!
//! Instructions of optimised code are nearly the same in every run and on every x86-64 machine with the pinned toolchain
//! (rust-toolchain.toml) and Cargo.lock, whatever else the machine does: the rest (hash seeds, another libc) is far below
//! the tolerance.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    setup,
    shell::{self, Profile, built, command, workspace},
};

const BASELINE: &str = "benches/counts.json";
/// The function of benches/pure/src/main.rs that is counted; callgrind matches it by its demangled name.
const COUNTED: &str = "pure_counts::counted";
/// By how much a count may grow, in per cent.
const TOLERANCE_PERCENT: u64 = 5;
/// The most that cases take, as docs/performance.md promises: no baseline allows them more.
const PROMISED: [(&str, u64); 3] = [("whole", 5_390), ("whole-3-budgets", 5_549), ("whole-pressure", 5_390)];
/// What to look at where a count is too high.
const PROFILES: &str = "the profiles are in target/release/callgrind.out.*, for callgrind_annotate";

/// Instructions per operation, by case.
type Counts = BTreeMap<String, u64>;

#[derive(Debug, Default, Args)]
pub struct CountsArgs {
    /// Write the counts to benches/counts.json
    #[arg(long)]
    write: bool,
    /// Only cases with names that begin so
    #[arg(conflicts_with = "write")]
    only: Option<String>,
}

/// Counts each case under callgrind and compares.
pub fn run(args: &CountsArgs) -> Result<()> {
    setup::tools()?;
    shell::run(command("cargo", &["build", "-q", "--locked", "--release", "-p", "weir-pure", "--bin", "pure-counts"]))?;
    let program = built(Profile::Release, "pure-counts");
    let said = shell::output(&program.to_string_lossy(), &[]).context("pure-counts does not name its cases")?;
    let wanted = |case: &&str| args.only.as_deref().is_none_or(|only| case.starts_with(only));
    let cases: Vec<&str> = said.lines().filter(wanted).collect();
    eprintln!("$ valgrind --tool=callgrind {} CASE, for {} cases", program.display(), cases.len());
    let counts = shell::at_once(&cases, |case: &str| Ok((case.to_owned(), count(&program, case)?)))?;
    let counts: Counts = counts.into_iter().collect();
    ensure!(!counts.is_empty(), "no case begins so; there are: {}", said.replace('\n', " "));
    let file = workspace().join(BASELINE);
    if args.write {
        let beyond = beyond(&counts);
        ensure!(beyond.is_empty(), "{}: nothing is written; {PROFILES}", beyond.join("; "));
        let text = serde_json::to_string_pretty(&counts)?;
        return fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()));
    }
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut baseline: Counts = serde_json::from_str(&text).with_context(|| format!("{BASELINE} holds no counts"))?;
    baseline.retain(|case, _| wanted(&case.as_str()));
    compare(&counts, &baseline)
}

/// The instructions of one operation of a case.
fn count(program: &Path, case: &str) -> Result<u64> {
    // For callgrind_annotate.
    let written = program.with_file_name(format!("callgrind.out.{}", case.replace('/', "-")));
    let mut valgrind = command("valgrind", &["--tool=callgrind", "--collect-atstart=no"]);
    valgrind
        .arg(format!("--toggle-collect={COUNTED}*"))
        .arg(format!("--callgrind-out-file={}", written.display()))
        .args([program.as_os_str(), case.as_ref()]);
    let output = valgrind.output().context("cannot start valgrind")?;
    ensure!(output.status.success(), "{case} failed: {}", String::from_utf8_lossy(&output.stderr));
    let operations: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().context("no number of operations")?;
    let profile = fs::read_to_string(&written).with_context(|| format!("cannot read {}", written.display()))?;
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let instructions: u64 =
        totals.and_then(|totals| totals.trim().parse().ok()).context("callgrind wrote no totals")?;
    ensure!(instructions > 0, "{case}: callgrind has not seen the function {COUNTED}");
    Ok(instructions / operations.max(1))
}

/// Prints all counts, and fails if one is higher than promised, or has grown.
fn compare(counts: &Counts, baseline: &Counts) -> Result<()> {
    eprintln!("{:<32} {:>10} {:>10} {:>8} {:>10}", "instructions per operation", "before", "now", "change", "at most");
    for (case, &now) in counts {
        let Some(&before) = baseline.get(case) else { continue };
        let change = 100.0 * (now as f64 - before as f64) / before as f64;
        eprintln!("{case:<32} {before:>10} {now:>10} {change:>+7.1}% {:>10}", most(case, before));
    }
    let (mut wrong, grown) = (beyond(counts), grown(counts, baseline));
    if !grown.is_empty() {
        wrong.push(format!(
            "{}: more than {TOLERANCE_PERCENT}% above {BASELINE}. If it has to be, `cargo xtask counts --write` and commit the file \
             with the change",
            grown.join("; ")
        ));
    }
    ensure!(wrong.is_empty(), "{}; {PROFILES}", wrong.join("; "));
    Ok(())
}

fn promised(case: &str) -> Option<u64> {
    PROMISED.into_iter().find_map(|(promised, most)| (promised == case).then_some(most))
}

/// The most that a case may take.
fn most(case: &str, before: u64) -> u64 {
    promised(case).unwrap_or(before * (100 + TOLERANCE_PERCENT) / 100)
}

/// The cases that take more than is promised.
fn beyond(counts: &Counts) -> Vec<String> {
    let beyond = |(case, now): (&String, &u64)| {
        let most = promised(case).filter(|most| now > most)?;
        Some(format!("{case} takes {now}, and docs/performance.md promises at most {most}"))
    };
    counts.iter().filter_map(beyond).collect()
}

/// The other cases that have grown by more than the tolerance, and those that only one of both has.
fn grown(counts: &Counts, baseline: &Counts) -> Vec<String> {
    let grown = |(case, now): (&String, &u64)| match baseline.get(case) {
        None => Some(format!("{case} takes {now} and is not in {BASELINE}")),
        Some(before) if promised(case).is_none() && *now > most(case, *before) => {
            Some(format!("{case} took {before} and takes {now}"))
        }
        Some(_) => None,
    };
    let gone = baseline.keys().filter(|case| !counts.contains_key(*case)).map(|case| format!("{case} is gone"));
    counts.iter().filter_map(grown).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect()
    }

    #[test]
    fn a_case_may_grow_by_the_tolerance_and_one_with_a_promise_up_to_that_whatever_the_baseline_says() {
        let found = |gate, whole| counts(&[("gate", gate), ("whole", whole)]);
        let wrong = |now: &Counts, baseline: &Counts| (beyond(now).len(), grown(now, baseline).len());
        assert_eq!(wrong(&found(1_050, 5_390), &found(1_000, 5_000)), (0, 0));
        assert_eq!(wrong(&found(1_051, 5_390), &found(1_000, 5_000)), (0, 1));
        assert_eq!(wrong(&found(1_000, 5_391), &found(1_000, 5_391)), (1, 0), "a baseline is no promise");
    }

    #[test]
    fn a_case_that_only_one_side_has_is_named() {
        let (now, baseline) = (counts(&[("gate", 1), ("new", 2)]), counts(&[("gate", 1), ("old", 3)]));
        assert_eq!(grown(&now, &baseline), ["new takes 2 and is not in benches/counts.json", "old is gone"]);
    }

    #[test]
    fn each_promise_is_of_a_case_that_is_counted_and_docs_have_it_with_its_bound() {
        let read = |name: &str| fs::read_to_string(workspace().join(name)).unwrap();
        let (baseline, page): (Counts, String) =
            (serde_json::from_str(&read(BASELINE)).unwrap(), read("docs/performance.md"));
        assert!(beyond(&baseline).is_empty(), "{:?}", beyond(&baseline));
        for (case, most) in PROMISED {
            assert!(baseline.contains_key(case), "{case} is not counted");
            let bound = format!("`{case}`: at most {},{:03} ", most / 1_000, most % 1_000);
            let is_row = |line: &str| line.contains(&bound) && line.contains("| `cargo xtask counts` |");
            assert!(page.lines().any(is_row), "docs/performance.md has no goal with {bound:?}");
        }
    }
}
