//! A ledger in memory: the reference that `lua/take.lua`, `lua/give_back.lua` and `lua/restore_budget.lua` must equal.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{
    BUCKETS, CountId, GiveBack, TakeAnswer, TakeRequest,
    recount::Buckets,
    turns::{Done, LastTurn},
};
use crate::{
    budget::{BudgetId, SpanNow},
    time::Time,
};

/// How long the tokens of a calendar period are kept after its end, for holders whose clock is behind.
const KEPT_AFTER_PERIOD_MS: i64 = 3_600_000;
/// The parts of a lease that its end is rounded up to, so that a holder has few leases to be remembered.
const LEASE_PARTS: i64 = 4;

/// The tokens granted of all budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    accounts: BTreeMap<BudgetId, Account>,
}

/// The tokens granted of one budget.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    /// Since when its tokens are counted, in ms since 1970; 0: for ever.
    since: i64,
    /// Of rolling windows: when leases end, rounded up to a bucket -> tokens.
    buckets: BTreeMap<i64, u64>,
    /// Of calendar periods: start -> tokens.
    periods: BTreeMap<i64, u64>,
    /// Of all time.
    total: u64,
    /// Each holder's leases.
    holders: BTreeMap<String, Leases>,
    /// Each holder's last turn of asking for tokens.
    takes: BTreeMap<String, LastTurn>,
    /// The same of giving some back.
    returns: BTreeMap<String, LastTurn>,
}

/// One holder's leases: when they end -> tokens.
type Leases = BTreeMap<i64, u64>;

impl Book {
    /// Grants tokens to a holder at a moment; to a turn that is repeated the same ones.
    pub fn take(&mut self, now: Time, holder: &str, request: &TakeRequest) -> TakeAnswer {
        let now = now.millis();
        if request.want == 0 {
            // A look changes nothing.
            let mut account = self.accounts.get(&request.budget).cloned().unwrap_or_else(|| Account::new(now));
            return account.take(now, holder, (request, None));
        }
        let account = self.accounts.entry(request.budget.clone()).or_insert_with(|| Account::new(now));
        if let Some(turn) = request.turn
            && let Some(last) = account.takes.get_mut(holder).filter(|last| last.is_kept(now))
            && let Some(done) = last.find(turn)
        {
            // Neither does what was done before.
            last.again(now);
            return account.clone().take(now, holder, (request, Some(done)));
        }
        account.take(now, holder, (request, None))
    }

    /// Takes tokens back from a holder at a moment; gives how many. None that no longer count, and none of an earlier count. A turn that
    /// is repeated takes no more back, and one of a run before the last one takes none.
    pub fn give_back(&mut self, now: Time, holder: &str, given: &GiveBack) -> u64 {
        let Some(account) = self.accounts.get_mut(&given.budget) else { return 0 };
        if CountId(account.since) != given.count_id {
            return 0;
        }
        let now = now.millis();
        if let Some(turn) = given.turn
            && let Some(last) = account.returns.get_mut(holder)
        {
            if last.is_of_later_run(turn) {
                return 0;
            }
            if let Some(done) = last.find(turn) {
                last.again(now);
                return done.tokens;
            }
        }
        let back = match given.span {
            SpanNow::Rolling { .. } => less(account.buckets.entry(given.bucket), given.tokens),
            SpanNow::Period { start, .. } => less(account.periods.entry(start.millis()), given.tokens),
            SpanNow::Total => {
                let back = account.total.min(given.tokens);
                account.total -= back;
                back
            }
        };
        if back > 0 {
            account.release(now, holder, back);
            if let Some(turn) = given.turn {
                let done = Done { tokens: back, bucket: given.bucket };
                account.returns.insert(holder.to_owned(), LastTurn::new(turn, now, done));
            }
        }
        back
    }

    /// Counts a budget anew at a moment: it holds these tokens, and no leases. No two counts of it begin at once.
    pub fn recount(&mut self, now: Time, budget: &BudgetId, span: SpanNow, tokens: &Buckets) {
        let now = now.millis();
        let mut account = Account::new(self.accounts.get(budget).map_or(now, |before| now.max(before.since + 1)));
        match span {
            SpanNow::Rolling { .. } => account.buckets.clone_from(tokens),
            SpanNow::Period { .. } => account.periods.clone_from(tokens),
            SpanNow::Total => account.total = tokens.values().sum(),
        }
        self.accounts.insert(budget.clone(), account);
    }
}

/// Takes up to so many tokens out of a place; gives how many. An empty place goes.
fn less(place: Entry<'_, i64, u64>, tokens: u64) -> u64 {
    let Entry::Occupied(mut place) = place else { return 0 };
    let back = tokens.min(*place.get());
    *place.get_mut() -= back;
    if *place.get() == 0 {
        place.remove();
    }
    back
}

impl Account {
    /// It counts from now: a lost account that no rebuild has written looks like a new one.
    fn new(now: i64) -> Self {
        let (buckets, periods, holders, takes, returns) = Default::default();
        Self { since: now, buckets, periods, total: 0, holders, takes, returns }
    }

