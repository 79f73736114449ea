//! The report for people: tables.

use std::fmt::{Display, Write as _};

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use weir_core::{
    basis::document::value::in_words,
    replay::{BudgetRow, CapRow, DeferralCounts, NameRow, PressureTotals, Report, RouteTotals, Totals, VerdictCounts},
};

use crate::cli::output::plain;

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
            "{label}: {} version {}: {approved} approved{shadow}, {suppressed} suppressed{}.",
            policy.policy,
            policy.version,
            deferred(policy.deferred)
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

/// The deferrals, behind the verdicts; nothing without one.
pub(super) fn deferred(DeferralCounts { intents, waiting }: DeferralCounts) -> String {
    match (intents, waiting) {
        (0, _) => String::new(),
        (_, 0) => format!("; {intents} deferred, all of them decided"),
        (_, _) => format!("; {intents} deferred, {waiting} of them still deferred at the end"),
    }
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
    let grid = |words: &[&str], numbers: &[&str], rows: Vec<Row>| grid(report, words, numbers, rows);
    let names = |what: &str, rows: &[NameRow]| {
        let row = |row: &NameRow| (vec![or(row.name.as_ref(), "(none)")], outcomes(&row.outcomes));
        grid(&[what], &["sent", "suppressed"], rows.iter().map(row).collect())
    };
    let each = |counts: &[u64]| counts.iter().map(|count| vec![*count]).collect::<Vec<_>>();
    let caps = report.caps.iter().map(|row| (cap_words(row), each(&row.suppressed)));
    let reasons = report.reasons.iter().map(|row| (vec![row.reason.as_str().to_owned()], each(&row.suppressed)));
    let some = |counts: &&Vec<VerdictCounts>| counts.iter().any(|counts| counts.sent() + counts.suppressed > 0);
    let hours = report.hours_of_day.iter().enumerate().filter(|(_, counts)| some(counts));
    let hours = hours.map(|(hour, counts)| (vec![format!("{hour:02}:00")], outcomes(counts)));
    let spread = report.users.approved_per_user.iter().map(|row| (vec![row.approved.to_string()], each(&row.users)));
    let pressure = ("Pressure, in one instance".to_owned(), pressure(report));
    let mut tables = vec![
        ("By segment".to_owned(), names("segment", &report.segments)),
        (
            "By cap: how many intents it suppressed".to_owned(),
            grid(&["segment", "cap", "what"], &["suppressed"], caps.collect()),
        ),
        (
            "By budget: how many intents it suppressed, and when it first had too little left".to_owned(),
            budgets(report),
        ),
        pressure,
        ("Routes: how many intents would have waited for the rate".to_owned(), routes(report)),
        ("By reason".to_owned(), grid(&["reason"], &["suppressed"], reasons.collect())),
        ("Deferrals".to_owned(), grid(&["intents"], &["deferred"], deferrals(report))),
        ("By channel".to_owned(), names("channel", &report.channels)),
        ("By category".to_owned(), names("category", &report.categories)),
        (format!("By hour of the day, {}", report.timezone), grid(&["hour"], &["sent", "suppressed"], hours.collect())),
        ("Messages sent to a user".to_owned(), Grid { words: 0, ..grid(&["messages"], &["users"], spread.collect()) }),
    ];
    tables.extend(changed(report));
    tables
}

/// The budgets; no row where there is none.
fn budgets(report: &Report) -> Grid {
    let row = |row: &BudgetRow| {
        let what = in_each(&row.limits, &row.windows, "no such budget");
        let spent = row.first_spent.iter().map(|at| or(*at, "never"));
        let words = [row.budget.clone(), what].into_iter().chain(spent);
        (words.collect(), row.suppressed.iter().map(|count| vec![*count]).collect())
    };
    let spent: &[&str] =
        if report.policies.len() > 1 { &["first spent (policy)", "first spent (against)"] } else { &["first spent"] };
    grid(report, &[&["budget", "what"], spent].concat(), &["suppressed"], report.budgets.iter().map(row).collect())
}

/// The words of a row, and its numbers for each policy.
type Row = (Vec<String>, Vec<Vec<u64>>);

type NumberOf = fn(&Totals) -> u64;

/// How many intents were deferred; no row where none was.
fn deferrals(report: &Report) -> Vec<Row> {
    let rows: [(&str, NumberOf); 2] = [
        ("deferred, once or more often", |policy| policy.deferred.intents),
        ("still deferred at the end", |policy| policy.deferred.waiting),
    ];
    let counts = |of: NumberOf| report.policies.iter().map(|policy| vec![of(policy)]).collect();
    let some = report.policies.iter().any(|policy| policy.deferred.intents > 0);
    rows.into_iter().filter(|_| some).map(|(words, of)| (vec![words.to_owned()], counts(of))).collect()
}

