//! The printed report: medians of the rounds, and ratios within rounds.

use std::fmt;

use comfy_table::{CellAlignment, Row, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::{
    Settings,
    calls::LongestCalls,
    goals::{self, Goal},
    machine::Machine,
    rounds::{Capped, Drained, RedisCost, Round},
    sizes::Sizes,
    store::StoreCost,
    workload::Workload,
};

#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    settings: Settings,
    workload: Workload,
    figures: Vec<Figure>,
    sizes: Sizes,
    store: StoreCost,
    calls: LongestCalls,
    goals: Vec<Goal>,
    rounds: Vec<Round>,
}

#[derive(Debug)]
pub struct Measured {
    pub rounds: Vec<Round>,
    pub sizes: Sizes,
    pub store: StoreCost,
    /// Script calls where they are worst.
    pub calls: LongestCalls,
}

/// One figure: medians, and weir's over the others'.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    /// The bare loop's, where it has one.
    bare: Option<f64>,
    /// The published way's.
    zset: f64,
    weir: f64,
    /// weir's over the bare loop's.
    to_bare: Option<Ratio>,
    /// weir's over the published way's.
    to_zset: Ratio,
    #[serde(skip)]
    decimals: usize,
}

/// A ratio of two figures of the same round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ratio {
    pub median: f64,
    pub smallest: f64,
    pub largest: f64,
}

impl Report {
    pub fn new(machine: Machine, settings: Settings, workload: Workload, measured: Measured) -> Self {
        let Measured { rounds, sizes, store, calls } = measured;
        let drained = |name, decimals, of: fn(&Drained) -> f64| {
            let bare: Vec<f64> = rounds.iter().map(|round| of(&round.bare)).collect();
            Figure::of(name, decimals, Some(&bare), &rounds, |capped| of(&capped.drained))
        };
        let redis = |name, decimals, of: fn(&RedisCost) -> f64| {
            Figure::of(name, decimals, None, &rounds, |capped| of(&capped.redis))
        };
        // src/cli/plan/measured.rs finds figures by these names in benches/measured.json.
        let figures = vec![
            drained("intents/s", 0, |drained| drained.intents_per_s),
            drained("worker CPU, us per intent", 2, |drained| drained.cpu_us),
            drained("intents per commit", 0, |drained| drained.batch),
            drained("resident memory at most, MiB", 0, |drained| drained.resident_mib),
            redis("Redis CPU, us per decision", 2, |cost| cost.cpu_us),
            redis("bytes per user (used_memory)", 0, |cost| cost.user_bytes),
            redis("script calls per decision", 3, |cost| cost.script_calls),
            redis("redis.calls per decision", 3, |cost| cost.redis_calls),
            redis("share suppressed", 3, |cost| cost.suppressed),
        ];
        let goals = goals::judge(&rounds, &calls);
        Self { machine, settings, workload, figures, goals, sizes, store, calls, rounds }
    }

    fn table(&self) -> Table {
        let head = ["", "bare loop", "a ZSET per user", "weir", "weir : bare loop", "weir : ZSET"];
        let row = |Figure { name, bare, zset, weir, to_bare, to_zset, decimals }: &Figure| {
            let number = |value: f64| format!("{value:.decimals$}");
            let bare = bare.map(number).unwrap_or_default();
            let to_bare = to_bare.map(|ratio| ratio.to_string()).unwrap_or_default();
            [(*name).to_owned(), bare, number(*zset), number(*weir), to_bare, to_zset.to_string()]
        };
        table(head, self.figures.iter().map(row))
    }
}

/// What stands behind the first column, numbers, stands to the right.
pub fn table<R: Into<Row>>(head: impl Into<Row>, rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl Figure {
    fn of(
        name: &'static str,
        decimals: usize,
        bare: Option<&[f64]>,
        rounds: &[Round],
        of: impl Fn(&Capped) -> f64,
    ) -> Self {
        let all = |way: fn(&Round) -> &Capped| -> Vec<f64> { rounds.iter().map(|round| of(way(round))).collect() };
        let (zset, weir) = (all(|round| &round.zset), all(|round| &round.weir.capped));
        let (to_bare, to_zset) = (bare.map(|bare| Ratio::of(&weir, bare)), Ratio::of(&weir, &zset));
        let (bare, zset, weir) = (bare.map(median), median(&zset), median(&weir));
        Self { name, bare, zset, weir, to_bare, to_zset, decimals }
    }
}

impl Ratio {
    /// Ours over theirs, by round.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let (smallest, largest) = (ratios.iter().copied().reduce(f64::min), ratios.iter().copied().reduce(f64::max));
        let or_none = |end: Option<f64>| end.unwrap_or(f64::NAN);
        Self { median: median(&ratios), smallest: or_none(smallest), largest: or_none(largest) }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.smallest, self.largest)
    }
}

/// The figure that this share of them does not exceed, by nearest rank; NaN of none.
pub fn quantile(ascending: &[f64], share: f64) -> f64 {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// The one in the middle, or between the two there; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        (_, middle) => sorted[middle],
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let Settings { rounds, partitions, batch, shards, .. } = &self.settings;
        let lanes = self.settings.lane_count();
        let Workload { intents, users, .. } = &self.workload;
        writeln!(f, "load: {intents} intents of {users} users in 4 segments, 2 caps each, {partitions} partitions")?;
        writeln!(f, "settings: {lanes} lane(s), batch {batch}, {shards} shards; medians of {rounds} round(s)\n")?;
        writeln!(f, "{}\n", self.table())?;
        for goal in &self.goals {
            writeln!(f, "{goal}")?;
        }
        write!(f, "\n{}", self.calls)
    }
}