    /// Answers a request; `done`: what it came to before, where it is repeated.
    fn take(&mut self, now: i64, holder: &str, (request, done): (&TakeRequest, Option<Done>)) -> TakeAnswer {
        self.drop_ended(now, request.span);
        let (granted, bucket) = match done {
            Some(done) => (done.tokens, done.bucket),
            None => self.grant(now, holder, request),
        };
        let used = self.used(request.span);
        let leased: u64 = self.holders.values().flat_map(|leases| leases.range(now + 1..)).map(|(_, held)| held).sum();
        let free_in_ms = self.free_in_ms(now, request, used);
        let counted_for_ms = (now - self.since).max(0);
        let count_id = CountId(self.since);
        TakeAnswer { granted, used, leased: leased.min(used), bucket, free_in_ms, counted_for_ms, count_id }
    }

    /// Grants tokens; gives how many, and their bucket.
    fn grant(&mut self, now: i64, holder: &str, request: &TakeRequest) -> (u64, i64) {
        let TakeRequest { span, limit, need, want, unit, least, lease_ms, .. } = *request;
        let left = limit.saturating_sub(self.used(span));
        let others = self.holders.keys().filter(|other| other.as_str() != holder).count() as u64;
        let granted = match want.min(left / (2 * (others + 1))) {
            share if share < need => need.min(left),
            share => share,
        };
        let granted = granted - granted % unit;
        let granted = if granted < least || want == 0 { 0 } else { granted };
        let bucket = match span {
            SpanNow::Rolling { window_ms } => rounded_up(now + lease_ms, window_ms / BUCKETS),
            SpanNow::Period { start, .. } => start.millis(),
            SpanNow::Total => 0,
        };
        if granted > 0 {
            match span {
                SpanNow::Rolling { .. } => *self.buckets.entry(bucket).or_default() += granted,
                SpanNow::Period { .. } => *self.periods.entry(bucket).or_default() += granted,
                SpanNow::Total => self.total += granted,
            }
        }
        let ends = rounded_up(now + lease_ms, lease_ms / LEASE_PARTS);
        let own = self.holders.entry(holder.to_owned()).or_default();
        own.retain(|ends, _| *ends > now);
        *own.entry(ends).or_default() += granted;
        if let Some(turn) = request.turn {
            let done = Done { tokens: granted, bucket };
            self.takes.insert(holder.to_owned(), LastTurn::new(turn, now, done));
        }
        (granted, bucket)
    }

    /// Drops what no longer counts.
    fn drop_ended(&mut self, now: i64, span: SpanNow) {
        match span {
            SpanNow::Rolling { window_ms } => self.buckets.retain(|bucket, _| bucket + window_ms > now),
            SpanNow::Period { start, .. } => {
                let start = start.millis();
                self.periods.retain(|period, _| *period >= start || now < start + KEPT_AFTER_PERIOD_MS);
            }
            SpanNow::Total => {}
        }
        // A holder's leases go with the last one: where the clock goes back, those that had ended count again.
        self.holders.retain(|_, leases| leases.range(now + 1..).next().is_some());
        self.takes.retain(|_, last| last.is_kept(now));
        self.returns.retain(|_, last| last.is_kept(now));
    }

    /// The tokens that count, where those that no longer do are dropped.
    fn used(&self, span: SpanNow) -> u64 {
        match span {
            SpanNow::Rolling { .. } => self.buckets.values().sum(),
            SpanNow::Period { start, .. } => self.periods.get(&start.millis()).copied().unwrap_or(0),
            SpanNow::Total => self.total,
        }
    }

    /// In how many milliseconds the least is left.
    fn free_in_ms(&self, now: i64, request: &TakeRequest, used: u64) -> Option<i64> {
        let TakeRequest { span, limit, least, .. } = *request;
        if limit.saturating_sub(used) >= least {
            return Some(0);
        }
        if least > limit {
            return None;
        }
        match span {
            SpanNow::Rolling { window_ms } => {
                let mut over = used + least - limit;
                let enough = self.buckets.iter().find(|(_, tokens)| {
                    over = over.saturating_sub(**tokens);
                    over == 0
                });
                enough.map(|(bucket, _)| bucket + window_ms - now)
            }
            SpanNow::Period { end, .. } => Some((end.millis() - now).max(1)),
            SpanNow::Total => None,
        }
    }

    /// Takes tokens out of a holder's leases, those that end first. A holder that has none left is none.
    fn release(&mut self, now: i64, holder: &str, tokens: u64) {
        let Some(leases) = self.holders.get_mut(holder) else { return };
        leases.retain(|ends, _| *ends > now);
        if leases.values().sum::<u64>() <= tokens {
            self.holders.remove(holder);
            return;
        }
        let mut rest = tokens;
        for held in leases.values_mut() {
            let part = rest.min(*held);
            *held -= part;
            rest -= part;
        }
    }
}

/// A time rounded up to a multiple of so many milliseconds (1 where that is less).
pub(super) fn rounded_up(millis: i64, width: i64) -> i64 {
    let width = width.max(1);
    -(-millis).div_euclid(width) * width
}
