//! Which process was granted what and has spent what: checked by itself, without the code under test.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{BudgetUse, DueTurn};
use crate::limit::budget::{BudgetId, SpanNow, ledger::GiveBack};

#[derive(Debug, Clone, Copy)]
pub(super) struct SpendId(usize);

#[derive(Debug)]
pub(super) struct Spend {
    life: usize,
    pub(super) id: BudgetId,
    span: SpanNow,
    pub(super) at: i64,
    pub(super) tokens: u64,
}

#[derive(Debug)]
struct Granted {
    life: usize,
    id: BudgetId,
    span: SpanNow,
    since: i64,
    ends: i64,
    tokens: u64,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) spends: Vec<Spend>,
    grants: Vec<Granted>,
    returned: BTreeMap<(usize, BudgetId, String), u64>,
    /// What these held, and what was on its way to them, is lost.
    killed: BTreeSet<usize>,
}

/// Longer than a second: lanes judge in another order than they claim.
const SECOND_MS: i64 = 1_100;

impl Books {
    pub(super) fn granted(&mut self, life: usize, due: &DueTurn, tokens: u64, (since, ends): (i64, i64)) {
        let (id, span) = (due.budget.clone(), due.turn.span);
        self.grants.push(Granted { life, id, span, since, ends, tokens });
    }

    pub(super) fn spent(&mut self, life: usize, used: &BudgetUse, tokens: u64, at: i64) -> SpendId {
        self.spends.push(Spend { life, id: used.id.clone(), span: used.span, at, tokens });
        SpendId(self.spends.len() - 1)
    }

    pub(super) fn put_back(&mut self, SpendId(index): SpendId, tokens: u64) {
        self.spends[index].tokens -= tokens;
    }

    pub(super) fn returned(&mut self, life: usize, budget: &BudgetId, back: &GiveBack) {
        *self.returned.entry((life, budget.clone(), format!("{:?}", back.span))).or_default() += back.tokens;
    }

    pub(super) fn is_killed(&mut self, life: usize) {
        self.killed.insert(life);
    }

    /// What a process has spent of a window of a budget, and the most in a second.
    pub(super) fn spent_by(&self, life: usize, id: &BudgetId, span: SpanNow) -> (u64, u64) {
        let own = self.spends.iter().filter(|spend| spend.life == life && spend.id == *id && spend.span == span);
        let own: Vec<(i64, u64)> = own.map(|spend| (spend.at, spend.tokens)).collect();
        (own.iter().map(|(_, tokens)| tokens).sum(), most(SpanNow::Rolling { window_ms: SECOND_MS }, own))
    }

    /// The most that was spent of a budget in any of its windows.
    pub(super) fn most_in_a_window(&self, id: &BudgetId) -> u64 {
        let mut by_span: BTreeMap<String, (SpanNow, Vec<(i64, u64)>)> = BTreeMap::new();
        for spend in self.spends.iter().filter(|spend| spend.id == *id) {
            let entry = by_span.entry(format!("{:?}", spend.span)).or_insert((spend.span, Vec::new()));
            entry.1.push((spend.at, spend.tokens));
        }
        by_span.into_values().map(|(span, spends)| most(span, spends)).max().unwrap_or(0)
    }

    /// Each token was spent once, after its grant had arrived and before its lease ended; and what was not spent was given back.
    pub(super) fn check_tokens(&self) {
        let mut groups: BTreeMap<_, (Vec<&Granted>, Vec<&Spend>)> = BTreeMap::new();
        for grant in &self.grants {
            groups.entry((grant.life, grant.id.clone(), format!("{:?}", grant.span))).or_default().0.push(grant);
        }
        for spend in &self.spends {
            groups.entry((spend.life, spend.id.clone(), format!("{:?}", spend.span))).or_default().1.push(spend);
        }
        for (key, (grants, mut spends)) in groups {
            let granted: u64 = grants.iter().map(|grant| grant.tokens).sum();
            let spent: u64 = spends.iter().map(|spend| spend.tokens).sum();
            let used = spent + self.returned.get(&key).copied().unwrap_or(0);
            let may_lose = self.killed.contains(&key.0) && granted > used;
            assert!(granted == used || may_lose, "tokens of {key:?}: {used} of {granted}");
            // Spending the token that ends first is the best that can be done.
            let mut left: Vec<u64> = grants.iter().map(|grant| grant.tokens).collect();
            let mut order: Vec<usize> = (0..grants.len()).collect();
            order.sort_by_key(|index| grants[*index].ends);
            spends.sort_by_key(|spend| spend.at);
            for spend in spends {
                let mut missing = spend.tokens;
                let lasts = |index: &usize| (grants[*index].since..grants[*index].ends).contains(&spend.at);
                for index in order.iter().copied().filter(lasts) {
                    let some = missing.min(left[index]);
                    (left[index], missing) = (left[index] - some, missing - some);
                }
                assert_eq!(missing, 0, "{key:?}: {spend:?} was not covered by a lease");
            }
        }
    }
}

fn most(span: SpanNow, mut spends: Vec<(i64, u64)>) -> u64 {
    let SpanNow::Rolling { window_ms } = span else { return spends.iter().map(|(_, tokens)| tokens).sum() };
    spends.sort_unstable();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at, tokens) in &spends {
        sum += tokens;
        while spends[first].0 <= at - window_ms {
            sum -= spends[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}
