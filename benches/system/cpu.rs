//! All CPU that an intent takes, of worker, Redis and broker together: `cargo xtask bench cpu`.
//!
//! Lean intents (some 110 bytes) for many users in no order: the load where everything but the body costs most. weir drains them under
//! two caps per segment, once with and once without a channel filter, and the published way drains them beside it.

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::Table;

use crate::{
    Settings,
    bare_loop::Kind,
    goals::{self, Goal, Wanted},
    report::{Ratio, median, table},
    rounds::{self, Capped, Program},
    servers::Servers,
    workload::{Caps, Payload, Workload},
};

#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("intents", |intents| intents.default_value("1000000")),
    mut_arg("users", |users| users.default_value("200000").help("Users they are for, picked evenly")),
)]
pub struct Cpu {
    #[command(flatten)]
    settings: Settings,
}

/// One round: three drains of the same intents.
#[derive(Debug)]
struct Round {
    filter: Capped,
    no_filter: Capped,
    zset: Capped,
}

pub fn run(cpu: &Cpu) -> Result<String> {
    let settings = &cpu.settings;
    let rounds = settings.rounds;
    let workload = Workload { payload: Payload::None, ..settings.workload() };
    let mut servers = Servers::start(settings, workload)?;
    let mut other = servers.publish(settings, Workload { caps: Caps::ChannelFilter, ..workload })?;
    let weir = |servers: &Servers| Ok::<_, anyhow::Error>(rounds::weir(servers, &Program::this(), |_| Ok(()))?.capped);
    eprintln!("a drain to warm up");
    weir(&servers)?;
    let mut all = Vec::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let zset = rounds::capped(&servers, Kind::SortedSets).context("the published way")?;
        let no_filter = weir(&servers).context("weir without a filter")?;
        other = servers.turn_to(other);
        let filter = weir(&servers).context("weir with a filter")?;
        other = servers.turn_to(other);
        all.push(Round { filter, no_filter, zset });
    }
    let (goals, Workload { intents, users, .. }) = (goals(&all), workload);
    Ok(format!(
        "{}\n{rounds} rounds of {intents} intents for {users} users\n\n{}\n{}",
        servers.machine,
        ways(&all),
        goals::lines(&goals)
    ))
}

type Way = fn(&Round) -> &Capped;

/// CPU of worker, Redis and broker per intent.
fn total(capped: &Capped) -> f64 {
    capped.drained.cpu_us + capped.redis.cpu_us + capped.drained.broker_cpu_us
}

fn goals(rounds: &[Round]) -> [Goal; 3] {
    let all = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    let no_filter = all(|round| round.no_filter.redis.cpu_us);
    let together = median(&all(|round| total(&round.filter)));
    let filter = Ratio::of(&all(|round| round.filter.redis.cpu_us), &no_filter).median;
    let redis = Ratio::of(&no_filter, &all(|round| round.zset.redis.cpu_us)).median;
    [
        Goal::of(9, "all CPU per intent, one cap of two with a filter, us", Wanted::AtMost(10.0), together),
        Goal::of(9, "Redis CPU with a filter, of that without", Wanted::AtMost(1.25), filter),
        Goal::of(2, "Redis CPU per decision, of the ZSET script's", Wanted::AtMost(0.20), redis),
    ]
}

fn ways(rounds: &[Round]) -> Table {
    let head = ["CPU, us per intent", "worker", "Redis", "broker", "together", "intents/s"];
    let rows: [(&str, Way); 3] = [
        ("weir, a cap with a filter", |round| &round.filter),
        ("weir, no filter", |round| &round.no_filter),
        ("the published way", |round| &round.zset),
    ];
    let row = |(name, way): (&str, Way)| {
        let of = |figure: fn(&Capped) -> f64| median(&rounds.iter().map(|one| figure(way(one))).collect::<Vec<_>>());
        let us = |figure| format!("{:.2}", of(figure));
        [
            name.to_owned(),
            us(|capped| capped.drained.cpu_us),
            us(|capped| capped.redis.cpu_us),
            us(|capped| capped.drained.broker_cpu_us),
            us(total),
            format!("{:.0}", of(|capped| capped.drained.intents_per_s)),
        ]
    };
    table(head, rows.map(row))
}
