//! One pass over the intents of a claim.

use std::time::Duration;

use super::{
    claim::{Claim, Mode, Outcome, Spent, Want},
    moment::Moment,
};

/// A budget during a claim.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The budget's place among all that are known.
    pub(super) slot: u32,
    pub(super) mode: Mode,
    pub(super) limit: u64,
    /// As in [`BudgetUse`](super::BudgetUse).
    pub(super) unavailable_after: Option<Duration>,
    /// As the ledger last reported it.
    pub(super) used: u64,
    /// The tokens that the claim may take now.
    pub(super) available: u64,
    /// The tokens that its intents take; more than are available only where the budget is open.
    pub(super) taken: u64,
    /// The smallest cost among these intents.
    pub(super) smallest: u8,
    /// Whether it denied an intent.
    pub(super) has_denied: bool,
}

/// Why an intent is refused, in the order of what counts: a denial before unavailability, and the later one to be free.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Refusal {
    Unavailable,
    Denied { free_at: Moment },
}

impl Line {
    /// Whether the tokens that are held suffice.
    pub(super) fn is_covered(&self) -> bool {
        self.taken <= self.available
    }

    fn refusal(&self, cost: u64) -> Option<Refusal> {
        if cost > self.limit {
            return Some(Refusal::Denied { free_at: Moment::NEVER });
        }
        match self.mode {
            Mode::Open => None,
            Mode::Spent { .. } | Mode::Unavailable if self.taken + cost <= self.available => None,
            Mode::Spent { free_at, .. } => Some(Refusal::Denied { free_at }),
            Mode::Unavailable => Some(Refusal::Unavailable),
        }
    }

    /// How it is spent, if it denied an intent.
    pub(super) fn spent(&self) -> Option<Spent> {
        let (used, free_at) = match self.mode {
            Mode::Spent { used, free_at } => (used, free_at),
            Mode::Open | Mode::Unavailable => (self.used, Moment::NEVER),
        };
        self.has_denied.then(|| Spent { used, free_at: free_at.passed() })
    }
}

/// The outcome of each intent, as if open budgets granted everything; counts on the lines what they take.
pub(super) fn judge(claim: &Claim, lines: &mut [Line]) -> Vec<Outcome> {
    claim.wants.iter().map(|want| judge_one(*want, &claim.sets[want.set as usize], lines)).collect()
}

fn judge_one(want: Want, set: &[u32], lines: &mut [Line]) -> Outcome {
    let cost = u64::from(want.cost);
    let mut worst: Option<(Refusal, u32)> = None;
    for &place in set {
        if let Some(refusal) = lines[place as usize].refusal(cost)
            && worst.is_none_or(|(other, _)| refusal > other)
        {
            worst = Some((refusal, place));
        }
    }
    match worst {
        Some((Refusal::Denied { .. }, place)) => {
            lines[place as usize].has_denied = true;
            Outcome::Denied(place)
        }
        Some((Refusal::Unavailable, place)) => Outcome::Unavailable(place),
        None => {
            for &place in set {
                let line = &mut lines[place as usize];
                line.taken += cost;
                line.smallest = line.smallest.min(want.cost);
            }
            Outcome::Granted
        }
    }
}
