//! The report for people: tables.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use crate::cli::output::plain;
use crate::domain::simulation::{CapRow, NameRow, Report, VerdictCounts};

/// The report as text.
pub(super) fn text(report: &Report) -> String {
    let mut out = head(report);
    for (title, table) in tables(report) {
        if !table.rows.is_empty() {
            // Writing into a string does not fail.
            let _ = writeln!(out, "\n{title}\n{}", drawn(&table));
        }
    }
    for note in &report.source.notes {
        let _ = writeln!(out, "\nNote: {note}.");
    }
    out
}

fn head(report: &Report) -> String {
    let source = &report.source;
    let dead: u64 = source.dead_letters.values().sum();
    let span = match (report.from, report.to) {
        (Some(from), Some(to)) => format!(" from {from} to {to}"),
        (None, _) | (_, None) => String::new(),
    };
    let mut out = format!("{} records of {}{span}, of {} users", source.records, source.intents, report.users.seen);
    if dead > 0 {
        let reasons: Vec<String> =
            source.dead_letters.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let _ = write!(out, "; {dead} dead letters ({})", reasons.join(", "));
    }
    if let Some(history) = &source.history {
        let _ = write!(out, "; {} sends before them from {history}", source.history_sends);
    }
    out.push_str(".\n");
    for (policy, label) in report.policies.iter().zip(labels(report)) {
        let VerdictCounts { approved, shadow_suppressed, suppressed } = policy.counts;
        let shadow =
            if policy.shadow { format!(", {shadow_suppressed} approved in shadow mode only") } else { String::new() };
        let _ = writeln!(
            out,
            "{label}: {} version {}: {approved} approved{shadow}, {suppressed} suppressed.",
            policy.policy, policy.version
        );
    }
    if let Some(changed) = &report.users.changed {
        let _ = writeln!(
            out,
            "{} users get more, {} fewer; {} intents newly approved, {} newly suppressed.",
            changed.more, changed.fewer, changed.intents.newly_approved, changed.intents.newly_suppressed
        );
    }
    out
}

/// What the policies are called in tables.
pub(super) fn labels(report: &Report) -> Vec<&'static str> {
    ["policy", "against"].into_iter().take(report.policies.len()).collect()
}

/// A table as text and page show it: the first columns are words, the others numbers.
pub(super) struct Grid {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) words: usize,
}

/// All tables, with their titles.
pub(super) fn tables(report: &Report) -> Vec<(String, Grid)> {
    let each = |what: &str| labels(report).iter().map(|label| suffixed(what, label, report)).collect::<Vec<_>>();
    let with_difference = |mut head: Vec<String>| {
        if report.policies.len() > 1 {
            head.push("difference".to_owned());
        }
        head
    };
    let head = |words: &[&str], numbers: Vec<String>| {
        with_difference(words.iter().map(|word| (*word).to_owned()).chain(numbers).collect())
    };
    let names = |what: &str, rows: &[NameRow]| Grid {
        head: head(&[what], labels(report).iter().flat_map(|label| outcome_heads(label, report)).collect()),
        rows: rows.iter().map(name_row).collect(),
        words: 1,
    };
    let reasons = report.reasons.iter().map(|row| {
        let counts = row.suppressed.iter().map(u64::to_string).chain(signed(row.difference));
        std::iter::once(row.reason.as_str().to_owned()).chain(counts).collect()
    });
    let spread = report.users.approved_per_user.iter().map(|row| {
        let users = row.users.iter().map(u64::to_string).chain(signed(more_in_first(row.users.iter().copied())));
        std::iter::once(row.approved.to_string()).chain(users).collect()
    });
    let mut tables = vec![
        ("By segment".to_owned(), names("segment", &report.segments)),
        (
            "By cap: how many intents it suppressed".to_owned(),
            Grid {
                head: head(&["segment", "cap", "what"], each("suppressed")),
                rows: report.caps.iter().map(cap_row).collect(),
                words: 3,
            },
        ),
        (
            "By reason".to_owned(),
            Grid { head: head(&["reason"], each("suppressed")), rows: reasons.collect(), words: 1 },
        ),
        ("By channel".to_owned(), names("channel", &report.channels)),
        ("By category".to_owned(), names("category", &report.categories)),
        (format!("By hour of the day, {}", report.timezone), hours(report)),
        (
            "Messages sent to a user".to_owned(),
            Grid { head: head(&["messages"], each("users")), rows: spread.collect(), words: 0 },
        ),
    ];
    tables.extend(changed(report));
    tables
}

