//! Whether what an intent costs depends on how much there is: `cargo xtask bench scale`.
//!
//! One thing at a time is changed: users, campaigns, Redis nodes, the order of users, lanes. Each point is a drain of
//! its own backlog, and right before it the dimension's base case is drained on the same broker; figures are ratios of
//! the two, so that a machine that changes its speed in between changes little. The base case itself is measured
//! against a second drain of the base case: what that differs by is noise.

mod points;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use testkit::redis::RedisCluster;

use self::points::{Dimension, Point, Setup};
use crate::{
    Settings,
    report::Ratio,
    rounds::{self, Capped, Program},
    servers::{Load, PRIMARIES, Run, Servers},
    store,
};

/// The fewest intents that a drain can be watched over.
const MIN_INTENTS: u32 = 50_000;

#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("rounds", |rounds| rounds.default_value("1")),
    mut_arg("intents", |intents| intents.default_value("200000").help("Intents of each drain")),
    mut_arg("users", |users| users.help("The most users; points with more are left out")),
)]
pub struct Scale {
    /// These only [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Dimension>,
    #[command(flatten)]
    settings: Settings,
    /// Where the plots go, scale-<dimension>.svg each
    #[arg(long, default_value = "docs/images")]
    plots: PathBuf,
}

/// A figure of a point over that of the base case, the median of the rounds.
type Figure = (&'static str, f64);

#[derive(Debug)]
struct Measured {
    dimension: Dimension,
    points: Vec<Point>,
}

impl Scale {
    fn settings(&self, lanes: u16) -> Settings {
        Settings { lanes, ..self.settings.clone() }
    }
}

pub fn run(scale: &Scale) -> Result<String> {
    let all = Dimension::value_variants();
    let wanted = all.iter().copied().filter(|one| scale.only.is_empty() || scale.only.contains(one));
    let first = scale.points(Dimension::Lanes)[0].base;
    let mut servers = Servers::start_empty(&scale.settings(1), first.workload)?;
    eprintln!("a drain to warm up");
    drain(&mut servers, scale, &first)?;
    let mut dimensions = Vec::new();
    for dimension in wanted {
        let mut points = scale.points(dimension);
        for point in &mut points {
            eprintln!("{}: {}", dimension.name(), point.label);
            measure(&mut servers, scale, point).with_context(|| format!("{} {}", dimension.name(), point.label))?;
        }
        let measured = Measured { dimension, points };
        measured.plot(scale)?;
        dimensions.push(measured);
    }
    let tables: String = dimensions.iter().map(|measured| format!("\n{}\n", measured.table())).collect();
    let rounds = scale.settings.rounds;
    Ok(format!(
        "{}\n{rounds} round(s); five intents per user and two caps, unless the row says otherwise\n{tables}",
        servers.machine
    ))
}

/// Drains a point and its base case, as often as wanted.
fn measure(servers: &mut Servers, scale: &Scale, point: &mut Point) -> Result<()> {
    for _ in 0..scale.settings.rounds {
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
        (name, Ratio::of(&all(&point.drains), &all(&point.base_drains)).median)
    };
    point.ratios = vec![
        ratio("worker CPU", |drain| drain.drained.cpu_us),
        ratio("Redis CPU", |drain| drain.redis.cpu_us),
        ratio("redis.calls", |drain| drain.redis.redis_calls),
        ratio("intents/s", |drain| drain.drained.intents_per_s),
    ];
    Ok(())
}

fn drain(servers: &mut Servers, scale: &Scale, setup: &Setup) -> Result<Capped> {
    let load: Load = servers.publish(&scale.settings(setup.lanes), setup.workload)?;
    let before = servers.turn_to(load);
    let fill = |run: &Run| if setup.has_histories { store::give_a_send(servers, run) } else { Ok(()) };
    let drained = rounds::weir(servers, &Program::this(), fill);
    let load = servers.turn_to(before);
    servers.delete(&load)?;
    servers.flush_redis()?;
    Ok(drained?.capped)
}
