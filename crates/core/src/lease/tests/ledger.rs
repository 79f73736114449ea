//! A small exact ledger: what was granted in a window, until it has left.

use std::collections::{BTreeMap, HashMap};

use crate::{
    budget::{BudgetId, SpanNow},
    ledger::{CountId, GiveBack, TakeAnswer, TakeRequest},
    limit::share::TurnNumber,
};

const BUCKETS: i64 = 60;

#[derive(Debug, Default)]
pub(super) struct TestLedger {
    accounts: HashMap<(BudgetId, SpanNow), Account>,
    /// What each turn of a holder was granted, and in which bucket.
    turns: HashMap<(usize, TurnNumber), (u64, i64)>,
}

#[derive(Debug, Default)]
struct Account {
    buckets: BTreeMap<i64, u64>,
    /// (holder, end, tokens)
    leases: Vec<(usize, i64, u64)>,
}

fn width(span: SpanNow) -> Option<i64> {
    match span {
        SpanNow::Rolling { window_ms } => Some((window_ms / BUCKETS).max(1)),
        SpanNow::Period { .. } | SpanNow::Total => None,
    }
}

impl Account {
    fn used(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// When at least this much is left.
    fn free_in(&self, limit: u64, least: u64, width: Option<i64>, now: i64) -> Option<i64> {
        let mut used = self.used();
        if used + least <= limit {
            return Some(0);
        }
        let width = width?;
        for (bucket, tokens) in &self.buckets {
            used -= tokens;
            if used + least <= limit {
                return Some(bucket * width - now);
            }
        }
        None
    }
}

impl TestLedger {
    pub(super) fn take(&mut self, holder: usize, request: &TakeRequest, now: i64) -> TakeAnswer {
        let TakeRequest { need, want, unit, least, limit, lease_ms, .. } = *request;
        assert!(want >= need && unit > 0 && least > 0 && lease_ms > 0 && want <= limit, "{request:?}");
        assert!(least <= want && need.is_multiple_of(unit) && want.is_multiple_of(unit), "{request:?}");
        let width = width(request.span);
        let account = self.accounts.entry((request.budget.clone(), request.span)).or_default();
        if let Some(width) = width {
            account.buckets.retain(|bucket, _| bucket * width > now);
        }
        account.leases.retain(|(_, end, _)| *end > now);
        let mut holders: Vec<usize> = account.leases.iter().map(|(holder, _, _)| *holder).chain([holder]).collect();
        holders.sort_unstable();
        holders.dedup();
        let left = limit.saturating_sub(account.used());
        let share = left / (2 * holders.len() as u64);
        let most = if left >= need { need.max(want.min(share)) } else { left };
        let rounded = most - most % unit;
        let granted = if rounded < least { 0 } else { rounded };
        let bucket = width.map_or(0, |width| match request.span {
            SpanNow::Rolling { window_ms } => (now + lease_ms + window_ms + width - 1) / width,
            SpanNow::Period { .. } | SpanNow::Total => 0,
        });
        let turn = (holder, request.turn.expect("a lease is asked for by number"));
        let (is_new, (granted, bucket)) = match self.turns.get(&turn) {
            Some(before) => (false, *before),
            None => (true, (granted, bucket)),
        };
        self.turns.insert(turn, (granted, bucket));
        if is_new && granted > 0 {
            *account.buckets.entry(bucket).or_default() += granted;
            account.leases.push((holder, now + lease_ms, granted));
        }
        let leased = account.leases.iter().map(|(_, _, tokens)| tokens).sum();
        let free_in_ms = account.free_in(limit, least, width, now);
        let (counted_for_ms, count_id) = (0, CountId::default());
        TakeAnswer { granted, used: account.used(), leased, bucket, free_in_ms, counted_for_ms, count_id }
    }

    pub(super) fn give_back(&mut self, back: &GiveBack) {
        let account = self.accounts.get_mut(&(back.budget.clone(), back.span)).expect("tokens of it were granted");
        if let Some(tokens) = account.buckets.get_mut(&back.bucket) {
            *tokens = tokens.saturating_sub(back.tokens);
        }
    }
}
