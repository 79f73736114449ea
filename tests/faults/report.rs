//! The results: printed, kept as a file, and written to docs/reliability.md.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};

use crate::{
    catalogue::{CASES, Case},
    judge::{Found, TrialVerdict},
    trial::{Findings, Order},
};

const BEGIN: &str = "<!-- faults: begin -->";
const END: &str = "<!-- faults: end -->";
/// The promised seconds that the table leaves out.
const USUAL_WITHIN_S: u64 = 30;

#[derive(Debug)]
pub struct Report {
    /// When, on what machine and with what servers it ran, as far as figures depend on it.
    ran: String,
    pub outcomes: Vec<Outcome>,
}

#[derive(Debug)]
pub struct Outcome {
    case: &'static Case,
    findings: Findings,
    /// Why it could not be judged.
    failure: Option<String>,
    took_s: u64,
    /// Whether a time beyond the promised one is a failure; else it is shown.
    times_count: bool,
}

impl Outcome {
    pub fn of(order: &Order, found: Result<Findings, String>, took: Duration) -> Self {
        let (findings, failure) = match found {
            Ok(findings) => (findings, None),
            Err(failure) => (Findings { times: order.times, ..Findings::default() }, Some(failure)),
        };
        Self { case: order.case, findings, failure, took_s: took.as_secs(), times_count: order.times_count }
    }

    pub fn holds(&self) -> bool {
        let kept = self.findings.verdict.keeps(self.case.promise);
        self.failure.is_none() && kept && (self.findings.in_time(self.case) || !self.times_count)
    }

    /// One line for a person, and the evidence if a promise is broken.
    pub fn line(&self) -> String {
        let Findings { verdict, times, notes, .. } = &self.findings;
        let TrialVerdict { intents, approved, lost, twice, exceeded, different } = verdict;
        let mut text = format!(
            "{:4} {}: {times} times, {intents} intents, {approved} approved, N {} O {} C {}, P {}, {} s",
            self.case.key,
            if self.holds() { "holds" } else { "FAILS" },
            lost.count,
            twice.count,
            exceeded.count,
            self.back(),
            self.took_s
        );
        let evidence = [("lost", lost), ("twice", twice), ("exceeded", exceeded), ("not the model's", different)];
        for (name, Found { count, first }) in evidence.into_iter().filter(|(_, found)| found.count > 0) {
            text += &format!("\n     {name}: {count}\n       {}", first.join("\n       "));
        }
        if !self.findings.in_time(self.case) {
            text += &format!("\n     late: {} s are promised", self.case.within_s);
        }
        for said in notes.iter().chain(&self.failure) {
            text += &format!("\n     {said}");
        }
        text
    }

    /// Median and longest time until new intents were committed.
    fn back(&self) -> String {
        let mut sorted = self.findings.back_ms.clone();
        sorted.sort_unstable();
        let seconds = |ms: u128| format!("{:.1}", ms as f64 / 1_000.0);
        match (sorted.get(sorted.len() / 2), sorted.last()) {
            (Some(middle), Some(last)) if sorted.len() > 1 => format!("{} / {} s", seconds(*middle), seconds(*last)),
            (Some(only), _) => format!("{} s", seconds(*only)),
            (None, _) => "-".to_owned(),
        }
    }

    fn row(&self) -> String {
        let Findings { verdict: TrialVerdict { lost, twice, exceeded, .. }, times, notes, .. } = &self.findings;
        let broken: Vec<String> = [("N", lost.count), ("O", twice.count), ("C", exceeded.count)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("**{name} {count}**"))
            .collect();
        let kept = match &self.failure {
            Some(_) => "?".to_owned(),
            None if broken.is_empty() => "yes".to_owned(),
            None => broken.join(", "),
        };
        let promised = match self.case.within_s {
            USUAL_WITHIN_S => String::new(),
            seconds => format!(" ({seconds} s)"),
        };
        let notes = if self.holds() { notes.join("; ") } else { "**fails**".to_owned() };
        format!(
            "| {} | {} | {times} | {kept} | {}{promised} | {} |",
            self.case.key,
            self.case.what,
            self.back(),
            notes.replace('|', "\\|").replace('\n', " ")
        )
    }
}

impl Report {
    pub fn begin() -> Self {
        Self { ran: ran(), outcomes: Vec::new() }
    }

    /// The table, with the rows of cases that did not run.
    pub fn table(&self, others: &BTreeMap<String, String>) -> String {
        let (mut rows, mut older) = (String::new(), "");
        for case in CASES {
            let own = self.outcomes.iter().find(|outcome| outcome.case.key == case.key).map(Outcome::row);
            let other = others.get(case.key).filter(|row| row.contains(case.what));
            if own.is_none() && other.is_some() {
                older = " Cases that were not part of it have the row of an earlier run.";
            }
            if let Some(row) = own.as_ref().or(other) {
                rows += row;
                rows.push('\n');
            }
        }
        format!(
            "{}{older}\n\n\
             | # | fault | times | N, O, C | P: median / longest (promised, if not {USUAL_WITHIN_S} s) | seen |\n\
             |---|---|---|---|---|---|\n{rows}",
            self.ran
        )
    }

    /// Writes the table into a page between its markers; rows of cases that did not run stay, unless the case is another one now.
    pub fn write(&self, page: &Path) -> Result<()> {
        let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        let marked = format!("{} has no {BEGIN} ... {END}", page.display());
        let (before, rest) = text.split_once(BEGIN).context(marked.clone())?;
        let (old, after) = rest.split_once(END).context(marked)?;
        let others = old
            .lines()
            .filter_map(|line| Some((line.strip_prefix("| ")?.split_once(" |")?.0.to_owned(), line.to_owned())))
            .collect();
        let mut table = self.table(&others);
        let has_no_row = |case: &&Case| !table.lines().any(|row| row.starts_with(&format!("| {} | ", case.key)));
        let without: Vec<&str> = CASES.iter().filter(has_no_row).map(|case| case.key).collect();
        if !without.is_empty() {
            let keys = without.join(", ");
            table += &format!("\nWithout a row, because they were written or changed since they were run: {keys}.\n");
        }
        fs::write(page, format!("{before}{BEGIN}\n{table}{END}{after}"))
            .with_context(|| format!("cannot write {}", page.display()))
    }
}

fn ran() -> String {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default();
    let jar = fs::read_dir(testkit::kafka::libs_folder()).ok().and_then(|mut files| {
        files.find_map(|file| {
            let name = file.ok()?.file_name().into_string().ok()?;
            Some(name.strip_prefix("kafka-clients-")?.strip_suffix(".jar")?.to_owned())
        })
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (redis, day) = (said("redis-server", "--version"), said("date", "+%F"));
    format!(
        "Last run {}: {cores} cores, {} GiB, shared by the servers, the load and the workers; Kafka {}, Redis {}, weir's debug build.",
        day.trim(),
        kib >> 20,
        jar.as_deref().unwrap_or("?"),
        &redis.split_whitespace().nth(2).unwrap_or("v=?")[2..]
    )
}

fn said(program: &str, arg: &str) -> String {
    let output = testkit::process::output(Command::new(program).arg(arg));
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
