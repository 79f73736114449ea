//! How the pace of a route follows its consumer, simulated: plots for the docs.

#[path = "../../crates/core/src/limit/route/pace/world.rs"]
mod world;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use weir_core::limit::route::{
    delivery_signals::{Deliveries, DeliverySignals, WaitingQueue},
    pace::{Controller, Delivered, Lag, Pace, PartitionLag, Sample},
};

use self::world::{Rate, Second, World};
use crate::plot::{self, Plot};

/// What delivery takes before it changes, per second.
const RATE: f64 = 400.0;
/// `ahead` of the route, in seconds.
const AHEAD_S: i64 = 30;
const SECONDS: u32 = 600;
/// What lies between two points, in seconds.
const STEP: usize = 20;

#[derive(Debug, Args)]
pub struct PacePlots {
    /// Where the plots go, pace-<case>.svg each
    #[arg(long, default_value = "docs/images")]
    plots: PathBuf,
}

pub fn run(args: &PacePlots) -> Result<String> {
    let cases: [(&str, Rate<'_>); 7] = [
        ("steps up", &|at| if at < 240.0 { RATE / 2.0 } else { RATE }),
        ("halves", &|at| if at < 240.0 { RATE } else { RATE / 2.0 }),
        ("is dead", &|_| 0.0),
        ("stops", &|at| if (200.0..400.0).contains(&at) { 0.0 } else { RATE }),
        ("ramps", &|at| RATE * (0.25 + at / 400.0).min(1.5)),
        ("oscillates", &|at| RATE * (1.0 + 0.5 * (at / 40.0).sin())),
        ("gets nothing for a while", &|_| RATE),
    ];
    let mut text = String::new();
    for (name, takes) in cases {
        // Of one that has never delivered only the ceiling is known.
        let ceiling = (name == "is dead").then_some(2 * whole(RATE));
        // weir approves nothing, though intents wait.
        let stalls = if name == "gets nothing for a while" { 200.0..400.0 } else { 0.0..0.0 };
        let seconds = World { ceiling, stalls, ..World::new(AHEAD_S, takes) }.run(SECONDS);
        draw(name, takes, &seconds, args)?;
        let settled = seconds.iter().filter(|second| second.at >= 90.0);
        let sum = |of: fn(&Second) -> f64| settled.clone().map(of).sum::<f64>();
        let most = settled.clone().map(|second| second.undelivered).fold(0.0, f64::max);
        let could = sum(|second| second.could);
        let taken = if could > 0.0 { sum(|second| second.taken) / could } else { 0.0 };
        let most_undelivered_s = most / RATE;
        text += &format!(
            "{name}: {:.1}% of what delivery could take; at most {most_undelivered_s:.0} s undelivered\n",
            taken * 100.0
        );
    }
    Ok(text)
}

fn draw(name: &str, takes: Rate<'_>, seconds: &[Second], args: &PacePlots) -> Result<()> {
    let steps = || seconds.chunks(STEP);
    let mean = |of: &dyn Fn(&Second) -> f64| {
        steps().map(|step| step.iter().map(of).sum::<f64>() / step.len() as f64 / RATE).collect::<Vec<_>>()
    };
    let at = |place: usize| place * STEP;
    let label = |place: usize| if at(place) % 100 == 0 { format!("{} s", at(place)) } else { String::new() };
    let labels: Vec<String> = (0..steps().count()).map(label).collect();
    let lines = [
        ("delivery can take", mean(&|second| takes(second.at))),
        ("approved", mean(&|second| second.approved)),
        ("estimate", mean(&|second| second.pace.drain_per_s)),
        ("undelivered / ahead", mean(&|second| second.undelivered / AHEAD_S as f64)),
    ];
    let title = format!("A service that {name}: rates, as a share of {RATE} per second");
    let plot = Plot { title: &title, labels: &labels, lines: &lines, band: (0.0, 1.2) };
    plot::write(&plot, &args.plots.join(format!("pace-{}.svg", name.replace(' ', "-"))))
}

fn to_f64(count: u64) -> f64 {
    count as f64
}

fn whole(count: f64) -> u64 {
    count as u64
}
