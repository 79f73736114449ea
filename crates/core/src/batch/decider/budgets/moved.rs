//! Tokens that came back and are given to another intent of the batch.

use std::sync::Arc;

use super::{BatchBudgets, NONE, Wanted};
use crate::limit::budget::lease::{Outcome, Want};

impl BatchBudgets {
    pub(in crate::batch::decider) fn lacks_tokens(&self, record: usize, tokens: &[u64]) -> bool {
        let Wanted { set, cost, .. } = self.wanted[record];
        let lacks = |place: &u32| tokens[*place as usize] < u64::from(cost);
        set != NONE && (self.answers.is_none() || self.places(set).iter().any(lacks))
    }

    /// Gives an intent of these tokens, which came back, what it needs.
    pub(in crate::batch::decider) fn give(&mut self, record: usize, tokens: &mut [u64]) {
        let Wanted { set, want, cost } = self.wanted[record];
        let Some(answers) = self.answers.as_mut().filter(|_| set != NONE) else { return };
        // Its own may be among these.
        let has_own = answers.outcomes.get(want as usize) == Some(&Outcome::Granted);
        for place in &self.claim.sets[set as usize] {
            tokens[*place as usize] -= u64::from(cost);
            self.moved[*place as usize] += if has_own { 0 } else { u64::from(cost) };
        }
        if want == NONE {
            // Another limit had denied it.
            self.wanted[record].want = u32::try_from(self.claim.wants.len()).unwrap_or(NONE);
            Arc::make_mut(&mut self.claim).wants.push(Want { set, cost });
            answers.outcomes.push(Outcome::Granted);
        } else {
            answers.outcomes[want as usize] = Outcome::Granted;
        }
    }
}
