//! A small exact ledger: what was granted in a window, until it has left.

use std::collections::{BTreeMap, HashMap};

use crate::limit::{
    budget::{
        BudgetId, SpanNow,
        ledger::{CountId, TakeAnswer, TakeTurn},
    },
    share::TurnNumber,
};

const BUCKETS: i64 = 60;

#[derive(Debug, Default)]
pub(super) struct TestLedger {
    accounts: HashMap<(BudgetId, SpanNow), Account>,
    /// What each turn of a holder was granted, and in which bucket.
    turns: HashMap<(usize, TurnNumber), (u64, i64)>,
    /// The last turn of each holder at a budget.
    last: HashMap<(usize, BudgetId), TurnNumber>,
    /// What a run of a holder was granted and has not given back.
    taken: HashMap<(usize, i64), HashMap<(BudgetId, SpanNow), u64>>,
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
    /// What a run of a holder was granted of each window of a budget and has not given back.
    pub(super) fn taken_by(&self, run: (usize, i64), budget: &BudgetId) -> Vec<(SpanNow, u64)> {
        let of_run = self.taken.get(&run).into_iter().flatten();
        of_run.filter(|((id, _), _)| id == budget).map(|((_, span), tokens)| (*span, *tokens)).collect()
    }

    /// Takes a turn. One that is repeated gets what it had, and nothing else comes of it; none comes behind a later one.
    pub(super) fn turn(
        &mut self,
        holder: usize,
        (budget, number): (&BudgetId, TurnNumber),
        turn: &TakeTurn,
        now: i64,
    ) -> TakeAnswer {
        let TakeTurn { span, need, want, unit, least, limit, lease_ms, .. } = *turn;
        assert!(want >= need && unit > 0 && least > 0 && lease_ms > 0 && want <= limit, "{turn:?}");
        assert!(want == 0 || least <= want, "{turn:?}");
        assert!(need.is_multiple_of(unit) && want.is_multiple_of(unit) && turn.back.len() <= 8, "{turn:?}");
        let last = self.last.entry((holder, budget.clone())).or_default();
        assert!(*last <= number, "{turn:?} is made behind another");
        *last = number;
        let is_new = !self.turns.contains_key(&(holder, number));
        let taken = self.taken.entry((holder, number.run)).or_default();
        for given in turn.back.iter().filter(|_| is_new) {
            let own = taken.get_mut(&(budget.clone(), given.span)).expect("this run was granted tokens of it");
            *own = own.checked_sub(given.tokens).expect("no more comes back than was granted");
            let account = self.accounts.get_mut(&(budget.clone(), given.span)).expect("tokens of it were granted");
            if let Some(tokens) = account.buckets.get_mut(&given.bucket) {
                *tokens = tokens.saturating_sub(given.tokens);
            }
        }
        let width = width(span);
        let account = self.accounts.entry((budget.clone(), span)).or_default();
        if let Some(width) = width {
            account.buckets.retain(|bucket, _| bucket * width > now);
        }
        account.leases.retain(|(_, end, _)| *end > now);
        let (mut granted, mut bucket) = (0, 0);
        if want > 0 {
            let mut holders: Vec<usize> = account.leases.iter().map(|(holder, _, _)| *holder).chain([holder]).collect();
            holders.sort_unstable();
            holders.dedup();
            let left = limit.saturating_sub(account.used());
            let share = left / (2 * holders.len() as u64);
            let most = if left >= need { need.max(want.min(share)) } else { left };
            let rounded = most - most % unit;
            granted = if rounded < least { 0 } else { rounded };
            bucket = width.map_or(0, |width| match span {
                SpanNow::Rolling { window_ms } => (now + lease_ms + window_ms + width - 1) / width,
                SpanNow::Period { .. } | SpanNow::Total => 0,
            });
        }
        (granted, bucket) = *self.turns.entry((holder, number)).or_insert((granted, bucket));
        if is_new && granted > 0 {
            *account.buckets.entry(bucket).or_default() += granted;
            account.leases.push((holder, now + lease_ms, granted));
            *taken.entry((budget.clone(), span)).or_default() += granted;
        }
        let leased = account.leases.iter().map(|(_, _, tokens)| tokens).sum();
        let free_in_ms = account.free_in(limit, least, width, now);
        let (counted_for_ms, count_id) = (0, CountId::default());
        TakeAnswer { granted, used: account.used(), leased, bucket, free_in_ms, counted_for_ms, count_id }
    }
}
