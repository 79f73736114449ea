//! `weir plan`: capacity arithmetic, each line with its formula and where its constant was measured.

use std::{io::Write, path::PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weir_core::plan::{Constant, Line, Plan, Section};

use super::output::OutputForm;

mod asked;
mod measured;
mod quantity;

pub use asked::Figures;
pub use measured::{BadMeasured, FILE, Machine, measured};
pub use quantity::{BadQuantity, Bytes, Count, Share, Span, Whole, Written};

/// `weir plan`
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// A TOML file of these figures (`users = "270M"`, `node_memory = "16GiB"`); flags win
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    #[command(flatten)]
    figures: Figures,
    /// In which form to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// What is asked for cannot be planned: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPlan(pub String);

/// Plans, and prints the plan.
///
/// # Errors
/// [`InvalidPlan`], or that `out` could not be written to.
pub fn run(args: &PlanArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let from_file = args.inputs.as_deref().map(Figures::read).transpose()?.unwrap_or_default();
    let given = args.figures.clone().or(from_file).complete()?;
    let (measured, machine) = measured()?;
    let plan = Plan::new(&given, &measured).map_err(|error| InvalidPlan(error.to_string()))?;
    match args.output {
        OutputForm::Text => write!(out, "{}", in_text(&plan, &machine))?,
        OutputForm::Json => writeln!(out, "{:#}", in_json(&plan, &machine))?,
    }
    Ok(())
}

/// The constants that some line is made with, in order: their places are their notes' numbers.
fn used(plan: &Plan) -> Vec<Constant> {
    let used = |constant: &Constant| plan.lines.iter().any(|line| line.constants.contains(constant));
    Constant::ALL.into_iter().filter(used).collect()
}

fn in_text(plan: &Plan, machine: &Machine) -> String {
    let notes = used(plan);
    let note = |line: &Line| -> String {
        let places = line.constants.iter().filter_map(|constant| notes.iter().position(|known| known == constant));
        places.map(|place| format!(" [{}]", place + 1)).collect()
    };
    let widest = |of: fn(&Line) -> usize| plan.lines.iter().map(of).max().unwrap_or(0);
    let (names, values) = (widest(|line| line.name.len()), widest(|line| line.unit.show(line.value).len()));
    let mut text = String::new();
    for section in [Section::Redis, Section::Workers, Section::Kafka, Section::Time] {
        text += &format!("{}\n", section.name());
        for line in plan.lines.iter().filter(|line| line.section == section) {
            let (name, value, formula) = (line.name, line.unit.show(line.value), &line.formula);
            text += &format!("  {name:names$}  {value:>values$}  = {formula}{}\n", note(line));
        }
        text.push('\n');
    }
    for remark in &plan.remarks {
        text += &format!("Note: {remark}\n\n");
    }
    let Machine { cpu, cores, load, weir, kafka, redis, note } = machine;
    text += &format!(
        "Measured by `cargo xtask bench` ({FILE}): weir {weir}, Kafka {kafka}, Redis {redis} on {cores} shared cores of \
         {cpu}, load {load}\n"
    );
    text.extend(note.iter().map(|note| format!("{note}\n")));
    for (number, constant) in notes.iter().enumerate() {
        text += &format!("  [{}] {}: {} {}\n", number + 1, constant.meaning(), constant.file(), constant.place());
    }
    text
}

fn in_json(plan: &Plan, machine: &Machine) -> Value {
    let constant = |constant: &Constant| json!({"meaning": constant.meaning(), "file": constant.file(), "place": constant.place()});
    let line = |line: &Line| {
        json!({
            "section": line.section.name(),
            "id": line.id,
            "name": line.name,
            "value": line.value,
            "unit": line.unit.name(),
            "text": line.unit.show(line.value),
            "formula": line.formula,
            "constants": line.constants.iter().map(constant).collect::<Vec<_>>(),
        })
    };
    let Machine { cpu, cores, load, weir, kafka, redis, note } = machine;
    json!({
        "lines": plan.lines.iter().map(line).collect::<Vec<_>>(),
        "remarks": plan.remarks,
        "measured_on": {"cpu": cpu, "cores": cores, "load": load, "weir": weir, "kafka": kafka, "redis": redis,
            "note": note},
    })
}

#[cfg(test)]
mod tests;
