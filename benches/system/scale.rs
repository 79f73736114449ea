//! Whether what an intent costs depends on how much there is: `cargo xtask bench scale`.
//!
//! One thing at a time is changed: users, campaigns, Redis nodes, the order of users, lanes. Each point is a drain of
//! its own backlog, and right before it the dimension's base case is drained on the same broker; figures are ratios of
//! the two, so that a machine that changes its speed in between changes little. The base case itself is measured
//! against a second drain of the base case: what that differs by is noise.

use std::{fmt, path::PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;
use testkit::redis::RedisCluster;

use crate::{
    Output, Settings,
    machine::Machine,
    plot::{self, Plot},
    report::Ratio,
    rounds::{self, Capped},
    servers::{Load, PRIMARIES, Servers},
    store,
    workload::{Order, Workload},
};

/// The fewest intents that a drain can be watched over.
const MIN_INTENTS: u32 = 50_000;
/// Sends a user: of those who get any, unless the order says otherwise.
const SENDS: u32 = 5;
/// Users of the base case where every user has a history before.
const BASE_USERS: u32 = 100_000;
/// What is flat: within a tenth.
const FLAT: (f64, f64) = (0.9, 1.1);

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// 10,000 to 10 million users, each with a send two days before
    Users,
    /// 1 to 1,000 campaigns
    Campaigns,
    /// 1 to 12 Redis nodes
    Nodes,
    /// Users picked evenly, by zipf(1.2), or in the order of their ids
    Order,
    /// One lane and two
    Lanes,
}

/// Whether an intent costs the same however much there is
#[derive(Debug, Clone, Args, Serialize)]
pub struct Scale {
    /// These only [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Dimension>,
    /// Intents of each drain
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(i64::from(MIN_INTENTS)..=20_000_000))]
    intents: u32,
    /// Drains of each point, and of the base case beside it; figures are medians of their ratios
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// The most users; points with more are left out
    #[arg(long, default_value_t = 10_000_000)]
    users: u32,
    /// Partitions of each topic
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: i32,
    /// What users and kinds are picked by
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the plots go, scale-<dimension>.svg each
    #[arg(long, default_value = "docs/images")]
    plots: PathBuf,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Output::Table)]
    #[serde(skip)]
    output: Output,
}

/// Before a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Histories {
    /// There are none.
    None,
    /// Every user has one send.
    OneSend,
}

/// What is drained, and by what.
#[derive(Debug, Clone, Copy, Serialize)]
struct Setup {
    workload: Workload,
    lanes: u16,
    nodes: usize,
    histories: Histories,
}

/// One place of a dimension.
#[derive(Debug, Clone, Serialize)]
struct Point {
    label: String,
    setup: Setup,
    /// The base case beside it, as many intents as here.
    base: Setup,
    drains: Vec<Capped>,
    base_drains: Vec<Capped>,
    ratios: Vec<Figure>,
}

/// A figure of a point over that of the base case.
#[derive(Debug, Clone, Copy, Serialize)]
struct Figure {
    name: &'static str,
    ratio: Ratio,
}

#[derive(Debug, Serialize)]
struct Measured {
    dimension: Dimension,
    points: Vec<Point>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    scale: Scale,
    dimensions: Vec<Measured>,
}

impl Scale {
    /// How the result is printed.
    pub fn output(&self) -> Output {
        self.output
    }

    fn settings(&self, lanes: u16) -> Settings {
        let Self { intents, rounds, partitions, seed, output, .. } = *self;
        Settings { rounds, intents, partitions, lanes, seed, output, ..Settings::defaults() }
    }

