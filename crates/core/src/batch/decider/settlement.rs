//! What is left to be settled of the limits of a batch once it is decided: what is spent, or owed, only if its outputs are committed.
//!
//! invariant: a batch that is decided again claims its tokens again, but for those of what is recorded. So the tokens of anything else
//! are spent with the commit, and not before. Permits, and other units, are spent where it may be committed.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    basis::time::Time,
    batch::record::Progress,
    limit::{
        budget::lease::{Claim, LeaseNumber, Lender, Owed, Settling},
        share::Taken,
    },
};

/// What a record takes of a budget, or owes to it, once it is committed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stake {
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// The budget's place in the claim.
    pub(super) place: u32,
    pub(super) tokens: u8,
    /// Where it took no tokens and owes them: when it was admitted. A count that began later has to count it. `None`: it took them.
    pub(super) owed_since: Option<Time>,
}

pub(super) struct Stakes {
    pub(super) lender: Lender,
    pub(super) claim: Arc<Claim>,
    pub(super) leases: Vec<Option<LeaseNumber>>,
    pub(super) now: Time,
    pub(super) of_records: Vec<Stake>,
}

impl Stakes {
    /// Gives back what records took that are not committed, and has budgets count what those owe that are.
    fn settle(&self, is_committed: impl Fn(&Stake) -> bool) {
        let mut back = vec![0; self.claim.budgets.len()];
        let mut owed: BTreeMap<(u32, Time), u64> = BTreeMap::new();
        for stake in &self.of_records {
            match (stake.owed_since, is_committed(stake)) {
                (None, false) => back[stake.place as usize] += u64::from(stake.tokens),
                (Some(at), true) => *owed.entry((stake.place, at)).or_default() += u64::from(stake.tokens),
                (None, true) | (Some(_), false) => {}
            }
        }
        self.claim.give_back(&self.leases, &back, &self.lender);
        let owed = owed.into_iter().map(|((place, at), tokens)| {
            let (used, ago_ms) = (&self.claim.budgets[place as usize], self.now.millis().saturating_sub(at.millis()));
            Owed::of(used.clone(), tokens, self.claim.judged_at, ago_ms)
        });
        let owed: Vec<Owed> = owed.collect();
        if !owed.is_empty() {
            (self.lender)(Settling::Owed(owed));
        }
    }
}

/// What is left to be settled of a batch. Where it is dropped before it is handed over, nothing of the batch is committed: its permits
/// and tokens go back, but for the tokens of what is recorded, or may be. Where it is dropped later, it counts as committed: no budget
/// is exceeded then, and no route.
#[derive(Default)]
#[must_use = "what limits gave goes back where it is dropped"]
pub struct Settlement {
    pub(super) units: Vec<Taken>,
    pub(super) stakes: Option<Stakes>,
    is_handed_over: bool,
}

impl Settlement {
    /// The batch is handed over to be committed. Whoever does not hear what became of it counts it as committed.
    pub fn hand_over(&mut self) {
        self.is_handed_over = true;
    }

    pub fn committed(mut self) {
        self.hand_over();
    }

    /// Its outputs are not committed, or perhaps they are. What is left is to be [settled](Self::settle) when it is known; `None`: nothing
    /// is left.
    ///
    /// Its permits are spent whatever is known: one too many is made up for by the next look at the lag, and one too few would be approved
    /// on top. They are held until it is known, or the transaction has ended, because what becomes visible meanwhile may not be in the lag
    /// that is known.
    pub fn failed(mut self) -> Option<Self> {
        self.hand_over();
        (!self.units.is_empty() || self.stakes.is_some()).then_some(self)
    }

    /// The transaction of a commit that failed has ended: what it appended is in the lag by then, visible or not. Which of it is visible is
    /// not known yet.
    pub fn transaction_ended(&mut self) {
        self.units.drain(..).for_each(Taken::spend);
    }

    /// Reading starts at these offsets: records before them are committed, and those behind them are decided again. Another member of the
    /// group reads the partitions that are missing there: records of these count as committed.
    pub fn settle(mut self, starts: &[Progress]) {
        let is_committed = |stake: &Stake| {
            let start = starts.iter().find(|start| start.partition == stake.partition);
            start.is_none_or(|start| stake.offset < start.next_offset)
        };
        if let Some(stakes) = self.stakes.take() {
            stakes.settle(is_committed);
        }
    }

    #[cfg(test)]
    pub(super) fn permits(&self) -> u64 {
        self.units.iter().map(Taken::units).sum()
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        if self.is_handed_over {
            self.transaction_ended();
        }
        if let Some(stakes) = self.stakes.take() {
            stakes.settle(|_| self.is_handed_over);
        }
    }
}
