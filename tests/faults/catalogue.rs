//! The table of cases: one or more for each row of the catalogue.

use std::time::Duration;

use anyhow::Result;

use crate::{
    ground::Ground,
    rows::{process, script},
    trial::{Findings, Order},
};

/// What a case may say to C, and to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// No cap is exceeded, and every verdict is the model's.
    Exact,
    /// No cap is exceeded; verdicts differ from the model's, which knows nothing of the fault (wrong clocks).
    Capped,
    /// Caps may be exceeded, by what was forgotten. How much is stated.
    Forgets,
}

/// One fault, and how it is injected.
pub struct Case {
    /// The row's number, and a letter where it has several cases.
    pub key: &'static str,
    /// What is done.
    pub what: &'static str,
    /// How often.
    pub times: usize,
    /// How often in CI; `None`: CI leaves it out.
    pub in_ci: Option<usize>,
    /// Within how many seconds after the fault's end new intents pass again.
    pub within_s: u64,
    pub promise: Promise,
    pub run: fn(&mut Ground, &Order) -> Result<Findings>,
}

impl Case {
    /// The row of the catalogue that it belongs to.
    pub fn row(&self) -> u32 {
        self.key.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).parse().unwrap()
    }

    pub fn within(&self) -> Duration {
        Duration::from_secs(self.within_s)
    }
}

const fn case(key: &'static str, what: &'static str, run: fn(&mut Ground, &Order) -> Result<Findings>) -> Case {
    Case { key, what, times: 1, in_ci: None, within_s: 30, promise: Promise::Exact, run }
}

/// All cases, in the catalogue's order.
pub const CASES: &[Case] = &[
    Case {
        times: 10,
        in_ci: Some(2),
        ..case(
            "1a",
            "worker killed after Redis admitted, before the records reach the broker",
            process::killed_before_produce,
        )
    },
    Case {
        times: 10,
        in_ci: Some(2),
        ..case("1b", "worker killed between produce and commit", process::killed_before_commit)
    },
    Case {
        times: 10,
        in_ci: Some(2),
        ..case("1c", "worker killed after the broker committed, before the worker heard", process::killed_after_commit)
    },
    Case {
        times: 50,
        in_ci: Some(6),
        ..case("2", "worker killed at random, again and again, under load", process::killed_at_random)
    },
    Case {
        times: 5,
        in_ci: Some(2),
        within_s: 15,
        ..case("13", "SIGTERM in the middle of a batch, and a second one while it drains", process::terminated_twice)
    },
    Case { times: 20, in_ci: Some(5), within_s: 5, ..case("16a", "SCRIPT FLUSH on every node", script::flushed) },
];
