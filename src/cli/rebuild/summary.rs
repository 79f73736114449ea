//! What a rebuild has done, for people and programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    time::Duration,
};

use serde::Serialize;
use weir_core::{basis::time::Time, limit::budget::BudgetId};
use weir_kafka::extents::Extent;
use weir_redis::rebuild::Beginning;

use super::{
    fill::RebuildTopic,
    read::{Counts, ReadReport},
};
use crate::cli::output::{OutputForm, plain, print_json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BudgetOutcome {
    /// It was lost, and holds what was counted.
    Restored,
    /// It holds what was counted again.
    Recounted,
    /// It was closed, and holds what was used before, too.
    Opened,
    /// It grants nothing.
    Closed,
    /// It is as it was, though something else was asked for.
    Unchanged,
}

#[derive(Debug, Serialize)]
pub(super) struct BudgetLine {
    budget: String,
    outcome: BudgetOutcome,
    /// The tokens that count now; those that were added where it was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// Why it is closed or unchanged.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    command: String,
}

impl BudgetLine {
    pub(super) fn done(id: &BudgetId, outcome: BudgetOutcome, used: u64) -> Self {
        Self { budget: id.to_string(), outcome, used: Some(used), message: String::new(), command: String::new() }
    }

    pub(super) fn closed(id: &BudgetId, message: impl Into<String>, command: String) -> Self {
        Self { budget: id.to_string(), outcome: BudgetOutcome::Closed, used: None, message: message.into(), command }
    }

    /// Of the campaigns of a budget that nothing names.
    pub(super) fn of_unknown(self) -> Self {
        Self { budget: format!("{} of campaigns that nothing names", self.budget), ..self }
    }

    pub(super) fn unchanged(id: &BudgetId, message: impl Into<String>, command: String) -> Self {
        Self { outcome: BudgetOutcome::Unchanged, ..Self::closed(id, message, command) }
    }

    pub(super) fn with_used(self, used: u64) -> Self {
        Self { used: Some(used), ..self }
    }

    /// Whether somebody has to do something.
    fn is_open_end(&self) -> bool {
        match self.outcome {
            BudgetOutcome::Restored | BudgetOutcome::Recounted | BudgetOutcome::Opened => false,
            BudgetOutcome::Closed | BudgetOutcome::Unchanged => true,
        }
    }
}

/// In words: `spring: restored, 4711 used`.
impl std::fmt::Display for BudgetLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { budget, outcome, used, message, command } = self;
        let used = used.unwrap_or_default();
        match outcome {
            BudgetOutcome::Restored => write!(f, "{budget}: restored, {used} used"),
            BudgetOutcome::Recounted => write!(f, "{budget}: counted again, {used} used"),
            BudgetOutcome::Opened => write!(f, "{budget}: opened with {used} used before"),
            BudgetOutcome::Closed => write!(f, "{budget}: CLOSED, {message}. Open it with: {command}"),
            BudgetOutcome::Unchanged => write!(f, "{budget}: unchanged, {message}. To do so: {command}"),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    shards: BTreeSet<u16>,
    /// `fresh`, `resumed` or `new_keyspace`.
    beginning: &'static str,
    /// Names of kinds and campaigns that were written, where their tables had been lost.
    pub(super) names_repaired: usize,
    approved_records: u64,
    sends: u64,
    restored: u64,
    uncounted: u64,
    foreign: u64,
    unreadable: u64,
    refund_records: u64,
    delivery_report_records: u64,
    taken_back: u64,
    seconds: f64,
    sends_per_second: f64,
    pub(super) budgets: Vec<BudgetLine>,
    warnings: Vec<String>,
    /// Partitions read from their very beginning, which is not that of the topic: records before are deleted. And when the first record
    /// was written that was there, where one was read.
    #[serde(skip)]
    cut: BTreeMap<i32, Option<Time>>,
    /// How long reading took, waiting not counted.
    #[serde(skip)]
    pub(super) reading: Duration,
}

impl Summary {
    pub(super) fn new(shards: &BTreeSet<u16>, beginning: Beginning) -> Self {
        let beginning = match beginning {
            Beginning::Fresh => "fresh",
            Beginning::Resumed => "resumed",
            Beginning::NewKeyspace => "new_keyspace",
        };
        Self { shards: shards.clone(), beginning, ..Self::default() }
    }

    /// Notes which partitions begin later than they once did. Of what an earlier run had read: up to before which offsets, and what
    /// [`Summary::cut_at`] was then.
    pub(super) fn begins(&mut self, approved: &[Extent], (next, first): (&BTreeMap<i32, i64>, &BTreeMap<i32, Time>)) {
        let cut = |&Extent { partition, low, since, .. }: &Extent| {
            let (next, first) = (next.get(&partition), first.get(&partition));
            let is_cut = match next {
                Some(next) if *next > low => first.is_some(),
                // What was to be read next is deleted, or nothing was read.
                Some(_) => low > 0,
                None => low > 0 && since == low,
            };
            // Where records behind those that were read are deleted, it begins anew.
            let first = first.copied().filter(|_| next.is_some_and(|next| *next >= low));
            is_cut.then_some((partition, first))
        };
        self.cut = approved.iter().filter_map(cut).collect();
    }

    /// When the first record was written of each partition that begins later than it once did, as far as one was read.
    pub(super) fn cut_at(&self) -> impl Iterator<Item = (i32, Time)> {
        self.cut.iter().filter_map(|(partition, first)| Some((*partition, (*first)?)))
    }

    pub(super) fn add(&mut self, source: RebuildTopic, report: &ReadReport) {
        let Counts { records, sends, restored, uncounted, foreign, unreadable, taken_back } = report.counts;
        match source {
            RebuildTopic::Approved => {
                self.approved_records += records;
                for (partition, time) in &report.first {
                    self.cut.entry(*partition).and_modify(|first| *first = first.or(Some(*time)));
                }
            }
            RebuildTopic::Refunds => self.refund_records += records,
            RebuildTopic::DeliveryReports => self.delivery_report_records += records,
        }
        self.sends += sends;
        self.restored += restored;
        self.uncounted += uncounted;
        self.foreign += foreign;
        self.unreadable += unreadable;
        self.taken_back += taken_back;
    }

    /// Says where the history is longer than what could be read. What was decided since `there_since` is there, whatever was read.
    pub(super) fn warn_of_gaps(&mut self, (history_begins, there_since): (Time, Time), since: Option<Time>) {
        if let Some(since) = since.filter(|since| *since > history_begins) {
            self.warnings.push(format!("sends before {since} were not read (--since): histories begin there"));
        }
        let late = self.cut.values().flatten().map(|first| *first.min(&there_since));
        if let Some(latest) = late.filter(|first| *first > history_begins).max() {
            self.warnings.push(format!(
                "the approved topic's retention has deleted records that are younger than redis.history: sends before \
                 {latest} are not restored, and caps that look back further are too generous until then. Set the \
                 topic's retention.ms above redis.history"
            ));
        }
        let empty = self.cut.values().filter(|first| first.is_none()).count();
        if empty > 0 {
            self.warnings.push(format!(
                "all records are deleted that {empty} partitions of the approved topic once had: what was sent by them before \
                 {there_since} is not restored. Set the topic's retention.ms above redis.history"
            ));
        }
        if self.unreadable > 0 {
            self.warnings
                .push(format!("{} approved records could not be read: their sends are forgotten", self.unreadable));
        }
    }

    /// Warns of totals of campaigns that their shards had no room for.
    pub(super) fn warn_of_gone(&mut self, gone: usize) {
        if gone > 0 {
            self.warnings.push(format!(
                "{gone} totals of campaigns are left out, because their shards have no room for them (redis.max_totals): they count \
                 as spent. Spent ones went first, then the ones that approvals on the approved topic used least. \
                 weir rebuild --budget NAME/CAMPAIGN counts one again; add --budget-used NAME/CAMPAIGN=N if some of its \
                 approvals are no longer on the topic"
            ));
        }
    }

    /// Prints it; fails where a budget is closed, or is not as it was asked for.
    pub(super) fn print(mut self, form: OutputForm, took: Duration, out: &mut impl Write) -> anyhow::Result<()> {
        self.seconds = took.as_secs_f64();
        if !self.reading.is_zero() {
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let sends = self.sends as f64;
            self.sends_per_second = (sends / self.reading.as_secs_f64()).round();
        }
        match form {
            OutputForm::Json => print_json(&self, out)?,
            OutputForm::Text => self.text(out)?,
        }
        let left = self.budgets.iter().filter(|line| line.is_open_end()).count();
        anyhow::ensure!(left == 0, "{left} budgets are closed, or not as asked for: see above for the commands");
        Ok(())
    }

    fn text(&self, out: &mut impl Write) -> anyhow::Result<()> {
        if self.names_repaired > 0 {
            writeln!(out, "names      {} of kinds and campaigns repaired", self.names_repaired)?;
        }
        if self.shards.is_empty() {
            writeln!(out, "every shard has its history: nothing to restore")?;
            return self.budgets_text(out);
        }
        writeln!(out, "shards     {} ({})", self.shards.len(), in_words(&self.shards))?;
        writeln!(out, "began      {}", self.beginning.replace('_', " "))?;
        writeln!(out, "approved   {} records read, {} sends of these shards", self.approved_records, self.sends)?;
        writeln!(out, "restored   {} sends that were not there", self.restored)?;
        let reports = match self.delivery_report_records {
            0 => String::new(),
            reports => format!(" and {reports} reports of deliveries"),
        };
        writeln!(out, "refunds    {}{reports} read, {} sends taken back", self.refund_records, self.taken_back)?;
        writeln!(out, "time       {:.1} s, {} sends/s while reading", self.seconds, self.sends_per_second)?;
        self.budgets_text(out)?;
        for warning in &self.warnings {
            writeln!(out, "warning    {warning}")?;
        }
        Ok(())
    }

    fn budgets_text(&self, out: &mut impl Write) -> anyhow::Result<()> {
        for line in &self.budgets {
            writeln!(out, "budget     {}", plain(&line.to_string()))?;
        }
        Ok(())
    }
}

/// Shards in few words: `3, 5-9`.
fn in_words(shards: &BTreeSet<u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for &shard in shards {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == shard => *last = shard,
            Some(_) | None => ranges.push((shard, shard)),
        }
    }
    let range = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: u32) -> Time {
        Time::from_rfc3339(&format!("2026-11-{day:02}T00:00:00Z")).unwrap()
    }

    #[test]
    fn a_budget_is_one_line_whatever_its_campaign_is_called() {
        let campaign = Some("spring\nwarning    none\u{1b}[2J".into());
        let id = BudgetId { name: "money".into(), campaign };
        let summary =
            Summary { budgets: vec![BudgetLine::done(&id, BudgetOutcome::Restored, 7)], ..Summary::default() };
        let mut out = Vec::new();
        summary.text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let told = "budget     money of campaign spring\\nwarning    none\\u{1b}[2J: restored, 7 used";
        assert_eq!(text.lines().last(), Some(told), "{text}");
    }

    #[test]
    fn a_topic_that_begins_later_than_the_history_is_told_with_the_time_from_which_on_all_is_there() {
        let extent = |partition, low, since| Extent { partition, low, since, high: 100 };
        let history = (day(13), day(30));
        // The second was cut after the history's begin, the third before it; the others never.
        let extents = [extent(0, 0, 0), extent(1, 10, 10), extent(2, 10, 10), extent(3, 10, 50)];
        let mut summary = Summary::new(&[1].into(), Beginning::Fresh);
        summary.begins(&extents, (&BTreeMap::new(), &BTreeMap::new()));
        for first in [vec![(0, day(20)), (1, day(15)), (2, day(12)), (3, day(19))], vec![(2, day(20))]] {
            let first = first.into_iter().collect();
            summary.add(RebuildTopic::Approved, &ReadReport { first, ..ReadReport::default() });
        }
        summary.warn_of_gaps(history, None);
        assert_eq!(summary.warnings.len(), 1);
        assert!(summary.warnings[0].contains("before 2026-11-15T00:00:00"), "{:?}", summary.warnings);

        let mut summary = Summary::new(&[1].into(), Beginning::Fresh);
        summary.warn_of_gaps(history, Some(day(14)));
        assert!(summary.warnings[0].contains("--since"));
    }

    /// A run, and the one that goes on with it, of partitions that were cut; the second one has next offsets and what the first noted.
    #[test]
    fn a_run_that_goes_on_tells_of_the_gaps_that_the_first_one_found() {
        let extents = |lows: [i64; 5]| {
            let extent = |(partition, low)| Extent { partition, low, since: low, high: 100 };
            (0..).zip(lows).map(extent).collect::<Vec<_>>()
        };
        let begun = |lows: [i64; 5], next: &BTreeMap<i32, i64>, first: &BTreeMap<i32, Time>| {
            let mut summary = Summary::new(&[1].into(), Beginning::Resumed);
            summary.begins(&extents(lows), (next, first));
            summary
        };
        let mut summary = begun([0, 10, 10, 10, 0], &BTreeMap::new(), &BTreeMap::new());
        let report =
            ReadReport { first: [(0, day(2)), (1, day(3)), (3, day(4)), (4, day(2))].into(), ..ReadReport::default() };
        summary.add(RebuildTopic::Approved, &report);
        let noted: BTreeMap<i32, Time> = summary.cut_at().collect();
        assert_eq!(noted, BTreeMap::from([(1, day(3)), (3, day(4))]));

        // Of the third nothing was read. Of the last two, more is deleted since than was read.
        let next = [(0, 50), (1, 50), (2, 10), (3, 50), (4, 50)].into();
        let mut summary = begun([0, 10, 10, 60, 60], &next, &noted);
        assert_eq!(summary.cut, BTreeMap::from([(1, Some(day(3))), (2, None), (3, None), (4, None)]));
        let report = ReadReport { first: [(1, day(9)), (3, day(8))].into(), ..ReadReport::default() };
        summary.add(RebuildTopic::Approved, &report);
        assert_eq!(summary.cut, BTreeMap::from([(1, Some(day(3))), (2, None), (3, Some(day(8))), (4, None)]));

        // What is younger is there, though no record of it was read here.
        summary.warn_of_gaps((day(1), day(6)), None);
        let [late, empty] = &summary.warnings[..] else { panic!("{:?}", summary.warnings) };
        assert!(late.contains("before 2026-11-06T00:00:00"), "{late}");
        assert!(empty.contains("2 partitions") && empty.contains("before 2026-11-06T00:00:00"), "{empty}");
    }
}
