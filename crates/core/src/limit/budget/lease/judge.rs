//! One pass over the intents of a claim.

use std::time::Duration;

use super::{
    claim::{BudgetMode, Claim, Outcome, Spent, Want},
    moment::Moment,
};

/// A budget during a claim.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The budget's number among all that are known.
    pub(super) budget: u32,
    pub(super) mode: BudgetMode,
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
            BudgetMode::Open => None,
            BudgetMode::Spent { .. } | BudgetMode::Unavailable if self.taken + cost <= self.available => None,
            BudgetMode::Spent { free_at } => Some(Refusal::Denied { free_at }),
            BudgetMode::Unavailable => Some(Refusal::Unavailable),
        }
    }

    /// How it is spent, if it denied an intent.
    pub(super) fn spent(&self) -> Option<Spent> {
        let free_at = match self.mode {
            BudgetMode::Spent { free_at } => free_at.passed(),
            BudgetMode::Open | BudgetMode::Unavailable => None,
        };
        self.has_denied.then_some(Spent { used: self.used, free_at })
    }
}

/// What the intents of one set take together, and the least and the most that one of them takes.
#[derive(Clone, Copy)]
struct Sum {
    tokens: u64,
    smallest: u8,
    largest: u8,
}

/// The outcome of each intent, as if open budgets granted everything; counts on the lines what they take.
pub(super) fn judge(claim: &Claim, lines: &mut [Line]) -> Vec<Outcome> {
    if grants_all(claim, lines) {
        return vec![Outcome::Granted; claim.wants.len()];
    }
    claim.wants.iter().map(|want| judge_one(*want, &claim.sets[want.set as usize], lines)).collect()
}

/// Grants all intents at once, where no budget refuses what they take together. Else the lines are as they were.
fn grants_all(claim: &Claim, lines: &mut [Line]) -> bool {
    let mut sums = vec![Sum { tokens: 0, smallest: u8::MAX, largest: 0 }; claim.sets.len()];
    for Want { set, cost } in &claim.wants {
        let sum = &mut sums[*set as usize];
        sum.tokens += u64::from(*cost);
        (sum.smallest, sum.largest) = (sum.smallest.min(*cost), sum.largest.max(*cost));
    }
    let mut of_lines = vec![Sum { tokens: 0, smallest: u8::MAX, largest: 0 }; lines.len()];
    for (places, sum) in claim.sets.iter().zip(&sums) {
        for place in places {
            let of = &mut of_lines[*place as usize];
            of.tokens += sum.tokens;
            (of.smallest, of.largest) = (of.smallest.min(sum.smallest), of.largest.max(sum.largest));
        }
    }
    let is_refused = |line: &Line, sum: &Sum| {
        u64::from(sum.largest) > line.limit || (line.mode != BudgetMode::Open && sum.tokens > line.available)
    };
    if lines.iter().zip(&of_lines).any(|(line, sum)| is_refused(line, sum)) {
        return false;
    }
    for (line, sum) in lines.iter_mut().zip(of_lines) {
        (line.taken, line.smallest) = (sum.tokens, sum.smallest);
    }
    true
}

fn judge_one(want: Want, set: &[u32], lines: &mut [Line]) -> Outcome {
    let cost = u64::from(want.cost);
    let refusals = set.iter().filter_map(|place| Some((lines[*place as usize].refusal(cost)?, *place)));
    // Of equal ones the first.
    match refusals.rev().max_by_key(|(refusal, _)| *refusal) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> impl Strategy<Value = Line> {
        let free_at = Moment::of(Duration::from_secs(9));
        let mode =
            prop_oneof![Just(BudgetMode::Open), Just(BudgetMode::Spent { free_at }), Just(BudgetMode::Unavailable)];
        (mode, 3_u64..9, 0_u64..60).prop_map(|(mode, limit, available)| {
            let (budget, unavailable_after, used, taken, smallest, has_denied) = (0, None, 0, 0, u8::MAX, false);
            Line { budget, mode, limit, unavailable_after, used, available, taken, smallest, has_denied }
        })
    }

    proptest! {
        /// Whether all are granted at once, or each by itself, nobody can tell.
        #[test]
        fn what_is_granted_at_once_is_what_each_is_granted(
            lines in prop::collection::vec(line(), 3),
            sets in prop::collection::vec(prop::sample::subsequence(vec![0_u32, 1, 2], 1..3), 1..4),
            wants in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..6), 0..20),
        ) {
            let want = |(set, cost): &(prop::sample::Index, u8)| Want { set: set.index(sets.len()) as u32, cost: *cost };
            let wants = wants.iter().map(want).collect();
            let claim = Claim { judged_at: Duration::ZERO, budgets: Vec::new(), wants, sets: sets.clone() };
            let (mut each, mut all) = (lines.clone(), lines);
            let one = |want: &Want| judge_one(*want, &claim.sets[want.set as usize], &mut each);
            let expected: Vec<Outcome> = claim.wants.iter().map(one).collect();
            prop_assert_eq!(judge(&claim, &mut all), expected);
            let found = |line: &Line| (line.taken, line.smallest, line.has_denied);
            prop_assert_eq!(all.iter().map(found).collect::<Vec<_>>(), each.iter().map(found).collect::<Vec<_>>());
        }
    }
}
