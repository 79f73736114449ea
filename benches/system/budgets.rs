//! Budgets side by side: one call per intent, the published fixed batch, and weir's leases: `cargo xtask bench budgets`.
//!
//! Instances come and go, and offer more than the limit. All figures are counts by a clock of the simulation: no figure depends on the
//! machine. Instances hold the leases that a worker holds (`weir_core::limit::budget::lease`); the ledger is the reference of
//! `lua/take.lua`, which tests compare with the script.

mod approvals;
mod load;
mod methods;
mod report;
mod weir;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::{
    approvals::Approvals,
    load::{Scene, Window},
};
use crate::goals::{self, Goal, Wanted};

/// Goals on calls are for limits from so many per instance on.
const LARGE: u64 = 20_000;

#[derive(Debug, Clone, Args)]
pub struct Budgets {
    /// These windows only [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    windows: Vec<Window>,
    /// Limits
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000,10000000")]
    limits: Vec<u64>,
    /// Instances
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,50")]
    instances: Vec<usize>,
    /// Whether refills take what is left where that is less than a thousandth of the limit
    #[arg(long)]
    best_effort: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    decisions: u64,
    /// Of the ledger.
    calls: u64,
    /// By how much a window exceeded the limit at most.
    most_over: u64,
    /// The share of the limit that was used.
    used: f64,
    /// The same, where what was lost with killed instances counts as used; weir's only.
    used_or_lost: f64,
    /// Batches, and those of them that waited for the ledger; weir's only.
    batches: u64,
    waited: u64,
}

impl Figures {
    /// With those of the approvals.
    fn with(self, scene: &Scene, approvals: &mut Approvals) -> Self {
        debug_assert!(self.decisions >= approvals.all(), "{scene:?}");
        Self { most_over: approvals.most_over(), used: approvals.used(), ..self }
    }

    fn calls_percent(&self) -> f64 {
        100.0 * self.calls as f64 / self.decisions as f64
    }

    fn waited_percent(&self) -> f64 {
        100.0 * self.waited as f64 / self.batches.max(1) as f64
    }
}

#[derive(Debug, Clone)]
struct Case {
    scene: Scene,
    one_call: Figures,
    fixed: Figures,
    weir: Figures,
}

pub fn run(budgets: &Budgets) -> Result<String> {
    let Budgets { limits, instances, best_effort, .. } = budgets;
    let windows = if budgets.windows.is_empty() { Window::value_variants() } else { &budgets.windows };
    let mut scenes = Vec::new();
    for window in windows.iter().copied() {
        for limit in limits.iter().copied() {
            let scene = |instances| Scene { window, limit, instances, best_effort: *best_effort };
            scenes.extend(instances.iter().copied().map(scene));
        }
    }
    let cases = run_all(&scenes)?;
    let goals = judge(&cases);
    Ok(format!("{}\n{}", report::tables(&cases), goals::lines(&goals)))
}

/// Runs all cases, as many at once as there are cores.
fn run_all(scenes: &[Scene]) -> Result<Vec<Case>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    eprintln!("{} cases, each with three methods", scenes.len());
    let of_core = |core: usize| -> Result<Vec<(usize, Case)>> {
        let scenes = scenes.iter().enumerate().skip(core).step_by(cores);
        scenes.map(|(place, scene)| Ok((place, run_one(scene).with_context(|| format!("{scene:?}"))?))).collect()
    };
    let cases: Result<Vec<_>> = std::thread::scope(|scope| {
        let of_core = &of_core;
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || of_core(core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that simulates does not panic")).collect()
    });
    let cases: BTreeMap<usize, Case> = cases?.into_iter().flatten().collect();
    Ok(cases.into_values().collect())
}

fn run_one(scene: &Scene) -> Result<Case> {
    let (one_call, fixed) = (methods::one_call_per_intent(scene)?, methods::fixed_batch(scene));
    Ok(Case { scene: *scene, one_call, fixed, weir: weir::leases(scene)? })
}

/// Why a turn of the ledger has no answer.
const TAKEN_BEFORE: &str = "a later turn was taken before";

/// The worst cases of weir against the goals.
fn judge(cases: &[Case]) -> Vec<Goal> {
    let worst = |of: fn(&Figures) -> f64, worse: fn(f64, f64) -> f64, which: &dyn Fn(&Case) -> bool| {
        cases.iter().filter(|case| which(case)).map(|case| of(&case.weir)).reduce(worse)
    };
    let is_large = |case: &Case| case.scene.limit >= LARGE * case.scene.instances as u64;
    // Bursts leave times when nobody asks for more.
    let is_asked = |case: &Case| case.scene.window != Window::HourInBursts;
    let over = worst(|weir| weir.most_over as f64, f64::max, &|_| true);
    let fast = worst(Figures::calls_percent, f64::max, &|case| is_large(case) && !case.scene.window.kind().is_even);
    let even = worst(Figures::calls_percent, f64::max, &|case| is_large(case) && case.scene.window.kind().is_even);
    let waited = worst(Figures::waited_percent, f64::max, &is_large);
    let used = |weir: &Figures| 100.0 * weir.used_or_lost;
    let rolling = worst(used, f64::min, &|case| is_asked(case) && case.scene.window.kind().is_rolling);
    let period = worst(used, f64::min, &|case| !case.scene.window.kind().is_rolling);
    let goals = [
        ("tokens above the limit in any window", Wanted::AtMost(0.0), over),
        ("calls, % of decisions, as fast as intents are read, limit >= 20,000 x instances", Wanted::AtMost(0.1), fast),
        ("calls, % of decisions, even load, limit >= 20,000 x instances", Wanted::AtMost(0.1), even),
        ("batches that wait, %, limit >= 20,000 x instances", Wanted::AtMost(1.0), waited),
        ("used in a period or total, % of the limit (or lost by a kill)", Wanted::AtLeast(99.0), period),
        ("used in a rolling window, % of the limit (or lost by a kill)", Wanted::AtLeast(97.0), rolling),
    ];
    goals.into_iter().filter_map(|(name, wanted, worst)| Some(Goal::of(12, name, wanted, worst?))).collect()
}
