//! What the demo tells at its end.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    gateway::{CHANNEL, PER_S},
    publisher::PER_S as KEPT_PER_S,
};

/// Where a record is from: one of the outputs, or the deferred intents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordKind {
    Approved,
    Suppressed,
    Deferred,
    DeadLetter,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct BudgetCounts {
    pub(super) approved: u64,
    pub(super) suppressed: u64,
}

/// Approved texts, which are paced by their gateway.
#[derive(Debug, Default)]
pub(super) struct Texts {
    approved: u64,
    waited: u64,
    most_undelivered: u64,
    first_at: Option<Instant>,
    took: Duration,
}

impl Texts {
    pub(super) fn approved(&mut self, waited: bool) {
        self.approved += 1;
        self.waited += u64::from(waited);
        self.took = self.first_at.get_or_insert_with(Instant::now).elapsed();
    }

    /// So many have been taken by the gateway by now.
    pub(super) fn taken(&mut self, taken: u64) {
        self.most_undelivered = self.most_undelivered.max(self.approved.saturating_sub(taken));
    }

    /// For programs; null where no text was approved.
    fn report(&self) -> Value {
        let Self { approved, waited, most_undelivered, took, .. } = self;
        if *approved == 0 {
            return Value::Null;
        }
        json!({
            "route": CHANNEL,
            "gateway_per_s": PER_S,
            "approved": approved,
            "waited": waited,
            "most_undelivered": most_undelivered,
            // From the first text to the last.
            "seconds": took.as_secs_f64(),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) texts: Texts,
    budgets: BTreeMap<String, BudgetCounts>,
    counts: BTreeMap<(String, RecordKind, String), u64>,
    samples: BTreeMap<RecordKind, String>,
    pub(super) records: u64,
    first_at: Option<Instant>,
    took: Duration,
}

/// A run that is over sooner says nothing of the rate, in seconds.
const SHORTEST_RATED_S: f64 = 0.5;

impl Summary {
    /// Adds a record; `text` is asked for the first of its kind.
    pub(super) fn add(&mut self, kind: RecordKind, segment: &str, why: &str, text: impl FnOnce() -> String) {
        let first_at = *self.first_at.get_or_insert_with(Instant::now);
        self.took = first_at.elapsed();
        self.records += 1;
        *self.counts.entry((segment.to_owned(), kind, why.to_owned())).or_default() += 1;
        self.samples.entry(kind).or_insert_with(text);
    }

    pub(super) fn budget(&mut self, name: &str) -> &mut BudgetCounts {
        self.budgets.entry(name.to_owned()).or_default()
    }

    fn of_kind(&self, kind: RecordKind) -> u64 {
        self.counts.iter().filter(|((_, found, _), _)| *found == kind).map(|(_, count)| count).sum()
    }

    /// The rate, where the run was long enough to tell.
    fn intents_per_s(&self) -> Option<f64> {
        let seconds = self.took.as_secs_f64();
        (seconds >= SHORTEST_RATED_S).then(|| self.records as f64 / seconds)
    }

    /// What [`Summary::print`] prints, but the samples.
    pub(super) fn report(&self) -> Value {
        let became = self.counts.iter().map(|((segment, kind, why), intents)| {
            json!({"segment": segment, "became": kind, "why": why, "intents": intents})
        });
        json!({
            "intents": self.records,
            "approved": self.of_kind(RecordKind::Approved),
            "suppressed": self.of_kind(RecordKind::Suppressed),
            "deferred": self.of_kind(RecordKind::Deferred),
            "dead_letters": self.of_kind(RecordKind::DeadLetter),
            "became": became.collect::<Vec<_>>(),
            "budgets": self.budgets,
            "texts": self.texts.report(),
            // From the first record to the last.
            "seconds": self.took.as_secs_f64(),
            // Null where the run was too short to tell.
            "intents_per_s": self.intents_per_s(),
        })
    }

    /// The tables, a sample of each record, and the rate.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let intents = self.records;
        let (approved, suppressed) = (self.of_kind(RecordKind::Approved), self.of_kind(RecordKind::Suppressed));
        let (deferred, dead) = (self.of_kind(RecordKind::Deferred), self.of_kind(RecordKind::DeadLetter));
        writeln!(
            out,
            "{intents} intents: {approved} approved, {suppressed} suppressed, {deferred} deferred, {dead} dead letters."
        )?;
        writeln!(out, "Each has one record, visible once to a read_committed reader.\n")?;
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY).set_header(["segment", "became", "why", "intents"]);
        for ((segment, kind, why), count) in &self.counts {
            let (became, why) = match kind {
                RecordKind::Approved => ("approved", ""),
                RecordKind::Suppressed => ("suppressed", why.as_str()),
                RecordKind::Deferred => ("deferred", why.as_str()),
                RecordKind::DeadLetter => ("dead letter", why.as_str()),
            };
            table.add_row([segment.as_str(), became, why, &count.to_string()]);
        }
        if let Some(column) = table.column_mut(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}\n")?;
        for (name, BudgetCounts { approved, suppressed }) in &self.budgets {
            writeln!(
                out,
                "Budget {name}, over all users: {approved} intents took from it, {suppressed} found it spent.\n"
            )?;
        }
        let Texts { approved, waited, most_undelivered, took, .. } = &self.texts;
        if *approved > 0 {
            writeln!(
                out,
                "Route {CHANNEL}, to a gateway that takes {PER_S} a second: {approved} texts approved within {:.1} s; {waited} of them \
                 waited in Kafka. At most {most_undelivered} stood before the gateway.\n",
                took.as_secs_f64()
            )?;
        }
        for (kind, sample) in &self.samples {
            let name = match kind {
                RecordKind::Approved => "An approved record (the intent as it came, and its headers)",
                RecordKind::Suppressed => "A suppressed one (the decision, with the intent in it)",
                RecordKind::Deferred => "A deferred intent (as it came, with headers; weir decides it when it is due)",
                RecordKind::DeadLetter => "A dead letter (as it came)",
            };
            writeln!(out, "{name}:\n{sample}\n")?;
        }
        if let Some(rate) = self.intents_per_s() {
            let seconds = self.took.as_secs_f64();
            writeln!(
                out,
                "From the first record to the last: {seconds:.1} s, {rate:.0} intents/s, with broker, store, publisher and reader in this one process."
            )?;
        }
        Ok(())
    }
}

