//! What is printed, and drawn.

use anyhow::Result;
use comfy_table::Table;

use super::{
    Measured, Scale,
    points::{Point, grouped},
};
use crate::{
    plot::{self, Plot},
    report::{median, table},
    rounds::Capped,
};

/// What is flat: within a tenth.
const FLAT: (f64, f64) = (0.9, 1.1);

impl Measured {
    pub(super) fn plot(&self, scale: &Scale) -> Result<()> {
        let labels: Vec<String> = self.points.iter().map(|point| point.label.clone()).collect();
        let count = self.points.first().map_or(0, |point| point.ratios.len());
        let values = |at: usize| self.points.iter().map(|point| point.ratios[at].1).collect();
        let lines: Vec<(&str, Vec<f64>)> = (0..count).map(|at| (self.points[0].ratios[at].0, values(at))).collect();
        let title = format!("Cost per intent by {}, over the base case beside it", self.dimension.name());
        let plot = Plot { title: &title, labels: &labels, lines: &lines, band: FLAT };
        plot::write(&plot, &scale.plots.join(format!("scale-{}.svg", self.dimension.name())))
    }

    pub(super) fn table(&self) -> Table {
        let name = self.dimension.name();
        let mut head = vec![name.as_str(), "intents", "worker CPU, us", "Redis CPU, us", "redis.calls"];
        head.extend(["suppressed", "worker CPU : base", "Redis CPU : base", "redis.calls : base", "intents/s : base"]);
        head.push("within 10%");
        let row = |point: &Point| {
            let middle = |of: fn(&Capped) -> f64| median(&point.drains.iter().map(of).collect::<Vec<_>>());
            let mut row = vec![point.label.clone(), grouped(point.setup.workload.intents)];
            row.push(format!("{:.2}", middle(|drain| drain.drained.cpu_us)));
            row.push(format!("{:.2}", middle(|drain| drain.redis.cpu_us)));
            row.push(format!("{:.3}", middle(|drain| drain.redis.redis_calls)));
            row.push(format!("{:.2}", middle(|drain| drain.redis.suppressed)));
            row.extend(point.ratios.iter().map(|(_, ratio)| format!("{ratio:.2}")));
            row.push(point.verdict());
            row
        };
        table(head, self.points.iter().map(row))
    }
}

impl Point {
    /// Whether its costs (the rate is none) are within a tenth of the base case's.
    fn verdict(&self) -> String {
        let off = self.ratios.iter().filter(|(name, ratio)| *name != "intents/s" && !(FLAT.0..=FLAT.1).contains(ratio));
        let said = off.map(|(name, ratio)| format!("{name} {}", if *ratio > FLAT.1 { "above" } else { "below" }));
        let said = said.collect::<Vec<_>>().join(", ");
        if said.is_empty() { "yes".to_owned() } else { format!("no: {said}") }
    }
}