fn suffixed(what: &str, label: &str, report: &Report) -> String {
    if report.policies.len() > 1 { format!("{what} ({label})") } else { what.to_owned() }
}

fn outcome_heads(label: &str, report: &Report) -> Vec<String> {
    ["sent", "suppressed"].iter().map(|what| suffixed(what, label, report)).collect()
}

fn outcomes(outcomes: &[VerdictCounts]) -> impl Iterator<Item = String> {
    outcomes.iter().flat_map(|counts| [counts.sent().to_string(), counts.suppressed.to_string()])
}

/// How many more the first of two is.
fn more_in_first(counts: impl Iterator<Item = u64>) -> Option<i64> {
    match counts.collect::<Vec<_>>()[..] {
        [first, second] => Some(first.cast_signed().saturating_sub(second.cast_signed())),
        _ => None,
    }
}

fn signed(difference: Option<i64>) -> Option<String> {
    difference.map(|difference| format!("{difference:+}"))
}

fn none_or(name: Option<&String>) -> String {
    name.cloned().unwrap_or_else(|| "(none)".to_owned())
}

fn name_row(row: &NameRow) -> Vec<String> {
    std::iter::once(none_or(row.name.as_ref())).chain(outcomes(&row.outcomes)).chain(signed(row.difference)).collect()
}

fn cap_row(row: &CapRow) -> Vec<String> {
    let said = |(limit, window): (&Option<u32>, &Option<String>)| match (limit, window) {
        (Some(limit), Some(window)) => format!("{limit} {window}"),
        (None, _) | (_, None) => "no such cap".to_owned(),
    };
    let mut what: Vec<String> = row.limits.iter().zip(&row.windows).map(said).collect();
    what.dedup();
    let words = [none_or(row.segment.as_ref()), row.cap.clone(), what.join(" / ")];
    words.into_iter().chain(row.suppressed.iter().map(u64::to_string)).chain(signed(row.difference)).collect()
}

fn hours(report: &Report) -> Grid {
    let some = |counts: &&Vec<VerdictCounts>| counts.iter().any(|counts| counts.sent() + counts.suppressed > 0);
    let rows = report.hours_of_day.iter().enumerate().filter(|(_, counts)| some(counts));
    let row = |(hour, counts): (usize, &Vec<VerdictCounts>)| {
        let difference = signed(more_in_first(counts.iter().map(VerdictCounts::sent)));
        std::iter::once(format!("{hour:02}:00")).chain(outcomes(counts)).chain(difference).collect()
    };
    Grid {
        head: std::iter::once("hour".to_owned())
            .chain(labels(report).iter().flat_map(|label| outcome_heads(label, report)))
            .chain((report.policies.len() > 1).then(|| "difference".to_owned()))
            .collect(),
        rows: rows.map(row).collect(),
        words: 1,
    }
}

fn changed(report: &Report) -> Option<(String, Grid)> {
    let changed = report.users.changed.as_ref()?;
    let rows = changed.first.iter().map(|user| {
        let words = [user.user_id.clone(), none_or(user.segment.as_ref())];
        words.into_iter().chain(user.approved.iter().map(u32::to_string)).collect()
    });
    let title = format!("The first {} of {} users that change", changed.first.len(), changed.more + changed.fewer);
    let head = ["user", "segment", "sent (policy)", "sent (against)"].map(str::to_owned).to_vec();
    Some((title, Grid { head, rows: rows.collect(), words: 2 }))
}

fn drawn(grid: &Grid) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(&grid.head);
    for row in &grid.rows {
        table.add_row(row.iter().map(|cell| plain(cell).into_owned()));
    }
    for column in table.column_iter_mut().skip(grid.words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
