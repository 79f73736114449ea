//! The goals, and whether a run meets them.

use std::fmt;

use serde::Serialize;

use crate::{
    calls::LongestCalls,
    report::{Ratio, median},
    rounds::Round,
};

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    number: u8,
    name: &'static str,
    wanted: Wanted,
    measured: f64,
    met: bool,
}

pub fn judge(rounds: &[Round], calls: &LongestCalls) -> Vec<Goal> {
    let all = |of: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(of).collect() };
    let ratio = |ours: fn(&Round) -> f64, theirs: fn(&Round) -> f64| Ratio::of(&all(ours), &all(theirs)).median;
    let cpu = ratio(|round| round.weir.capped.drained.cpu_us, |round| round.bare.cpu_us);
    let redis = ratio(|round| round.weir.capped.redis.cpu_us, |round| round.zset.redis.cpu_us);
    let bytes = ratio(|round| round.weir.capped.redis.user_bytes, |round| round.zset.redis.user_bytes);
    let rate = ratio(|round| round.weir.capped.drained.intents_per_s, |round| round.bare.intents_per_s);
    let same_bytes = ratio(|round| round.weir.capped.drained.cpu_us, |round| round.same_bytes.cpu_us);
    let [p999, longest] = Goal::of_calls(calls);
    let key_kib = all(|round| round.weir.largest_key_bytes).into_iter().fold(0.0, f64::max) / 1024.0;
    let trips = median(&all(|round| round.weir.round_trips));
    vec![
        Goal::of(1, "worker CPU per intent, of the bare loop's", Wanted::AtMost(1.8), cpu),
        Goal::of(1, "the same, of the loop that writes the same bytes", Wanted::AtMost(1.35), same_bytes),
        Goal::of(2, "Redis CPU per decision, of the ZSET script's", Wanted::AtMost(0.20), redis),
        Goal::of(2, "bytes per user, of the ZSET script's", Wanted::AtMost(0.33), bytes),
        Goal::of(2, "the largest key, KiB", Wanted::AtMost(64.0), key_kib),
        Goal::of(3, "intents/s, of the bare loop's", Wanted::AtLeast(0.60), rate),
        // New classes and health checks take some round trips too.
        Goal::of(4, "round trips per node and batch", Wanted::AtMost(1.1), trips),
        p999,
        longest,
    ]
}

/// A line for each.
pub fn lines(goals: &[Goal]) -> String {
    goals.iter().map(|goal| format!("{goal}\n")).collect()
}

impl Goal {
    pub fn of_calls(calls: &LongestCalls) -> [Self; 2] {
        let longest = "the longest script call of the worst case (median of the runs), ms";
        [
            Self::of(4, "a script call at p99.9 of the worst case, ms", Wanted::AtMost(1.0), calls.p999_ms()),
            Self::of(4, longest, Wanted::AtMost(5.0), calls.longest_ms()),
        ]
    }

    /// Compares a measured figure with its bound.
    pub fn of(number: u8, name: &'static str, wanted: Wanted, measured: f64) -> Self {
        let met = match wanted {
            Wanted::AtMost(most) => measured <= most,
            Wanted::AtLeast(least) => measured >= least,
        };
        Self { number, name, wanted, measured, met }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, name, wanted, measured, met } = self;
        let wanted = match wanted {
            Wanted::AtMost(most) => format!("at most {most:.2}"),
            Wanted::AtLeast(least) => format!("at least {least:.2}"),
        };
        let verdict = if *met { "met" } else { "not met" };
        write!(f, "goal {number}: {name}: {measured:.2}, wanted {wanted}: {verdict}")
    }
}