    /// The points of a dimension, each with its base case.
    fn points(&self, dimension: Dimension) -> Vec<Point> {
        let all = Workload::new(self.intents, self.intents / SENDS, self.seed);
        let base = Setup { workload: all, lanes: 1, nodes: PRIMARIES, histories: Histories::None };
        let with = |workload| Setup { workload, ..base };
        match dimension {
            Dimension::Users => [10_000, 100_000, 1_000_000, 10_000_000]
                .into_iter()
                .filter(|users| *users <= self.users)
                .map(|users| Point::of(grouped(users), self.of_users(users), self.of_users_beside(users)))
                .collect(),
            Dimension::Campaigns => [1, 100, 1000]
                .into_iter()
                .map(|campaigns| {
                    let of = |campaigns| with(Workload { campaigns, ..all });
                    Point::of(grouped(campaigns), of(campaigns), of(1))
                })
                .collect(),
            Dimension::Nodes => [1, 3, 6, 12]
                .into_iter()
                .map(|nodes| Point::of(nodes.to_string(), Setup { nodes, ..base }, base))
                .collect(),
            Dimension::Order => [("evenly", Order::Uniform), ("zipf(1.2)", Order::Zipf), ("by id", Order::ById)]
                .into_iter()
                .map(|(label, order)| Point::of(label.to_owned(), with(Workload { order, ..all }), base))
                .collect(),
            Dimension::Lanes => {
                [1, 2].into_iter().map(|lanes| Point::of(lanes.to_string(), Setup { lanes, ..base }, base)).collect()
            }
        }
    }

    /// So many users, of whom as many as make five sends each are drawn, evenly spread over the ids.
    fn of_users(&self, users: u32) -> Setup {
        let intents = self.intents.min(users * SENDS).max(MIN_INTENTS);
        let active = (intents / SENDS).min(users);
        let workload = Workload { users, segmented: users, active, ..Workload::new(intents, users, self.seed) };
        Setup { workload, lanes: 1, nodes: PRIMARIES, histories: Histories::OneSend }
    }

    /// The base case with as many intents as that many users get.
    fn of_users_beside(&self, users: u32) -> Setup {
        let base = self.of_users(BASE_USERS);
        let intents = self.of_users(users).workload.intents;
        Setup { workload: Workload { intents, active: intents / SENDS, ..base.workload }, ..base }
    }
}

impl Point {
    fn of(label: String, setup: Setup, base: Setup) -> Self {
        Self { label, setup, base, drains: Vec::new(), base_drains: Vec::new(), ratios: Vec::new() }
    }
}

/// Runs it, and writes the plots.
///
/// # Errors
/// Something breaks.
pub fn run(scale: &Scale) -> Result<Report> {
    let all = Dimension::value_variants();
    let wanted = all.iter().copied().filter(|one| scale.only.is_empty() || scale.only.contains(one));
    eprintln!("starting Kafka and a Redis Cluster");
    let first = scale.points(Dimension::Lanes)[0].base;
    let mut servers = Servers::start_empty(&scale.settings(1), first.workload)?;
    let machine = Machine::look(&servers)?;
    eprintln!("a drain to warm up");
    drain(&mut servers, scale, &first)?;
    let mut dimensions = Vec::new();
    for dimension in wanted {
        let mut points = scale.points(dimension);
        for point in &mut points {
            eprintln!("{}: {}", name(dimension), point.label);
            measure(&mut servers, scale, point).with_context(|| format!("{} {}", name(dimension), point.label))?;
        }
        let measured = Measured { dimension, points };
        measured.plot(scale)?;
        dimensions.push(measured);
    }
    Ok(Report { machine, scale: scale.clone(), dimensions })
}

/// Drains a point and its base case, as often as wanted.
fn measure(servers: &mut Servers, scale: &Scale, point: &mut Point) -> Result<()> {
    for _ in 0..scale.rounds {
        point.base_drains.push(drain(servers, scale, &point.base)?);
        if point.setup.nodes == PRIMARIES {
            point.drains.push(drain(servers, scale, &point.setup)?);
        } else {
            let other = RedisCluster::start(point.setup.nodes, 0).context("the Redis Cluster")?;
            let usual = std::mem::replace(&mut servers.redis, other);
            let drained = drain(servers, scale, &point.setup);
            servers.redis = usual;
            point.drains.push(drained?);
        }
    }
    let ratio = |name, of: fn(&Capped) -> f64| {
        let all = |drains: &[Capped]| drains.iter().map(of).collect::<Vec<_>>();
        Figure { name, ratio: Ratio::of(&all(&point.drains), &all(&point.base_drains)) }
    };
    point.ratios = vec![
        ratio("worker CPU", |drain| drain.drained.cpu_us),
        ratio("Redis CPU", |drain| drain.redis.cpu_us),
        ratio("redis.calls", |drain| drain.redis.redis_calls),
        ratio("intents/s", |drain| drain.drained.intents_per_s),
    ];
    Ok(())
}

