//! What is drained at each place of a dimension, and beside it.

use clap::ValueEnum;

use super::{Figure, MIN_INTENTS, Scale};
use crate::{
    rounds::Capped,
    servers::PRIMARIES,
    workload::{Order, Workload},
};

/// Sends per user: of those who get any, unless the order says otherwise.
const SENDS: u32 = 5;
/// Users of the base case where every user has a history before.
const BASE_USERS: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) workload: Workload,
    pub(super) lanes: u16,
    pub(super) nodes: usize,
    /// Whether each user has a send of two days before.
    pub(super) has_histories: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) label: String,
    pub(super) setup: Setup,
    /// The base case beside it, as many intents as here.
    pub(super) base: Setup,
    pub(super) drains: Vec<Capped>,
    pub(super) base_drains: Vec<Capped>,
    pub(super) ratios: Vec<Figure>,
}

impl Scale {
    /// The points of a dimension, each with its base case.
    pub(super) fn points(&self, dimension: Dimension) -> Vec<Point> {
        let intents = self.settings.intents;
        let all = self.workload(intents, intents / SENDS);
        let base = Setup { workload: all, lanes: 1, nodes: PRIMARIES, has_histories: false };
        let with = |workload| Setup { workload, ..base };
        match dimension {
            Dimension::Users => [10_000, 100_000, 1_000_000, 10_000_000]
                .into_iter()
                .filter(|users| self.settings.users.is_none_or(|most| *users <= most))
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

    /// Intents for all of these users.
    fn workload(&self, intents: u32, users: u32) -> Workload {
        Workload { intents, users, active: users, segmented: users, ..self.settings.workload() }
    }

    /// So many users; those drawn, evenly spread over the ids, get five sends each.
    fn of_users(&self, users: u32) -> Setup {
        let intents = self.settings.intents.min(users * SENDS).max(MIN_INTENTS);
        let active = (intents / SENDS).min(users);
        let workload = Workload { active, ..self.workload(intents, users) };
        Setup { workload, lanes: 1, nodes: PRIMARIES, has_histories: true }
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

impl Dimension {
    /// Its name among the arguments.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// 1,000,000
pub(super) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let start = digits.len() % 3;
    let (first, rest) = digits.split_at(start);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(first.to_owned()).filter(|first| !first.is_empty()).chain(groups).collect::<Vec<_>>().join(",")
}
