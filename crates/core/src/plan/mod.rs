//! Capacity arithmetic: from a number of users and a rate to Redis, Kafka and workers.
//!
//! Every result is a [`Line`] that carries its formula, with the numbers put in, and the measured constants in it.
//! What is measured comes in as [`Measured`]; what is assumed (shares of load and memory) is given like the rest.

use std::fmt;

mod curve;
mod given;
mod kafka;
mod measured;
mod store;
mod time;
mod unit;
mod worker;

#[cfg(test)]
mod tests;

pub use curve::{BadCurve, Curve};
pub use given::{BadGiven, Given, Most, most_sends};
pub use measured::{Constant, Measured};
pub use unit::{Unit, grouped};

/// Round trips to the brokers in one commit: partitions are added, records produced, offsets added and sent, and the
/// transaction ended, one after the other. That is Kafka's protocol, not a measurement.
pub const COMMIT_ROUND_TRIPS: f64 = 5.0;
/// The fewest primaries of a Redis Cluster.
pub const FEWEST_PRIMARIES: f64 = 3.0;
/// Partitions a lane, for a topic yet to be made: adding some later moves users to others, and out of order.
pub const PARTITIONS_A_LANE: f64 = 2.0;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Memory, CPU and nodes of Redis.
    Redis,
    /// Lanes, cores and memory of the workers.
    Workers,
    /// Partitions, rates and disks of Kafka.
    Kafka,
    /// How long a blast, a rebuild and a queue take.
    Time,
}

impl Section {
    /// Its heading.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Workers => "Workers",
            Self::Kafka => "Kafka",
            Self::Time => "Time",
        }
    }
}

/// One result.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is about.
    pub section: Section,
    /// What programs know it by.
    pub id: &'static str,
    /// What people know it by.
    pub name: &'static str,
    /// How much, in `unit`.
    pub value: f64,
    /// Of what.
    pub unit: Unit,
    /// How it comes about, with the numbers put in.
    pub formula: String,
    /// The measured constants in the formula.
    pub constants: Vec<Constant>,
}

/// All results, and what they do not say by themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The results, by section.
    pub lines: Vec<Line>,
    /// What the reader should know or do besides.
    pub remarks: Vec<String>,
}

impl Plan {
    /// Plans.
    ///
    /// # Errors
    /// [`BadGiven`]: what is given cannot be.
    pub fn new(given: &Given, measured: &Measured) -> Result<Self, BadGiven> {
        given.check()?;
        let mut plan = Self { lines: Vec::new(), remarks: Vec::new() };
        let redis = store::plan(&mut plan, given, measured)?;
        let workers = worker::plan(&mut plan, given, measured);
        kafka::plan(&mut plan, given, measured, &workers);
        time::plan(&mut plan, given, measured, &redis, &workers)?;
        // Numbers are bounded where they come in, so this is about a file of constants that is wrong.
        match plan.lines.iter().find(|line| !line.value.is_finite()) {
            Some(line) => Err(BadGiven(format!("{} is no number: {}", line.name, line.formula))),
            None => Ok(plan),
        }
    }

    /// The value of a line; `None` where there is no such line.
    #[must_use]
    pub fn value(&self, id: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.id == id).map(|line| line.value)
    }

    fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }
}

/// Puts lines of one section into a plan.
struct Writer<'a> {
    plan: &'a mut Plan,
    section: Section,
}

impl Writer<'_> {
    /// Adds a line and gives its value back.
    fn line(
        &mut self,
        (id, name): (&'static str, &'static str),
        (value, unit): (f64, Unit),
        formula: impl fmt::Display,
        constants: &[Constant],
    ) -> f64 {
        let (section, formula, constants) = (self.section, formula.to_string(), constants.to_vec());
        self.plan.lines.push(Line { section, id, name, value, unit, formula, constants });
        value
    }
}