/// Publishes a backlog and drains it.
fn drain(servers: &mut Servers, scale: &Scale, setup: &Setup) -> Result<Capped> {
    let load: Load = servers.publish(&scale.settings(setup.lanes), setup.workload)?;
    let before = servers.turn_to(load);
    let drained = rounds::weir(servers, |run| match setup.histories {
        Histories::None => Ok(()),
        Histories::OneSend => store::give_a_send(servers, run),
    });
    let load = servers.turn_to(before);
    servers.delete(&load)?;
    servers.flush_redis()?;
    Ok(drained?.capped)
}

impl Measured {
    fn plot(&self, scale: &Scale) -> Result<()> {
        let labels: Vec<String> = self.points.iter().map(|point| point.label.clone()).collect();
        let count = self.points.first().map_or(0, |point| point.ratios.len());
        let lines: Vec<(&'static str, Vec<f64>)> = (0..count)
            .map(|at| {
                let values = self.points.iter().map(|point| point.ratios[at].ratio.median);
                (self.points[0].ratios[at].name, values.collect())
            })
            .collect();
        let title = format!("Cost an intent by {}, over the base case beside it", self.dimension.what());
        let plot = Plot { title: &title, labels: &labels, lines: &lines, band: FLAT };
        plot::write(&plot, &scale.plots.join(format!("scale-{}.svg", name(self.dimension))))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        let mut head = vec![self.dimension.what(), "intents", "worker CPU, us", "Redis CPU, us", "redis.calls"];
        head.extend(["suppressed", "worker CPU : base", "Redis CPU : base", "redis.calls : base", "intents/s : base"]);
        head.push("within 10%");
        table.set_header(head);
        for point in &self.points {
            let median =
                |of: fn(&Capped) -> f64| crate::report::median(&point.drains.iter().map(of).collect::<Vec<_>>());
            let mut row = vec![point.label.clone(), grouped(point.setup.workload.intents)];
            row.push(format!("{:.2}", median(|drain| drain.drained.cpu_us)));
            row.push(format!("{:.2}", median(|drain| drain.redis.cpu_us)));
            row.push(format!("{:.3}", median(|drain| drain.redis.redis_calls)));
            row.push(format!("{:.2}", median(|drain| drain.redis.suppressed)));
            row.extend(point.ratios.iter().map(|figure| format!("{:.2}", figure.ratio.median)));
            row.push(point.verdict());
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Point {
    /// Whether its costs (the rate is none) are within a tenth of the base case's.
    fn verdict(&self) -> String {
        let costs = self.ratios.iter().filter(|figure| figure.name != "intents/s");
        let said = costs.filter_map(|Figure { name, ratio }| {
            let place = match ratio.median {
                above if above > FLAT.1 => "above",
                below if below < FLAT.0 => "below",
                _ => return None,
            };
            Some(format!("{name} {place}"))
        });
        let said = said.collect::<Vec<_>>().join(", ");
        if said.is_empty() { "yes".to_owned() } else { format!("no: {said}") }
    }
}

impl Dimension {
    fn what(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Campaigns => "campaigns",
            Self::Nodes => "Redis nodes",
            Self::Order => "order of users",
            Self::Lanes => "lanes",
        }
    }
}

fn name(dimension: Dimension) -> String {
    dimension.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// 1,000,000
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let start = digits.len() % 3;
    let (first, rest) = digits.split_at(start);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(first.to_owned()).filter(|first| !first.is_empty()).chain(groups).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, scale, dimensions } = self;
        let Machine { cpu, cores, memory_mib, kernel, load, weir, kafka, redis, librdkafka } = machine;
        writeln!(f, "machine: {cores} cores of {cpu}, {memory_mib} MiB, Linux {kernel}, load {load} at the start")?;
        writeln!(f, "versions: weir {weir}, Kafka {kafka}, Redis {redis}, librdkafka {librdkafka}")?;
        writeln!(f, "{} round(s); five intents a user and two caps, unless the row says otherwise", scale.rounds)?;
        for measured in dimensions {
            writeln!(f, "\n{}", measured.table())?;
        }
        Ok(())
    }
}
