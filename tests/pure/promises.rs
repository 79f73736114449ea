//! Each promise and invariant has its tests, and they exist; the fault table has the cases of the catalogue.

use std::{collections::BTreeSet, fs, path::Path};

use super::docs::{files_and_names, read, repository};

struct Row {
    promise: String,
    tests: String,
    simulation: String,
    faults: String,
}

fn rows(section: &str) -> Vec<Row> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [promise, tests, simulation, faults] = cells[..] else { panic!("not four cells: {line}") };
        let [promise, tests, simulation, faults] = [promise, tests, simulation, faults].map(str::to_owned);
        Row { promise, tests, simulation, faults }
    };
    section.lines().filter(|line| line.starts_with("| ")).skip(1).map(row).collect()
}

pub(super) fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let found = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}"));
    found.1.split("\n## ").next().unwrap()
}

/// The text as it reads: without lines and bold signs.
fn plain(text: &str) -> String {
    text.replace("**", "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The bold beginnings of a list's items.
fn beginnings(list: &str) -> BTreeSet<String> {
    let bold = list.split("\n- **").skip(1).map(|item| plain(item.split("**").next().unwrap()));
    bold.map(|text| text.trim_end_matches('.').to_owned()).collect()
}

#[test]
fn every_promise_of_the_readme_has_a_row_in_its_words() {
    let (readme, page) = (read("README.md"), read("docs/promises.md"));
    let rows = rows(section(&page, "Promises"));
    let text = plain(&readme);
    let wrong: Vec<&str> = rows.iter().map(|row| &*row.promise).filter(|promise| !text.contains(promise)).collect();
    assert!(wrong.is_empty(), "README.md does not say: {wrong:#?}");
    let promises = beginnings(section(&readme, "What it promises"));
    assert!(promises.len() >= 8, "{promises:?}");
    let has_row = |promise: &&String| rows.iter().any(|row| row.promise.contains(promise.as_str()));
    let missing: Vec<&String> = promises.iter().filter(|promise| !has_row(promise)).collect();
    assert!(missing.is_empty(), "docs/promises.md lacks {missing:#?}");
}

/// Fails unless these promises of a page, more than so many, are those of the rows.
#[track_caller]
fn have_rows(page: &str, (promises, more_than): (&BTreeSet<String>, usize), rows: Vec<Row>) {
    assert!(promises.len() > more_than, "{promises:?}");
    let rows: BTreeSet<String> = rows.into_iter().map(|row| plain(&row.promise)).collect();
    let missing: Vec<&String> = promises.difference(&rows).collect();
    let wrong: Vec<&String> = rows.difference(promises).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "docs/promises.md lacks {missing:#?}, {page} {wrong:#?}");
}

#[test]
fn every_invariant_has_a_row_in_its_words() {
    let architecture = read("ARCHITECTURE.md");
    let rows = rows(section(&read("docs/promises.md"), "Invariants"));
    have_rows("ARCHITECTURE.md", (&beginnings(section(&architecture, "Invariants")), 25), rows);
}

#[test]
fn every_promise_of_delivery_has_a_row_in_its_words() {
    have_rows("docs/delivery.md", (&beginnings(&read("docs/delivery.md")), 20), rows_of_delivery());
}

/// The rows of delivery: what other rows say of the simulation, these say of the tests that not every change runs.
fn rows_of_delivery() -> Vec<Row> {
    rows(section(&read("docs/promises.md"), "Delivery"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    WithEveryChange,
    /// It is ignored: with `--extent everything` alone.
    WithEverything,
}

/// Whether a file has a test of this name that runs then. Those in `tests/worker/contract/` are called by the tests of its `mod.rs`.
fn has_test(file: &str, name: &str, runs: Runs) -> bool {
    let text = fs::read_to_string(repository(file)).unwrap_or_default();
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.rsplit("\n\n").next().unwrap();
    let is_test = ["#[test]", "#[tokio::test"].iter().any(|test| attributes.contains(test));
    let rule = Path::new(file).file_stem().map(|stem| format!("{}::{name},", stem.to_string_lossy()));
    let is_rule = file.starts_with("tests/worker/contract/")
        && rule.is_some_and(|rule| read("tests/worker/contract/mod.rs").contains(&rule));
    (is_test || is_rule) && attributes.contains("#[ignore") == (runs == Runs::WithEverything)
}

/// The tests in a cell that do not exist, or do not run then.
fn absent(cell: &str, runs: Runs) -> Vec<String> {
    let named = files_and_names(cell).into_iter();
    let each = named.flat_map(|(file, names)| names.into_iter().map(move |name| (file, name)));
    each.filter(|(file, name)| !has_test(file, name, runs)).map(|(file, name)| format!("{name} in {file}")).collect()
}

#[test]
fn every_test_and_fault_that_a_row_names_exists() {
    let page = read("docs/promises.md");
    let (cases, delivery) = (catalogue(), rows_of_delivery());
    let is_fault = |name: &str| {
        cases.iter().any(|(key, _)| key == name || key.trim_end_matches(|sign: char| sign.is_ascii_lowercase()) == name)
    };
    let mut wrong = Vec::new();
    let others: Vec<Row> =
        ["Promises", "Invariants"].iter().flat_map(|heading| rows(section(&page, heading))).collect();
    for Row { promise, tests, faults, .. } in others.iter().chain(&delivery) {
        if files_and_names(tests).is_empty() && !tests.starts_with("none") {
            wrong.push(format!("{promise}: no test, and it does not say \"none\""));
        }
        let absent = absent(tests, Runs::WithEveryChange).into_iter();
        wrong.extend(absent.map(|test| format!("{promise}: no test {test}, or not in every run")));
        let unknown = faults.split(", ").filter(|fault| !fault.is_empty() && !is_fault(fault));
        wrong.extend(unknown.map(|fault| format!("{promise}: no fault {fault}")));
    }
    for Row { promise, simulation, .. } in others.iter().filter(|row| !["", "yes"].contains(&&*row.simulation)) {
        wrong.push(format!("{promise}: the simulation judges it (yes), or not: {simulation}"));
    }
    for Row { promise, simulation: everything, .. } in &delivery {
        let absent = absent(everything, Runs::WithEverything).into_iter();
        wrong.extend(absent.map(|test| format!("{promise}: no test {test}, or it runs with every change")));
    }
    assert!(wrong.is_empty(), "docs/promises.md: {wrong:#?}");
}

/// Each case of the fault catalogue: its key, and the fault in words.
fn catalogue() -> Vec<(String, String)> {
    let text = read("tests/faults/catalogue.rs");
    let (_, cases) = text.split_once("pub const CASES").expect("the cases");
    let case = |case: &str| {
        let mut texts = case.split('"').skip(1).step_by(2).map(str::to_owned);
        (texts.next().expect("a key"), texts.next().expect("the fault"))
    };
    cases.split("case(").skip(1).map(case).collect()
}

#[test]
fn reliability_has_the_cases_of_the_fault_catalogue_alone() {
    let page = read("docs/reliability.md");
    let (_, table) = page.split_once("<!-- faults: begin -->").unwrap();
    let table = table.split("<!-- faults: end -->").next().unwrap();
    let is_row =
        |line: &&str| line.strip_prefix("| ").is_some_and(|line| line.starts_with(|sign: char| sign.is_ascii_digit()));
    let rows: Vec<&str> = table.lines().filter(is_row).collect();
    assert!(rows.len() > 50, "{}", rows.len());
    let without = table.lines().find(|line| line.starts_with("Without a row")).and_then(|line| line.split_once(": "));
    let without: Vec<&str> =
        without.map(|(_, keys)| keys.trim_end_matches('.').split(", ").collect()).unwrap_or_default();
    let cases = catalogue();
    let is_case = |row: &str| cases.iter().any(|(key, what)| row.starts_with(&format!("| {key} | {what} |")));
    let stale: Vec<&&str> = rows.iter().filter(|row| !is_case(row)).collect();
    let has_row = |key: &str| rows.iter().any(|row| row.starts_with(&format!("| {key} |")));
    let untold: Vec<&String> =
        cases.iter().map(|(key, _)| key).filter(|key| has_row(key) == without.contains(&key.as_str())).collect();
    assert!(
        stale.is_empty() && untold.is_empty(),
        "cargo xtask faults --rows ... --write renews docs/reliability.md: no such case {stale:#?}, and neither a row nor \
         \"without a row\", or both: {untold:?}"
    );
}
