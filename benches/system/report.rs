//! What is printed: medians of the rounds, and ratios within rounds.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::{
    Settings,
    machine::Machine,
    rounds::{Drained, RedisCost, Round},
    workload::Workload,
};

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    settings: Settings,
    workload: Workload,
    figures: Vec<Figure>,
    rounds: Vec<Round>,
}

/// One figure of weir's beside its yardstick's.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    yardstick: Yardstick,
    /// The yardstick's median.
    beside: f64,
    /// weir's median.
    weir: f64,
    /// The median of weir's over the yardstick's in the same round.
    ratio: f64,
    /// The smallest and the largest of them.
    ratios: (f64, f64),
    #[serde(skip)]
    decimals: usize,
}

/// What a figure of weir's is put beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Yardstick {
    BareLoop,
    SortedSets,
}

impl Report {
    /// Takes the medians.
    pub fn new(machine: Machine, settings: Settings, workload: Workload, rounds: Vec<Round>) -> Self {
        type OfDrain = fn(&Drained) -> f64;
        type OfRedis = fn(&RedisCost) -> f64;
        let drains: [(_, _, OfDrain); 3] = [
            ("intents/s", 0, |drained| drained.intents_per_s),
            ("worker CPU, us an intent", 2, |drained| drained.cpu_us),
            ("intents a commit", 0, |drained| drained.batch),
        ];
        let costs: [(_, _, OfRedis); 6] = [
            ("Redis CPU, us a decision", 2, |cost| cost.cpu_us),
            ("bytes a user (used_memory)", 0, |cost| cost.user_bytes),
            ("bytes a user (used_memory_dataset)", 0, |cost| cost.user_dataset_bytes),
            ("script calls a decision", 3, |cost| cost.script_calls),
            ("redis.calls a decision", 3, |cost| cost.redis_calls),
            ("share suppressed", 3, |cost| cost.suppressed),
        ];
        let drains = drains.map(|(name, decimals, of)| {
            let pairs = rounds.iter().map(|round| (of(&round.bare), of(&round.weir))).collect();
            Figure::of(name, decimals, Yardstick::BareLoop, pairs)
        });
        let costs = costs.map(|(name, decimals, of)| {
            let pairs = rounds.iter().map(|round| (of(&round.zset_redis), of(&round.weir_redis))).collect();
            Figure::of(name, decimals, Yardstick::SortedSets, pairs)
        });
        Self { machine, settings, workload, figures: drains.into_iter().chain(costs).collect(), rounds }
    }

    fn table(&self, yardstick: Yardstick, title: &str) -> Table {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN).set_header(["", title, "weir", "weir : it", "rounds"]);
        for figure in self.figures.iter().filter(|figure| figure.yardstick == yardstick) {
            let decimals = figure.decimals;
            table.add_row([
                figure.name.to_owned(),
                format!("{:.decimals$}", figure.beside),
                format!("{:.decimals$}", figure.weir),
                format!("{:.2}", figure.ratio),
                format!("{:.2} to {:.2}", figure.ratios.0, figure.ratios.1),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Figure {
    fn of(name: &'static str, decimals: usize, yardstick: Yardstick, rounds: Vec<(f64, f64)>) -> Self {
        let ratios = sorted(rounds.iter().map(|(beside, weir)| weir / beside));
        Self {
            name,
            yardstick,
            beside: median(&sorted(rounds.iter().map(|(beside, _)| *beside))),
            weir: median(&sorted(rounds.iter().map(|(_, weir)| *weir))),
            ratio: median(&ratios),
            ratios: (ratios.first().copied().unwrap_or(f64::NAN), ratios.last().copied().unwrap_or(f64::NAN)),
            decimals,
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The one in the middle, or between the two there; NaN of none.
fn median(sorted: &[f64]) -> f64 {
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        (_, middle) => sorted[middle],
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpu, cores, memory_mib, kernel, load, weir, kafka, redis, librdkafka } = &self.machine;
        writeln!(f, "machine: {cores} cores of {cpu}, {memory_mib} MiB, Linux {kernel}, load {load} at the start")?;
        writeln!(
            f,
            "versions: weir {weir}, Kafka {kafka} (1 broker), Redis {redis} (3 primaries), librdkafka {librdkafka}"
        )?;
        let Settings { rounds, partitions, lanes, batch, shards, seed, .. } = &self.settings;
        let Workload { intents, users, .. } = &self.workload;
        writeln!(
            f,
            "load: {intents} intents of {users} users in 4 segments with 2 caps each, {partitions} partitions, seed {seed}"
        )?;
        writeln!(f, "settings: {lanes} lane(s), batch {batch}, {shards} shards; medians of {rounds} round(s)\n")?;
        writeln!(f, "{}\n", self.table(Yardstick::BareLoop, "bare loop, overlapped"))?;
        writeln!(f, "{}\n", self.table(Yardstick::SortedSets, "a ZSET a user"))?;
        let Some(last) = self.rounds.last() else { return Ok(()) };
        let stages: Vec<_> = last.stages_ms.iter().map(|(stage, ms)| format!("{stage} {ms:.1}")).collect();
        write!(
            f,
            "a batch of weir's, ms (last round; flush, produce and commit run beside the others): {}",
            stages.join(", ")
        )
    }
}
