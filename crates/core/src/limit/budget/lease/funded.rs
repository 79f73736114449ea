//! What a claim was granted, until somebody settles what is spent of it.

use std::sync::Arc;

use super::{
    Owed,
    claim::{Answers, Claim, LeaseNumber, Outcome},
};
use crate::limit::budget::BudgetId;

/// Tokens of leases that were not spent.
pub type Unspent = Vec<(BudgetId, LeaseNumber, u64)>;

/// What becomes of tokens beside those that are spent.
#[derive(Debug)]
pub enum Settling {
    Unspent(Unspent),
    /// Replays owe this, and took no tokens: the ledger counts it, where it has not.
    Owed(Vec<Owed>),
}

/// Who has granted tokens. It is told at once and without a wait, so that what is dropped half way tells it, too.
pub type Lender = Arc<dyn Fn(Settling) + Send + Sync>;

/// The answers to a claim, and who has granted its tokens. Where it is dropped, all of them go back.
pub struct Funded {
    claim: Arc<Claim>,
    answers: Answers,
    /// `None`: nothing was taken.
    lender: Option<Lender>,
}

impl Funded {
    #[must_use]
    pub fn new(claim: Arc<Claim>, answers: Answers, lender: Lender) -> Self {
        Self { claim, answers, lender: Some(lender) }
    }

    /// It was only looked at what would be granted.
    #[must_use]
    pub fn looked_at(claim: Arc<Claim>, answers: Answers) -> Self {
        Self { claim, answers, lender: None }
    }

    /// The answers. No token goes back by itself any more.
    #[must_use]
    pub fn keep(self) -> Answers {
        self.open().0
    }

    /// The answers, and where tokens go back to.
    pub(crate) fn open(mut self) -> (Answers, Option<Lender>) {
        (std::mem::take(&mut self.answers), self.lender.take())
    }
}

impl Drop for Funded {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            let granted = self.answers.granted(&self.claim);
            self.claim.give_back(&self.answers.leases, &granted, &lender);
        }
    }
}

impl Answers {
    /// The tokens of each budget of the claim that were granted.
    pub(crate) fn granted(&self, claim: &Claim) -> Vec<u64> {
        let (mut of_sets, mut granted) = (vec![0; claim.sets.len()], vec![0; claim.budgets.len()]);
        for (want, outcome) in claim.wants.iter().zip(&self.outcomes) {
            if *outcome == Outcome::Granted {
                of_sets[want.set as usize] += u64::from(want.cost);
            }
        }
        claim.add_sets(&of_sets, &mut granted);
        granted
    }
}

impl Claim {
    /// Adds the tokens of each set to those of its budgets.
    pub(crate) fn add_sets(&self, of_sets: &[u64], tokens: &mut [u64]) {
        for (places, of_set) in self.sets.iter().zip(of_sets) {
            for place in places {
                tokens[*place as usize] += of_set;
            }
        }
    }

    /// Gives back tokens of each budget, to the leases that they are of.
    pub(crate) fn give_back(&self, leases: &[Option<LeaseNumber>], tokens: &[u64], lender: &Lender) {
        let budgets = self.budgets.iter().zip(leases).zip(tokens).filter(|(_, tokens)| **tokens > 0);
        let unspent = budgets.filter_map(|((budget, lease), tokens)| Some((budget.id.clone(), (*lease)?, *tokens)));
        let unspent: Unspent = unspent.collect();
        if !unspent.is_empty() {
            lender(Settling::Unspent(unspent));
        }
    }
}
