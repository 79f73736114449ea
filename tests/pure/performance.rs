//! The goals are one table that says by which command each figure is printed, and README has no other figures.

use std::collections::BTreeSet;

use super::{docs::read, promises::section};

/// The rows of a page's table below a heading, by cells.
fn rows<const CELLS: usize>(page: &str, heading: &str) -> Vec<[String; CELLS]> {
    let row = |line: &str| {
        let line = line.trim().trim_start_matches("| ").trim_end_matches('|');
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        <[String; CELLS]>::try_from(cells).unwrap_or_else(|cells| panic!("not {CELLS} cells: {cells:?}"))
    };
    let rows: Vec<_> = section(page, heading).lines().filter(|line| line.starts_with("| ")).skip(1).map(row).collect();
    assert!(rows.len() > 2, "no table below {heading:?}: {rows:?}");
    rows
}

/// The words that begin with a digit.
fn figures(text: &str) -> BTreeSet<&str> {
    let words = text.split_whitespace().map(|word| word.trim_matches(['(', ')', ',', '.', ':', ';']));
    words.filter(|word| word.starts_with(|sign: char| sign.is_ascii_digit())).collect()
}

#[test]
fn each_goal_has_the_command_that_prints_its_figure_and_says_whether_it_is_met() {
    for [goal, figure, command, met] in rows::<4>(&read("docs/performance.md"), "Goals") {
        let number = goal.split_once(": ").and_then(|(number, _)| number.parse::<u8>().ok());
        assert!(number.is_some(), "a goal begins with its number: {goal:?}");
        assert!(command.starts_with("`cargo ") && command.ends_with('`'), "{goal}: {command:?} is no command");
        let is_measured = met == "met" || met.strip_prefix("missed: ").is_some_and(|by| !by.is_empty());
        assert!(
            is_measured || met == "not measured",
            "{goal}: met, \"missed: what bounds it\", or not measured: {met:?}"
        );
        assert_eq!(!figure.is_empty(), is_measured, "{goal}: {figure:?} and {met:?}");
    }
}

#[test]
fn every_figure_of_the_readme_is_one_of_a_goal_by_the_same_command() {
    let goals = rows::<4>(&read("docs/performance.md"), "Goals");
    for [what, figure, command] in rows::<3>(&read("README.md"), "Measured") {
        let of_command =
            goals.iter().filter(|goal| goal[2] == command).map(|[goal, figure, ..]| format!("{goal} {figure}"));
        let printed = of_command.collect::<Vec<_>>().join(" ");
        let said = format!("{what} {figure}");
        let wrong: Vec<&str> = figures(&said).difference(&figures(&printed)).copied().collect();
        assert!(
            !figures(&figure).is_empty() && wrong.is_empty(),
            "docs/performance.md has no {wrong:?} of {command}: {said}"
        );
    }
}