type PressureFigure = fn(&PressureTotals) -> String;

/// The active users; no row where no policy has pressure.
fn pressure(report: &Report) -> Grid {
    let rows: [(&str, PressureFigure); 5] = [
        ("most users that may be active", |of| format!("{} in {}", of.max_active_users, of.window)),
        ("most users that were active", |of| of.peak_active_users.to_string()),
        ("when they first were", |of| or(of.peak_at, "never")),
        ("intents suppressed", |of| of.suppressed.to_string()),
        ("intents deferred, once or more often", |of| of.deferred.to_string()),
    ];
    let some = report.policies.iter().any(|policy| policy.pressure.is_some());
    let row = |(words, of): (&str, PressureFigure)| {
        let each = report.policies.iter().map(|policy| policy.pressure.as_ref().map_or_else(|| "-".to_owned(), of));
        std::iter::once(words.to_owned()).chain(each).collect()
    };
    let head = std::iter::once("pressure").chain(labels(report)).map(str::to_owned).collect();
    Grid { head, rows: rows.into_iter().filter(|_| some).map(row).collect(), words: 1 }
}

/// The routes, one row each for a policy's; no row where no policy has any.
fn routes(report: &Report) -> Grid {
    let row = |label: &str, of: &RouteTotals| {
        let longest = of.longest_wait_ms.map(|ms| in_words(i64::try_from(ms).unwrap_or(i64::MAX)));
        let [rate, waited] = [of.rate, of.waited].map(|number| or(number, "-"));
        vec![label.to_owned(), of.route.clone(), rate, of.intents.to_string(), waited, or(longest, "-")]
    };
    let labels = labels(report);
    let rows =
        labels.iter().zip(&report.policies).flat_map(|(label, policy)| policy.routes.iter().map(|of| row(label, of)));
    let head = ["policy", "route", "rate per second", "intents", "would have waited", "longest wait"];
    Grid { head: head.map(str::to_owned).to_vec(), rows: rows.collect(), words: 2 }
}

/// A table with columns for words and, for each policy, for numbers. With two policies, a last column has how many more the
/// first number is under the first one.
fn grid(report: &Report, words: &[&str], numbers: &[&str], rows: Vec<Row>) -> Grid {
    let labels = labels(report);
    let name = |number: &str, label: &str| {
        if labels.len() > 1 { format!("{number} ({label})") } else { number.to_owned() }
    };
    let mut head: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    head.extend(labels.iter().flat_map(|label| numbers.iter().map(|number| name(number, label))));
    head.extend((labels.len() > 1).then(|| "difference".to_owned()));
    let row = |(mut cells, counts): Row| {
        cells.extend(counts.iter().flatten().map(u64::to_string));
        if let [first, second] = &counts[..] {
            cells.push(format!("{:+}", first[0].cast_signed().saturating_sub(second[0].cast_signed())));
        }
        cells
    };
    Grid { head, rows: rows.into_iter().map(row).collect(), words: words.len() }
}

fn outcomes(outcomes: &[VerdictCounts]) -> Vec<Vec<u64>> {
    outcomes.iter().map(|counts| vec![counts.sent(), counts.suppressed]).collect()
}

fn or(value: Option<impl ToString>, otherwise: &str) -> String {
    value.map_or_else(|| otherwise.to_owned(), |value| value.to_string())
}

/// Segment, cap, and the cap's limit and window in each policy.
fn cap_words(row: &CapRow) -> Vec<String> {
    let what = in_each(&row.limits, &row.windows, "no such cap");
    vec![or(row.segment.as_ref(), "(none)"), row.cap.clone(), what]
}

/// A limit and its window in each policy, once where they are the same.
fn in_each<L: Display>(limits: &[Option<L>], windows: &[Option<String>], absent: &str) -> String {
    let of_policy = |(limit, window): (&Option<L>, &Option<String>)| match (limit, window) {
        (Some(limit), Some(window)) => format!("{limit} {window}"),
        (None, _) | (_, None) => absent.to_owned(),
    };
    let mut all: Vec<String> = limits.iter().zip(windows).map(of_policy).collect();
    all.dedup();
    all.join(" / ")
}

fn changed(report: &Report) -> Option<(String, Grid)> {
    let changed = report.users.changed.as_ref()?;
    let rows = changed.first.iter().map(|user| {
        let words = [user.user_id.clone(), or(user.segment.as_ref(), "(none)")];
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