pub(super) fn how_to_go_on(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "
How to go on:
  weir demo --keep            stays up with {KEPT_PER_S} intents/s, for its page and your own Kafka client
  cargo xtask stack           Kafka, a Redis Cluster and S3 on this machine, for `weir run`
  docker compose up           the same in containers
  README.md                   the rest"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_of_texts_is_told_to_people_and_programs_once_one_was_approved() {
        let printed = |summary: &Summary| {
            let mut out = Vec::new();
            summary.print(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let told = |summary: &Summary| summary.report()["texts"].take();
        let mut summary = Summary::default();
        assert!(!printed(&summary).contains("Route"));
        assert_eq!(told(&summary), Value::Null);
        for waited in [false, true, true] {
            summary.texts.approved(waited);
        }
        // Three stand, then one; at the end none does.
        for taken in [0, 2, 3] {
            summary.texts.taken(taken);
        }
        let text = printed(&summary);
        let approved = "Route sms, to a gateway that takes 150 a second: 3 texts approved within ";
        let waited = "; 2 of them waited in Kafka. At most 3 stood before the gateway.";
        assert!(text.contains(approved) && text.contains(waited), "{text}");
        let texts = told(&summary);
        let counts = ["gateway_per_s", "approved", "waited", "most_undelivered"].map(|name| texts[name].as_u64());
        assert_eq!((counts, &texts["route"]), ([150, 3, 2, 3].map(Some), &json!("sms")), "{texts}");
    }
}
